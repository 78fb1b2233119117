"""Random peers, the baseline of DAC: pre-train, then average with a few random peers and train.

`peers(i, t)` are those that node i asks in round t, `size(i)` is its number of samples,
`train(i, params, t, stream)` its local training. In the thesis's order a round trains first.
"""


def run(params, rounds, train, peers, size, train_last=True):
    """The models after all rounds; `size` 1 for everybody gives the plain mean."""
    params = list(params)
    n = len(params)
    if train_last:
        params = [train(i, params[i], 0, "train before") for i in range(n)]
    for t in range(rounds):
        if not train_last:
            params = [train(i, params[i], t, "train") for i in range(n)]
        mixed = [weighted_mean(params, [i, *peers(i, t)], size) for i in range(n)]
        params = [train(i, mixed[i], t, "train") for i in range(n)] if train_last else mixed
    return params


def weighted_mean(params, who, size):
    """FedAvg among a few: sum of n_j w_j / sum of n_j."""
    return sum(size(j) * params[j] for j in who) / sum(size(j) for j in who)
