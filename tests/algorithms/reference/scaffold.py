"""SCAFFOLD (Karimireddy et al., 2020), Algorithm 1 with option II.

`steps(i, x, t, correction)` returns y_i after K steps y <- y - eta_l (g_i(y) + correction), and
`k_eta(i)` is K eta_l; `trained` marks the columns that have a gradient.
"""

import torch


def run(x, n, rounds, steps, cohort, k_eta, trained, server_lr=1.0):
    """Server's model and control, and the controls of all clients, after all rounds."""
    c = torch.zeros_like(x)
    own = [torch.zeros_like(x) for _ in range(n)]
    for t in range(rounds):
        dx, dc = [], []
        for i in cohort(t):  # line 5
            y = steps(i, x, t, c - own[i])  # lines 7-11
            new = torch.where(trained, own[i] - c + (x - y) / k_eta(i), 0)  # line 12, option II
            dx.append(y - x)
            dc.append(new - own[i])  # line 13
            own[i] = new  # line 14
        share = len(dx) / n
        x = x + server_lr * sum(dx) / len(dx)  # line 17
        c = c + share * sum(dc) / len(dc)
    return x, c, own
