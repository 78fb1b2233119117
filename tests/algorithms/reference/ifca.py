"""IFCA (Ghosh et al., 2020), Algorithm 1, model averaging."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Clients:
    """What a client i can do in round t; among equal losses the model of the lowest word wins."""

    train: Callable
    loss: Callable
    words: Callable
    weight: Callable
    cohort: Callable

    def choose(self, i, models, t):
        """The model of the lowest loss F_i."""
        losses = [self.loss(i, model, t) for model in models]
        tied = [j for j, value in enumerate(losses) if value == min(losses)]
        return min(tied, key=lambda j: self.words(i, t)[j])


def run(box: Clients, models, rounds, draw=None, share=0.0, tries=0):
    """The server's models, the last choice of every client, and how often models were drawn.

    While a model wins less than `share` of the clients, `draw(t)` gives new ones.
    """
    models, chosen, draws, searching = list(models), {}, 1, share > 0
    for t in range(rounds):
        clients = box.cohort(t)
        chosen |= {i: box.choose(i, models, t) for i in clients}
        trained = {i: box.train(i, models[chosen[i]], t) for i in clients}
        won = [[i for i in clients if chosen[i] == j] for j in range(len(models))]
        if searching and min(map(len, won)) < share * len(clients) and draws <= tries:
            models, draws = draw(t), draws + 1
            continue
        searching = False
        models = [
            average(model, mine, trained, box.weight)
            for model, mine in zip(models, won, strict=True)
        ]
    return models, chosen, draws


def run_sharing(box: Clients, models, rounds, early, core):
    """The server's models and the last choice of every client, as for FEMNIST.

    `early` is (rounds of FedAvg, rounds on a random partition, the partition); `core` are the
    columns that all models share: those are averaged over all clients, the rest over the choosers.
    """
    (pretrain, scattered, partition), fresh = early, list(models)
    models, chosen = [shared(model, models[0], core) for model in models], {}
    for t in range(rounds):
        clients = box.cohort(t)
        offered = models[:1] if t < pretrain else models
        if t < pretrain:
            chosen |= dict.fromkeys(clients, 0)
        elif t < pretrain + scattered:
            chosen |= {i: partition[i] for i in clients}
        else:
            chosen |= {i: box.choose(i, models, t) for i in clients}
        trained = {i: box.train(i, offered[chosen[i]], t) for i in clients}
        everybody = average(models[0], clients, trained, box.weight)
        models = [
            average(model, [i for i in clients if chosen[i] == j], trained, box.weight)
            for j, model in enumerate(offered)
        ]
        models = [shared(model, everybody, core) for model in models]
        if t + 1 == pretrain:
            models = [shared(model, models[0], core) for model in fresh]
        models = models if len(models) == len(fresh) else models * len(fresh)
    return models, chosen


def shared(model, other, core):
    """The model with these columns of another."""
    model = model.clone()
    model[core] = other[core]
    return model


def average(model, clients, trained, weight):
    """The mean of what these clients trained; a model that nobody chose stays."""
    if not clients:
        return model
    return sum(weight(i) * trained[i] for i in clients) / sum(weight(i) for i in clients)
