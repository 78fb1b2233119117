"""Which tile sizes are fastest for the convolution kernels? LeNet's layers at 32 and 1,024 rows.

    python benchmarks/tune_kernels.py [forward narrow input weight]

Prints the best few settings of each kernel; the chosen ones are in `TUNING` of
coterie/training/kernels/convolution.py.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable

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
    "forward": {"BM": [64, 128, 256], "num_warps": [4, 8], "num_stages": [2, 3, 4]},
    "narrow": {"BM": [64, 128, 256], "BK": [32, 64, 128], "num_warps": [4, 8], "num_stages": [2]},
    "input": {"BM": [64, 128, 256], "num_warps": [4, 8], "num_stages": [2, 3, 4]},
    "weight": {"BM": [32, 64, 128], "BK": [64, 128], "num_warps": [4, 8], "num_stages": [1, 2, 3]},
}


def work(kind: str, shape: conv.Geometry, rows: int) -> Callable[[], None]:
    def new(*size: int) -> torch.Tensor:
        return torch.randn(*size, device="cuda")

    x = new(rows, 8, shape.height, shape.width, shape.channels)
    w = new(rows, *shape.kernel, shape.channels, shape.filters)
    b, y = new(rows, shape.filters), new(rows, 8, *shape.out, shape.filters)
    if kind == "input":
        return lambda: conv.input_gradient(y, w, x, shape, "tf32")
    if kind == "weight":
        parts = conv.weight_parts(rows, 8, shape)
        dw, db = new(parts, *w.shape), new(parts, *b.shape)
        return lambda: conv.weight_gradient(x, y, dw, db, shape, "tf32")
    return lambda: conv.forward(x, w, b, y, shape, "tf32")


def measure(kind: str, layer: str, options: dict[str, int]) -> tuple[float, float]:
    """Microseconds at 32 and 1,024 rows."""
    conv.TUNING[kind] = options
    times = []
    for rows in (32, 1024):
        try:
            call = work(kind, LAYERS[layer], rows)
            times.append(1000 * triton.testing.do_bench_cudagraph(call, rep=20))
        except Exception:
            return (float("inf"), float("inf"))
    return times[0], times[1]


def main() -> None:
    for kind in sys.argv[1:] or list(USES):
        found: dict[str, list[tuple[float, float, dict[str, int]]]] = {n: [] for n in USES[kind]}
        for values in itertools.product(*CHOICES[kind].values()):
            options = dict(zip(CHOICES[kind], values, strict=True))
            for layer in USES[kind]:
                found[layer].append((*measure(kind, layer, options), options))
        for layer, rows in found.items():
            for few, many, options in sorted(rows, key=lambda row: row[1])[:4]:
                print(f"{kind:<8} {layer:<6} {few:8.1f} {many:9.1f} us  {options}", flush=True)


if __name__ == "__main__":
    main()
