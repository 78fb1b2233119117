"""How often is a face of CelebA judged right by its domain alone, without looking at it?

    COTERIE_DATA=... python benchmarks/told_domains.py

FedCG's Table 3 tells every model in which of 32 domains a face is, by five of its attributes. Each
domain answers here as most of its faces of the celebrities that train; tests are on the others, as
in that experiment. Prints a line of JSON.
"""

from __future__ import annotations

import json

import numpy as np

from coterie.data.celeba import CelebA

DOMAINS = 32


def main() -> None:
    """Count on the train faces, judge the test faces."""
    faces = CelebA(size=64, split="user", domains=True).load()
    told = [np.asarray(part.inputs[:, -1, 0, 0]) for part in (faces.train, faces.test)]
    smiles = [np.asarray(part.targets) for part in (faces.train, faces.test)]
    counts = np.zeros((DOMAINS, 2))
    np.add.at(counts, (told[0], smiles[0]), 1)
    right = counts.argmax(1)[told[1]] == smiles[1]
    often = np.bincount(smiles[0]).argmax() == smiles[1]
    print(
        json.dumps(
            {
                "benchmark": "told_domains",
                "faces": [len(part) for part in smiles],
                "accuracy": round(100 * float(right.mean()), 2),
                "without_domain": round(100 * float(often.mean()), 2),
            }
        )
    )


if __name__ == "__main__":
    main()
