"""Do all kernels compile for an H200, and how would they fill it? Needs no GPU.

    python benchmarks/compile_kernels.py [--rows 32 100 320] [--model lenet] [--time]

Plays one training step on the CPU with every launch replaced by a compilation for compute
capability 9.0, so that exactly what would be launched is compiled. Prints for each kernel its
tile sizes, programs, registers, shared memory, how many programs fit on a multiprocessor at
once, and waves: programs / (that x 132 multiprocessors). A kernel of 1.01 waves takes about as
long as one of 2. With --time, on a GPU, also the microseconds of each launch (mean of 20).
"""

from __future__ import annotations

import argparse
import math
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch
import triton
from torch import Tensor, nn
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from coterie.core.params import layout_of
from coterie.core.samples import Pool
from coterie.models import Shape, build_model
from coterie.training.chain import chain_of
from coterie.training.goals import goal_of
from coterie.training.network import Network
from coterie.training.objectives import Classification, Objective, Reconstruction, Regression
from coterie.training.optimizers import SGD, Adam, Optimizer

TARGET = GPUTarget("cuda", 90, 32)
SIDE = 65535  # programs along the second and third axis of a grid
MULTIPROCESSORS, REGISTERS, SHARED, WARPS, BLOCKS = 132, 65536, 227 << 10, 64, 32  # of an H200
TILES = ("BM", "BN", "BC", "BK", "BP", "SHARE", "BLOCK", "num_stages")
REPEAT = 20  # launches that are timed together
TYPES = {torch.float32: "fp32", torch.float64: "fp64", torch.int64: "i64", torch.uint8: "u8"}


@dataclass(frozen=True)
class Launch:
    """One kernel as it would run."""

    name: str
    tiles: str
    programs: int
    warps: int
    registers: int
    spills: int  # bytes
    shared: int  # bytes of shared memory

    @property
    def together(self) -> int:
        """How many programs fit on a multiprocessor."""
        by_registers = REGISTERS // (math.ceil(self.registers / 8) * 8 * 32 * self.warps)
        by_shared = SHARED // (self.shared + 1024)
        return max(1, min(by_registers, by_shared, WARPS // self.warps, BLOCKS))

    @property
    def waves(self) -> float:
        """How often the whole chip is filled."""
        return self.programs / (self.together * MULTIPROCESSORS)


@contextmanager
def compiling() -> Iterator[list[Launch]]:
    """Inside, launches are compiled and listed instead of run."""
    launches: list[Launch] = []
    known: dict[Any, tuple[int, int, int, int]] = {}

    def compile_only(kernel: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        assert max(grid[1:], default=0) <= SIDE, f"{_name(kernel)} cannot be launched: {grid}"
        given = dict(zip(kernel.arg_names, args, strict=False))
        given |= {name: options.pop(name) for name in kernel.arg_names if name in options}
        fixed = {p.name: given[p.name] for p in kernel.params if p.is_constexpr}
        signature = {
            name: "constexpr" if name in fixed else _type(value) for name, value in given.items()
        }
        key = (kernel, *signature.items(), *fixed.items(), *options.items(), *_aligned(given))
        if key not in known:
            known[key] = _compiled(ASTSource(kernel, signature, fixed, _aligned(given)), options)
        sizes = {**fixed, **options}
        tiles = " ".join(f"{k}{sizes[k]}" for k in TILES if k in sizes)
        launches.append(Launch(_name(kernel), tiles, math.prod(grid), *known[key]))

    with mock.patch.object(JITFunction, "run", compile_only):
        yield launches


@contextmanager
def timing() -> Iterator[list[float]]:
    """Inside, every launch is repeated and its microseconds are listed; it must be harmless."""
    times: list[float] = []
    run = JITFunction.run

    def timed(kernel: Any, *args: Any, **options: Any) -> None:
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        run(kernel, *args, **options)
        start.record()
        for _ in range(REPEAT):
            run(kernel, *args, **options)
        stop.record()
        torch.cuda.synchronize()
        times.append(1000 * start.elapsed_time(stop) / REPEAT)

    with mock.patch.object(JITFunction, "run", timed):
        yield times


def _name(kernel: Any) -> str:
    return f"{kernel.__module__.rsplit('.', 1)[1]}.{kernel.__name__.strip('_')}"


def _type(value: Any) -> str:
    if isinstance(value, Tensor):
        return "*" + TYPES[value.dtype]
    return "fp32" if isinstance(value, float) else "i32"


def _aligned(given: dict[str, Any]) -> dict[tuple[int, ...], list[list[Any]]]:
    """Arguments that a launch would find to be multiples of 16: all tensors, some numbers."""
    return {
        (place,): [["tt.divisibility", 16]]
        for place, value in enumerate(given.values())
        if isinstance(value, Tensor) or (type(value) is int and value % 16 == 0)
    }


def _compiled(source: ASTSource, options: dict[str, Any]) -> tuple[int, int, int, int]:
    """Warps, registers, spilled bytes and shared bytes of a kernel."""
    made = triton.compile(source, target=TARGET, options=options)
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(made.asm["ptx"])
        file.flush()
        tool = triton.knobs.nvidia.ptxas.path
        command = [tool, "-v", "--gpu-name", "sm_90a", file.name, "-o", "/dev/null"]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    used = re.search(r"Used (\d+) registers", said)
    spilled = re.findall(r"(\d+) bytes spill", said)
    assert used is not None, said
    registers, spills = int(used.group(1)), sum(map(int, spilled))
    return made.metadata.num_warps, registers, spills, made.metadata.shared


def make_network(
    module: nn.Module,
    shape: tuple[int, ...],
    rows: int,
    objective: Objective,
    optimizer: Optimizer,
    turned: bool = False,
    device: str = "cpu",
) -> Network:
    """A network that trains `rows` models on batches of 8, of `turned` images."""
    layout = layout_of(module)
    channels = shape[0]
    images = torch.zeros(1, *shape, dtype=torch.uint8 if len(shape) == 3 else torch.float32)
    targets = torch.zeros(1, dtype=torch.int64)
    if isinstance(objective, Regression):
        targets = module(torch.zeros(1, *shape)).detach()
    pool = Pool(images, targets, (0.5,) * channels, (0.5,) * channels)
    if turned:
        turns = torch.arange(shape[1] * shape[2]).flip(0)[None]
        pool = replace(pool, stored=targets, turn=targets, turns=turns)
    pool = pool.to(torch.device(device), torch.float32)
    chain = chain_of(module, shape, isinstance(objective, Reconstruction))
    network = Network(chain, layout, pool, (rows, 8), "tf32", goal_of(objective))
    network.allow_training({column.name for column in layout.columns}, optimizer)
    return network


def take_step(network: Network) -> None:
    """One training step at learning rate 0."""
    rates = torch.zeros(len(network.flat), device=network.flat.device)
    network.step(network.ids, rates, torch.ones((), device=rates.device))


def step(network: Network) -> list[Launch]:
    """The launches of one training step."""
    with compiling() as launches:
        take_step(network)
    return launches


def known_model(name: str, rows: int, device: str = "cpu") -> Network:
    """A registered model on the shapes of CIFAR-10; an autoencoder on MNIST's, with Adam."""
    if name == "autoencoder":
        module = build_model({"name": name, "unit": True}, Shape((1, 28, 28), 0))()
        return make_network(module, (1, 28, 28), rows, Reconstruction(), Adam(), device=device)
    shape = (3, 32, 32)
    module = build_model({"name": name}, Shape(shape, 10))()
    return make_network(module, shape, rows, Classification(), SGD(), device=device)


def print_table(model: str, rows: int, time: bool) -> None:
    """The launches of one step, a line each."""
    launches = step(known_model(model, rows))
    times = [math.nan] * len(launches)
    if time:
        network = known_model(model, rows, "cuda")
        with timing() as times:
            take_step(network)
    print(f"{rows} rows of {model}" + (f": {sum(times):.0f} us in kernels" if time else ""))
    print(f"{'kernel':<28}{'tiles':<36}{'programs':>9}{'warps':>6}{'regs':>6}{'spills':>7}", end="")
    print(f"{'KiB':>6}{'fit':>5}{'waves':>7}{'us':>8}")
    for one, us in zip(launches, times, strict=True):
        print(
            f"{one.name:<28}{one.tiles:<36}{one.programs:>9}{one.warps:>6}{one.registers:>6}"
            f"{one.spills:>7}{one.shared / 1024:>6.0f}{one.together:>5}{one.waves:>7.2f}{us:>8.1f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[32, 100, 320])
    parser.add_argument("--model", default="lenet")
    parser.add_argument("--time", action="store_true")
    options = parser.parse_args()
    for rows in options.rows:
        print_table(options.model, rows, options.time)


if __name__ == "__main__":
    main()
