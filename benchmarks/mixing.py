"""How fast are the sums of heard rows on a GPU, beside gathering them first?

    python benchmarks/mixing.py [--rows 32 384 1024] [--columns 89834] [--degrees 4 16]

Adds up `degree` random rows for every row, with and without weights: by the kernel, and by the
gather and sum that every device can do. Medians by CUDA events, whole calls from Python. Prints
a table with the ratio and the share of the memory's peak, then JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable

import torch
from torch import Tensor

from coterie.core.edges import gather_slots
from coterie.core.slots_gpu import sum_slots_on_gpu

PEAK = 4.8e12  # bytes a second of an H200


def median(call: Callable[[], Tensor], repeat: int = 20) -> float:
    """Microseconds of one call."""
    times = []
    for _ in range(repeat + 3):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        stop.record()
        torch.cuda.synchronize()
        times.append(1000 * start.elapsed_time(stop))
    return statistics.median(times[3:])


def measure(count: int, columns: int, degree: int, weighted: bool) -> dict[str, float]:
    """Microseconds of both ways, and the share of the peak that the kernel reaches."""
    rows = torch.randn(count, columns, device="cuda")
    heard = torch.randint(0, count, (count, degree), device="cuda")
    table = torch.rand(count, degree, device="cuda") if weighted else None
    kernel = median(lambda: sum_slots_on_gpu(rows, heard, table))
    gather = median(lambda: gather_slots(rows, heard, table))
    moved = 4 * count * columns * (degree + 1)
    return {"kernel": kernel, "gather": gather, "peak": moved / (kernel * 1e-6) / PEAK}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[32, 384, 1024])
    parser.add_argument("--columns", type=int, default=89_834)
    parser.add_argument("--degrees", type=int, nargs="+", default=[4, 16])
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("this benchmark needs a GPU")
    print(f"{'rows':>6}{'degree':>8}{'weights':>9}{'gather us':>11}{'kernel us':>11}", end="")
    print(f"{'ratio':>7}{'of peak':>9}")
    measured = []
    for count in options.rows:
        for degree in options.degrees:
            for weighted in (False, True):
                one = measure(count, options.columns, degree, weighted)
                measured.append({"rows": count, "degree": degree, "weighted": weighted, **one})
                ratio = one["gather"] / one["kernel"]
                print(
                    f"{count:>6}{degree:>8}{weighted!s:>9}{one['gather']:>11.1f}"
                    f"{one['kernel']:>11.1f}{ratio:>7.2f}{one['peak']:>9.0%}",
                    flush=True,
                )
    machine = torch.cuda.get_device_name()
    print(json.dumps({"benchmark": "mixing", "machine": machine, "measured": measured}))


if __name__ == "__main__":
    main()
