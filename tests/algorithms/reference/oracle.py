"""The oracle of DAC's authors: random peers, but only those of the own true cluster."""

from tests.algorithms.reference import random_peers


def run(params, rounds, train, words, cluster, degree, size, train_last=True):
    """`words(i, t)` has a random word for every peer; the lowest of the own cluster are asked."""

    def peers(i, t):
        mine = [j for j in range(len(cluster)) if j != i and cluster[j] == cluster[i]]
        return sorted(mine, key=lambda j: words(i, t)[j])[:degree]

    return random_peers.run(params, rounds, train, peers, size, train_last)
