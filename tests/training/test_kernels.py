"""Every kernel against torch in float64, in Triton's interpreter: small shapes, odd sizes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = [
    "draws",
    "sums-of-heard-rows",
    "turned-images",
    "norm-relu-pool",
    "momentum-decay",
    "strides-odd-sizes-two-linear-layers",
    "adam",
    "cnn-of-ppdl",
    "head-only",
    "core-layer-only",
    "norm-before-a-max-pool-of-odd-sides",
    "norm-before-a-mean-pool-of-odd-sides",
    "mean-pools-without-norm",
    "regression",
    "reconstruction-by-a-linear-layer",
    "reconstruction-by-a-convolution",
    "engine-reconstructs-as-stacked",
    "engine-regresses-as-stacked",
    "steps-in-a-pass-of-their-own",
    "steps-apart-for-a-part",
    "corrections-and-springs",
    "different-rows-share-a-capture",
    "tf32-runs",
    "engine-agrees-with-stacked",
    "autoencoder",
    "engine-trains-an-autoencoder-as-stacked",
    "transposed-convolutions",
    "enlarged-images-and-means",
    "sigmoids-and-norms-of-padded-channels",
    "layers-in-any-order",
    "layers-without-bias",
    "parts-that-cut-a-layer",
    "weight-gradients-in-parts",
    "linear-layers-of-images-and-tables",
    "convolutions-of-any-module",
    "convolutions-that-kernels-cannot-do",
    "any-module-trains-and-is-scored",
    "branches-of-domains",
]


@pytest.fixture(scope="module")
def outcome() -> str:
    """The cases run in one process of their own: the interpreter is chosen before Triton loads."""
    pytest.importorskip("triton", reason="the kernels need the package triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", "tests.training.kernel_cases"]
    done = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_the_kernels_agree_with_a_plain_reference(name: str, outcome: str) -> None:
    assert f"ok {name}\n" in outcome, outcome
