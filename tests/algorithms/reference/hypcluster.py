"""HypCluster (Mansour et al., 2020), Algorithm 1: hypotheses weighted by their users' samples.

`lots[i]` is a random word of client i: with `pretrain` the hypotheses start as what the clients of
the lowest lots made of the first model in round 0.
"""

from tests.algorithms.reference.ifca import Clients, average


def run(box: Clients, models, rounds, lots, pretrain):
    """The hypotheses and the last choice of every client."""
    models, chosen = list(models), {}
    for t in range(rounds):
        clients = box.cohort(t)
        chosen |= {i: box.choose(i, models, t) for i in clients}
        trained = {i: box.train(i, models[chosen[i]], t) for i in clients}
        if t == 0 and pretrain:
            first = sorted(clients, key=lambda i: lots[i])[: len(models)]
            models = [trained[i] for i in first] + models[len(first) :]
            continue
        models = [
            average(model, [i for i in clients if chosen[i] == j], trained, box.weight)
            for j, model in enumerate(models)
        ]
    return models, chosen
