"""With whom do the nodes of the FACADE thesis's DAC end up, given its own seeds?

    python benchmarks/thesis_peers.py

Its code draws the clusters with `random.Random(seed)` and seeds NumPy with `uid * seed` before
every draw of peers, so that its graphs can be replayed without training, as long as all models have
about the same loss: here 2.3, that of guessing among ten classes. That holds for the rounds in
which peers freeze. Influence is how many nodes' worth of the common average the minority is: where
everybody counts alike, its number of nodes. Prints a line of JSON for each ratio.
"""

from __future__ import annotations

import json
import random

import numpy as np

from coterie.algorithms.dac import DAC

RATIOS = ((16, 16), (24, 8), (30, 2), (12, 12), (18, 6), (20, 4))  # CIFAR-10, then Imagenette
SEEDS = (1122, 3344, 5566, 7788)
OTHERS = tuple(range(1, 33))  # seeds to compare with: is it luck?
DEGREE, ROUNDS, LOSS = 4, 100, 2.3


def main() -> None:
    """Replay every ratio with the thesis's seeds, and with others."""
    for ratio in RATIOS:
        thesis, others = (
            np.array([replayed(ratio, seed) for seed in seeds]) for seeds in (SEEDS, OTHERS)
        )
        line = {
            "ratio": f"{ratio[0]}:{ratio[1]}",
            "own peers of the minority %": thesis[:, 0].round(1).tolist(),
            "mean": round(float(thesis[:, 0].mean()), 1),
            "other seeds": round(float(others[:, 0].mean()), 1),
            "influence": thesis[:, 1].round(2).tolist(),
            "mean influence": round(float(thesis[:, 1].mean()), 2),
            "other seeds' influence": round(float(others[:, 1].mean()), 2),
            "spread": round(float(others[:, 1].std()), 2),
        }
        print(json.dumps(line), flush=True)


def replayed(ratio: tuple[int, int], seed: int) -> tuple[float, float]:
    """The share (%) of its own among the minority's peers, and the minority's influence."""
    cluster = [0] * ratio[0] + [1] * ratio[1]
    random.Random(seed).shuffle(cluster)
    minority = np.array(cluster) == 1
    peers = np.array([frozen(uid, sum(ratio), seed) for uid in range(sum(ratio))])
    mixing = np.eye(len(peers))
    np.put_along_axis(mixing, peers, 1, axis=1)
    mixing /= DEGREE + 1
    weights = np.linalg.matrix_power(mixing, 10_000)[0]  # of everybody's start in the average
    return 100 * minority[peers[minority]].mean(), weights[minority].sum() * len(peers)


def frozen(uid: int, nodes: int, seed: int) -> np.ndarray:
    """The peers [DEGREE] of a node after ROUNDS rounds."""
    others = np.delete(np.arange(nodes), uid)
    scores = np.zeros(nodes - 1)
    for t in range(ROUNDS):
        lead = DAC(tau=30.0).temperature(t - 1) * scores
        chances = np.exp(lead - lead.max())
        draw = np.random.RandomState(uid * seed)
        picked = draw.choice(nodes - 1, DEGREE, replace=False, p=chances / chances.sum())
        scores[picked] = 1 / LOSS
    return others[picked]


if __name__ == "__main__":
    main()
