"""DePRL (Xiong et al., 2024), Algorithm 1, with W_ij = 1 / (d + 1) and several core steps allowed.

`steps(i, params, t, part)` returns node i's params after its local steps on that part alone: "head"
or "core"; the other columns are frozen.
"""

import torch


def run(cores, heads, rounds, steps, edges):
    """Cores and heads after all rounds."""
    cores, heads = list(cores), list(heads)
    n = len(cores)
    for t in range(rounds):
        half = []
        for i in range(n):
            at = len(cores[i])
            heads[i] = steps(i, torch.cat([cores[i], heads[i]]), t, "head")[at:]  # (a)
            half.append(steps(i, torch.cat([cores[i], heads[i]]), t, "core")[:at])  # (b)
        for i in range(n):
            received = [half[j] for j, target in edges(t) if target == i]
            cores[i] = (half[i] + sum(received)) / (1 + len(received))  # (c)
    return cores, heads
