"""FedSGD (McMahan et al., 2017); `gradient(k, params)` is that of client k over all its data."""


def run(params, rounds, gradient, cohort, samples, lr):
    """The server's model after all rounds."""
    for t in range(rounds):
        clients = cohort(t)
        total = sum(samples[k] for k in clients)
        params = params - lr * sum(samples[k] / total * gradient(k, params) for k in clients)
    return params
