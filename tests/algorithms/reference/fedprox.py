"""FedProx (Li et al., 2020), Algorithm 2 with partial work.

`solve(k, params, t, steps)` takes that many steps of gradient descent on
F_k(w) + mu/2 |w - params|^2; `late(k, t)` is None, or the steps that straggler k manages.
"""


def run(params, rounds, solve, late, cohort, samples, drop):
    """The server's model after all rounds; `drop` leaves stragglers out, as FedAvg does."""
    for t in range(rounds):
        clients = [k for k in cohort(t) if late(k, t) is None or not drop]
        if not clients:
            continue
        solved = {k: solve(k, params, t, late(k, t)) for k in clients}
        total = sum(samples[k] for k in clients)
        params = sum(samples[k] / total * solved[k] for k in clients)
    return params
