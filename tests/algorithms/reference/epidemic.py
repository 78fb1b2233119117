"""Epidemic Learning (De Vos et al., 2023), Oracle and Local: they differ in their edges alone."""


def run(params, rounds, train, edges):
    """Train, send, average the own model with whatever arrived."""
    params = list(params)
    n = len(params)
    for t in range(rounds):
        trained = [train(i, params[i], t) for i in range(n)]
        for i in range(n):
            received = [trained[j] for j, target in edges(t) if target == i]
            params[i] = (trained[i] + sum(received)) / (1 + len(received))
    return params


def all_reduce(params):
    """After the last round: everybody takes the mean of all."""
    return [sum(params) / len(params) for _ in params]
