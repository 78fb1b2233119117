"""Gossip learning (Hegedűs et al., 2021, Algorithm 1) in rounds: everybody sends, merges, trains.

`edges(t)` has one pair (sender, receiver) for every model sent in round t.
"""


def run(params, ages, rounds, train, edges, by_age=True):
    """Models and ages after all rounds."""
    params, ages = list(params), list(ages)
    for t in range(rounds):
        sent = list(zip(params, ages, strict=True))
        for i in range(len(sent)):
            received = [sent[j] for j, target in edges(t) if target == i]
            merged = merge([sent[i], *received], by_age)
            params[i] = train(i, merged, t)  # update
            ages[i] = max(age for _, age in [sent[i], *received]) + 1
    return params, ages


def merge(models, by_age):
    """The mean of models (w, t), each counted by its age t."""
    weights = [age if by_age else 1 for _, age in models]
    total = sum(weight * w for weight, (w, _) in zip(weights, models, strict=True))
    return total / sum(weights)
