"""Decentralised FedAvg: everybody averages everybody, by samples."""


def run(params, rounds, train, size):
    """Train, send to all, average all by their samples."""
    params = list(params)
    n = len(params)
    for t in range(rounds):
        trained = [train(i, params[i], t) for i in range(n)]
        total = sum(size(i) for i in range(n))
        mean = sum(size(i) * trained[i] for i in range(n)) / total
        params = [mean for _ in range(n)]
    return params
