"""Benchmarks with a server still run, at their smallest; what they measure is nobody's gate."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from coterie.models import Shape
from coterie.training.chain import Convolution, Dense, Stage, chain_of

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module


def test_the_public_cifar10_benchmark_runs_small(script: Callable[[str], ModuleType]) -> None:
    options = argparse.Namespace(
        users=6, cohort=2, source="digits", algorithm="fedavg", precision="auto", device="cpu"
    )
    measured = script("pfl_cifar10").play(argparse.Namespace(**vars(options), seed=1), 2)
    assert measured["total"] > measured["rounds_alone"] and measured["server_bytes"] > 0


def test_the_network_of_that_benchmark_is_a_chain_for_the_kernels(
    script: Callable[[str], ModuleType],
) -> None:
    network = script("pfl_cifar10").build(Shape((3, 32, 32), 10))
    links = chain_of(network, (3, 32, 32))
    assert [type(link) for link in links if not isinstance(link, Stage)] == [
        *(Convolution, Convolution),
        *(Dense, Dense),
    ]
    assert sum(parameter.numel() for parameter in network.parameters()) == 1_626_442


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold"])
def test_many_clients_are_measured_small(
    algorithm: str, script: Callable[[str], ModuleType]
) -> None:
    options = argparse.Namespace(cohort=2, rounds=1, hidden=4, device="cpu")
    measured = script("many_clients").measure(20, algorithm, options)
    assert measured["clients"] == 20 and (measured["kept_mib"] > 0) == (algorithm == "scaffold")


def test_rounds_are_searched_for_waits_also_without_a_gpu(
    script: Callable[[str], ModuleType],
) -> None:
    search = script("host_waits")
    assert set(search.NEVER) <= set(search.ALGORITHMS)
    assert not search.waits(search.ALGORITHMS["dac"], torch.device("cpu"), "auto", 1)
