"""Do 10,000 clients with a cohort of 50 cost what 50 clients cost?

    python benchmarks/many_clients.py [--clients 50 1000 10000] [--algorithms fedavg scaffold]

Made data, ten samples a client; an MLP; 50 clients a round, one local epoch. Prints for each
algorithm and number of clients the milliseconds of a round and of an evaluation of all clients,
the memory of what clients keep between rounds (SCAFFOLD: a model's worth for each that took
part) and where it lies, and one line of JSON. States that could outgrow a quarter of a GPU's free
memory lie in the host's: `--host` keeps all of them there.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any

import torch

from coterie import config
from coterie.core.judging import Judge
from coterie.part import make_simulation
from coterie.run import make_parts, prepare
from coterie.runtimes import kept
from coterie.runtimes.ahead import drawing_ahead
from coterie.runtimes.simulate import FederatedSimulation

OWNED = 10  # samples a client
WARM = 3  # rounds before the clock starts


def table(clients: int, algorithm: str, options: argparse.Namespace) -> dict[str, Any]:
    """A run of so many clients as a configuration."""
    samples = clients * OWNED * 5 // 4  # a fifth is for tests
    return {
        "experiment": {"name": "many-clients", "seeds": [1], "rounds": WARM + options.rounds},
        "data": {
            "source": {"name": "synthetic", "samples": samples},
            "clusters": [{"name": "all", "nodes": clients}],
            "holdout": 0.0,
        },
        "model": {"name": "mlp", "hidden": [options.hidden]},
        "train": {"epochs": 1, "batch": OWNED // 2},
        "algorithm": [{"name": algorithm, "clients": options.cohort}],
        "evaluate": {"samples": 1000},
    }


def measure(clients: int, algorithm: str, options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of a round and of an evaluation, and what the clients keep."""
    setup = prepare(config.parse(table(clients, algorithm, options)), options.device)
    (part,) = make_parts(setup)
    simulation = make_simulation(setup.config, part)
    assert isinstance(simulation, FederatedSimulation)
    simulation.start()
    with drawing_ahead(part.nodes.population, WARM + options.rounds):
        for t in range(WARM):
            simulation.round(t)
        started = now(setup.device)
        for t in range(WARM, WARM + options.rounds):
            simulation.round(t)
        played = (now(setup.device) - started) / options.rounds
    judge, started = Judge(part.nodes.population.engine), now(setup.device)
    for nodes, models in simulation.personal():
        nodes.test(models, judge)
    judged = now(setup.device) - started
    slots = list(simulation.kept[0].slots.values())
    return {
        "clients": clients,
        "algorithm": algorithm,
        "round_ms": 1000 * played,
        "evaluation_ms": 1000 * judged,
        "kept_mib": sum(rows.nbytes for rows in slots) / 2**20,
        "kept_on": slots[0].device.type if slots else "",
    }


def now(device: torch.device) -> float:
    """The time, once a GPU has done all that it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[50, 1000, 10000])
    parser.add_argument("--algorithms", nargs="+", default=["fedavg", "scaffold", "ifca"])
    parser.add_argument("--cohort", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--hidden", type=int, default=500)
    parser.add_argument("--host", action="store_true")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    if options.host:
        kept.GPU_SHARE = 0.0
    print(f"{'algorithm':<12}{'clients':>8}{'ms a round':>12}{'ms to test':>12}{'MiB kept':>10}")
    rows = []
    for algorithm in options.algorithms:
        for clients in options.clients:
            row = measure(clients, algorithm, options)
            rows.append(row)
            print(
                f"{algorithm:<12}{clients:>8}{row['round_ms']:>12.2f}{row['evaluation_ms']:>12.1f}"
                f"{row['kept_mib']:>10.1f} {row['kept_on']}",
                flush=True,
            )
    on_gpu = torch.cuda.is_available() and options.device != "cpu"
    machine = torch.cuda.get_device_name() if on_gpu else f"{os.cpu_count()} CPU cores"
    print(json.dumps({"benchmark": "many_clients", "machine": machine, "rows": rows}))


if __name__ == "__main__":
    main()
