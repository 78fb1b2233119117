"""FedRep (Collins et al., 2021), Algorithm 1, the core averaged by samples.

`train_head(i, core, head, t)` returns the new head, `train_core(i, core, head, t)` the new core.
"""


def run(core, heads, rounds, train_head, train_core, cohort, samples):
    """The server's core and all clients' heads after all rounds."""
    heads = list(heads)
    for t in range(rounds):
        clients, cores = cohort(t), {}
        for i in clients:
            heads[i] = train_head(i, core, heads[i], t)
            cores[i] = train_core(i, core, heads[i], t)
        total = sum(samples[i] for i in clients)
        core = sum(samples[i] / total * cores[i] for i in clients)
    return core, heads
