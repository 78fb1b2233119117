"""FedAvg (McMahan et al., 2017), Algorithm 1; `cohort(t)` is S_t, `samples[k]` is n_k."""


def run(params, rounds, train, cohort, samples):
    """The server's model after all rounds."""
    for t in range(rounds):
        clients = cohort(t)
        trained = {k: train(k, params, t) for k in clients}  # ClientUpdate(k, w_t)
        total = sum(samples[k] for k in clients)
        params = sum(samples[k] / total * trained[k] for k in clients)
    return params
