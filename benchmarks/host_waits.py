"""How often does the host wait for the GPU inside a round?

    python benchmarks/host_waits.py [--rounds 5] [--path auto|fused|stacked]

A few rounds of each algorithm on made data (16 nodes, LeNet), after some in which kernels are
compiled and graphs captured. PyTorch warns of every operation after which the host waits
(`torch.cuda.set_sync_debug_mode`); those inside rounds are counted and named. Exits with 1 where an
algorithm waits that must not. On a CPU there is nothing to wait for: rounds run, nothing is
measured.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter

import torch

from coterie.algorithms import (
    DAC,
    DPSGD,
    PENS,
    PPDL,
    DisPFL,
    EpidemicLearning,
    Facade,
    Oracle,
    RandomPeers,
)
from coterie.core import Algorithm, LocalWork, Nodes, Population
from coterie.core.samples import Pool, Samples
from coterie.models import Shape, build_model
from coterie.runtimes.lockstep import DirectExchange
from coterie.runtimes.simulate import Simulation
from coterie.training import TrainingSettings, make_engine, objectives, optimizers

NODES, BATCH, STEPS, OWNED, LR = 16, 8, 2, 24, 0.05
WARM = 3  # rounds before the count begins
SHAPE = Shape((3, 32, 32), 10)
SYNC = "called a synchronizing CUDA operation"
ALGORITHMS: dict[str, Algorithm] = {
    "epidemic": EpidemicLearning(4),
    "dpsgd": DPSGD(),
    "facade": Facade(degree=4, warmup=1, samples=16),
    "dac": DAC(4),
    "pens, first phase": PENS(4, 2, warmup=1000),
    "pens, second phase": PENS(4, 2, warmup=1),
    "random": RandomPeers(4),
    "oracle": Oracle(4),
    "ppdl": PPDL(group=2),
    "dispfl": DisPFL(4),
}
NEVER = ("epidemic", "dpsgd", "facade", "dac")


def make_samples(device: torch.device) -> Samples:
    """Random images; each node owns the next few."""
    generator = torch.Generator().manual_seed(0)
    size = NODES * OWNED
    images = torch.randint(0, 256, (size, *SHAPE.sample), dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, SHAPE.outputs, (size,), generator=generator)
    pool = Pool(images, labels, (0.5,) * 3, (0.5,) * 3).to(device, torch.float32)
    start = torch.arange(NODES, device=device) * OWNED
    return Samples(pool, torch.arange(size, device=device), start, torch.full_like(start, OWNED))


def make_simulation(algorithm: Algorithm, device: torch.device, path: str) -> Simulation:
    """A population before its first round."""
    settings = TrainingSettings(
        objectives.build("classification"),
        optimizers.build("sgd"),
        SHAPE.outputs,
        BATCH,
        device,
        torch.float32,
        precision="tf32" if device.type == "cuda" else "float32",
    )
    build = build_model({"name": "lenet"}, SHAPE)
    engine = make_engine(build, SHAPE.sample, settings, path=path)
    samples = make_samples(device)
    nodes = Nodes(
        population=Population(NODES, (1,), engine, LocalWork(BATCH, STEPS, None, LR)),
        key=torch.arange(NODES),
        train_data=samples,
        valid_data=samples,
        test_data=samples,
        lr=torch.full((NODES,), LR),
        clusters=torch.arange(NODES, device=device) % 2,
    )
    simulation = Simulation(algorithm, [nodes], DirectExchange(NODES))
    simulation.start()
    return simulation


def waits(algorithm: Algorithm, device: torch.device, path: str, rounds: int) -> Counter[str]:
    """Where the host waited, and how often, in `rounds` rounds after the first few."""
    simulation = make_simulation(algorithm, device, path)
    for t in range(WARM):
        simulation.round(t)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _debug(device, "warn")
        try:
            for t in range(WARM, WARM + rounds):
                simulation.round(t)
        finally:
            _debug(device, "default")
    assert int(simulation.exchange.sent.sum()) > 0  # read outside of rounds
    found = [warning for warning in caught if SYNC in str(warning.message)]
    return Counter(f"{warning.filename}:{warning.lineno}" for warning in found)


def _debug(device: torch.device, mode: str) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode(mode)


def noticed() -> bool:
    """Whether PyTorch tells of a wait at all: one that is sure to happen."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _debug(torch.device("cuda"), "warn")
        torch.ones(1, device="cuda").item()
        _debug(torch.device("cuda"), "default")
    return any(SYNC in str(warning.message) for warning in caught)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--path", default="auto")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        print("there is no GPU: nobody waits for one, so that nothing is measured here")
    elif not noticed():
        print("this PyTorch does not tell when the host waits: nothing can be measured")
        return 1
    found: dict[str, int] = {}
    for name, algorithm in ALGORITHMS.items():
        places = waits(algorithm, device, options.path, options.rounds)
        if device.type == "cpu":
            print(f"{name:<20} {options.rounds} rounds played")
            continue
        found[name] = places.total()
        print(f"{name:<20} waits {places.total() / options.rounds:6.1f} times a round")
        for place, count in places.most_common():
            print(f"{'':<20} {count / options.rounds:6.1f} at {place}")
    machine = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(json.dumps({"benchmark": "host_waits", "machine": machine, "waits": found}))
    return int(any(found.get(name) for name in NEVER))


if __name__ == "__main__":
    sys.exit(main())
