"""Which tile sizes are fastest for the convolution kernels? LeNet's layers at 32 and 1,024 rows.

    python benchmarks/tune_kernels.py [forward narrow input weight] [--rows 32 1024]
        [--batch 8] [--scoring]

A batch is 8 images a row in training; an evaluation of 384 rows shows them 42 at a time, and
its weights lie filter by filter (`forward narrow --rows 384 --batch 42 --scoring`). Prints the
best few settings of each kernel, by the last number of rows; the chosen ones are in `TUNING` of
coterie/training/kernels/convolution.py.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
import triton

from coterie.training.kernels import convolution as conv

LAYERS = {
    "conv1": conv.Geometry(32, 32, 4, 32, (5, 5), 1, (2, 2)),
    "conv2": conv.Geometry(16, 16, 32, 32, (5, 5), 1, (2, 2)),
    "conv3": conv.Geometry(8, 8, 32, 64, (5, 5), 1, (2, 2)),
}
USES = {
    "forward": ["conv2", "conv3"],
    "narrow": ["conv1"],
    "input": ["conv2", "conv3"],
    "weight": ["conv1", "conv2", "conv3"],
}
CHOICES = {
    "forward": {"BM": [64, 128, 256, 512], "num_warps": [4, 8], "num_stages": [1, 2, 3, 4]},
    "narrow": {
        "BM": [64, 128, 256, 512],
        "BK": [32, 64, 128],
        "num_warps": [4, 8],
        "num_stages": [2],
    },
    "input": {"BM": [64, 128, 256], "num_warps": [4, 8], "num_stages": [2, 3, 4]},
    "weight": {"BM": [32, 64, 128], "BK": [64, 128], "num_warps": [4, 8], "num_stages": [1, 2, 3]},
}


@dataclass(frozen=True)
class Images:
    """How a row is shown its images."""

    batch: int  # at a time
    scoring: bool  # weights lie as in evaluations


def work(kind: str, shape: conv.Geometry, rows: int, by: Images) -> Callable[[], None]:
    def new(*size: int) -> torch.Tensor:
        return torch.randn(*size, device="cuda")

    batch = by.batch
    x = new(rows, batch, shape.height, shape.width, shape.channels)
    w = new(rows, *shape.kernel, shape.channels, shape.filters)
    b, y = new(rows, shape.filters), new(rows, batch, *shape.out, shape.filters)
    if kind == "input":
        return lambda: conv.input_gradient(y, w, None, x, shape, "tf32")
    if kind == "weight":
        parts = conv.weight_parts(rows, batch, shape)
        dw, db = new(parts, *w.shape), new(parts, *b.shape)
        return lambda: conv.weight_gradient(x, y, (dw, db), shape, "tf32")
    if by.scoring:
        w = w.permute(0, 4, 1, 2, 3).contiguous().permute(0, 2, 3, 4, 1)
    return lambda: conv.forward(x, w, b, y, shape, "tf32")


def measure(
    kind: str, layer: str, options: dict[str, int], counts: list[int], by: Images
) -> list[float]:
    """Microseconds at each number of rows."""
    conv.TUNING[kind] = options
    times = []
    for rows in counts:
        try:
            call = work(kind, LAYERS[layer], rows, by)
            times.append(1000 * triton.testing.do_bench_cudagraph(call, rep=20))
        except Exception:
            times.append(float("inf"))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=list(USES))
    parser.add_argument("--rows", type=int, nargs="+", default=[32, 1024])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--scoring", action="store_true")
    asked = parser.parse_args()
    by = Images(asked.batch, asked.scoring)
    todo = [(kind, layer) for kind in asked.kinds for layer in USES[kind]]
    for kind, layer in todo:
        found = []
        for values in itertools.product(*CHOICES[kind].values()):
            options = dict(zip(CHOICES[kind], values, strict=True))
            found.append((measure(kind, layer, options, asked.rows, by), options))
        for times, options in sorted(found, key=lambda one: one[0][-1])[:4]:
            shown = " ".join(f"{us:9.1f}" for us in times)
            print(f"{kind:<8} {layer:<6} {shown} us  {options}", flush=True)


if __name__ == "__main__":
    main()
