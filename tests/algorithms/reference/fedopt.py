"""FedAdagrad, FedAdam, FedYogi (Reddi et al., 2021), Algorithm 2; weighted by samples.

`box` has the rule's name, lr (eta), beta1, beta2, tau and the initial v.
"""

import torch


def run(box, x, rounds, train, cohort, samples, trained):
    """The server's model, m and v after all rounds; columns not `trained` are averaged."""
    m, v = torch.zeros_like(x), torch.full_like(x, box.initial)
    for t in range(rounds):
        clients = cohort(t)
        total = sum(samples[i] for i in clients)
        if not total:  # nobody learned anything
            continue
        delta = sum(samples[i] / total * (train(i, x, t) - x) for i in clients)
        m = box.beta1 * m + (1 - box.beta1) * delta
        if box.rule == "adagrad":
            v = v + delta**2
        elif box.rule == "yogi":
            v = v - (1 - box.beta2) * delta**2 * torch.sign(v - delta**2)
        else:
            v = box.beta2 * v + (1 - box.beta2) * delta**2
        x = x + torch.where(trained, box.lr * m / (torch.sqrt(v) + box.tau), delta)
    return x, m, v
