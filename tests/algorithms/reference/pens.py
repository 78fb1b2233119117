"""PENS (Onoszko et al., 2021), all nodes at once: average with the best of some random peers, then
gossip with those that were among the best more often than by chance.

`order(i, t)` is a random order of all nodes, `loss(i, params, t)` the loss of any model on node i's
train samples.
"""


def run(params, rounds, train, loss, order, degree, keep, warmup):
    """The models and how often node i kept j's model, after all rounds."""
    n = len(params)
    kept = [[0] * n for _ in range(n)]
    params = [train(i, params[i], 0, "train before") for i in range(n)]
    for t in range(rounds):
        mixed = []
        for i in range(n):
            others = [j for j in range(n) if j != i]
            if t >= warmup:
                expected = sum(kept[i]) / (n - 1)
                others = [j for j in others if kept[i][j] > expected] or others
            asked = [j for j in order(i, t) if j in others][:degree]
            if t < warmup:
                asked = sorted(asked, key=lambda j: (loss(i, params[j], t), j))[:keep]
                for j in asked:
                    kept[i][j] += 1
            models = [params[i], *(params[j] for j in asked)]
            mixed.append(sum(models) / len(models))
        params = [train(i, mixed[i], t, "train") for i in range(n)]
    return params, kept
