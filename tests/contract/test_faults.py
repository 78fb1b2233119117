"""Many peers on one machine: the run that was simulated, and what is left when some are struck."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from coterie import data
from tests.contract.command import begin, write
from tests.contract.company import LONG, Company, company, real
from tests.contract.test_peers import ALONE, lines, summary

pytestmark = pytest.mark.slow
MANY = tuple(range(16))
needs_fashion = pytest.mark.skipif(
    not any(entry.ready for entry in data.available() if entry.name == "fashion-mnist"),
    reason="fashion-mnist is not on this machine: coterie data get fashion-mnist",
)


def sixteen(**changes: Any) -> dict[str, Any]:
    """Sixteen nodes of lenet5 on Fashion-MNIST, two of them with their images upside down."""
    return real(
        **{
            "experiment__rounds": 30,
            "data": {
                "source": "fashion-mnist",
                "clusters": [
                    {"name": "upright", "nodes": 12},
                    {"name": "turned", "nodes": 4, "shifts": ["rotation"]},
                ],
            },
            "model": {"name": "lenet5"},
            "train": {"steps": 10, "lr": 0.1, "common_start": True},
            "algorithm": [{"name": "facade", "degree": 4, "warmup": 3}],
            "evaluate": {"every": 10, "samples": 500},
            **changes,
        }
    )


@needs_fashion
def test_sixteen_peers_are_the_run_that_was_simulated(coterie, here):
    file = write(here / "real.toml", sixteen())
    launch = begin("launch", file, "--peers", 16, "--out", "out", cwd=here)
    out, err = launch.communicate(timeout=4 * LONG)
    assert launch.returncode == 0, out + err
    assert coterie("run", file, "--out", "sim").code == 0
    wanted, got = summary(here / "sim"), summary(here / "out")
    assert got["bytes_per_node"] == wanted["bytes_per_node"] and got["missing"] == []
    assert wanted["accuracy_all"] > 50
    for cluster, accuracy in wanted["accuracy"].items():
        assert got["accuracy"][cluster] == pytest.approx(accuracy, abs=3.0)  # float32
    assert lines(here / "out", "choice")[0] == lines(here / "sim", "choice")[0]


@needs_fashion
def test_four_of_sixteen_are_killed_and_two_come_back(here):
    table = sixteen(evaluate={"every": 2, "samples": 100}, runtime__deadline=20.0)
    with company(here, table, 16) as peers:
        peers.start(*MANY)
        peers.until(lambda: peers.round(*MANY) >= 4, "four rounds")
        peers.strike(signal.SIGKILL, 12, 13, 14, 15)
        kept = {peer: peers.checkpoints(peer)[-1] for peer in (12, 13)}
        rest = MANY[:12]
        gone = peers.round(*rest)
        peers.until(lambda: peers.round(*rest) >= min(gone + 2, 30), "rounds of those left")
        peers.start(12, 13)
        assert peers.ends(*MANY[:14]) == [0] * 14, peers.told()
        for peer in MANY[:14]:
            assert peers.summary(peer)["rounds"] == 30
        for peer in (12, 13):
            back = peers.events(peer, "begins")[-1]
            assert back["state"] == kept[peer], "what was checkpointed is not lost"


def test_a_peer_that_sleeps_longer_than_the_deadline_wakes_up_and_catches_up(here):
    rest = (0, 1, 2)
    with company(here, real(experiment__rounds=100000, runtime__deadline=2.0), 4) as peers:
        peers.start(*rest, 3)
        peers.until(lambda: peers.round(*rest, 3) >= 3, "three rounds")
        peers.strike(signal.SIGSTOP, 3)
        asleep = peers.standing(3).round
        peers.until(lambda: peers.round(*rest) >= asleep + 5, "rounds without it")
        peers.until(lambda: all(peers.standing(p).alive == 3 for p in rest), "it is missed")
        peers.strike(signal.SIGCONT, 3)
        there = max(peers.standing(peer).round for peer in rest)
        peers.until(lambda: peers.round(*rest, 3) >= there + 3, "all of them together")
        peers.until(lambda: all(peers.standing(p).alive == 4 for p in rest), "it is heard")
        peers.strike(signal.SIGTERM, *rest, 3)
        assert peers.ends(*rest, 3) == [143] * 4


def test_a_launch_whose_peer_dies_reports_it_and_the_others_go_on(here):
    file = write(here / "real.toml", real(experiment__rounds=100000, runtime__deadline=2.0))
    peers = Company(here / "out" / "peers", file)  # looks at those of the launch, starts none
    launch = begin("launch", file, "--out", "out", cwd=here)
    try:
        peers.until(lambda: peers.round(0, 1, 2, 3) >= 3, "three rounds")
        os.kill(peers.events(1, "starts")[-1]["process"], signal.SIGKILL)
        peers.until(lambda: all(peers.standing(p).alive == 3 for p in (0, 2, 3)), "its absence")
        launch.send_signal(signal.SIGINT)
        out, err = launch.communicate(timeout=LONG)
    finally:
        launch.kill()
    assert launch.returncode == 130 and "lost: 1" in out, out + err
    assert summary(here / "out")["missing"] == [1] and summary(here / "out")["nodes"] == 3
    assert all(path.exists() for path in (here / "out" / "report.html", peers.folder(0)))


def test_peers_end_with_the_launch_that_started_them(here):
    file = write(here / "real.toml", real(experiment__rounds=100000))
    peers = Company(here / "out" / "peers", file)
    launch = begin("launch", file, "--out", "out", cwd=here)
    peers.until(lambda: peers.round(0, 1, 2, 3) >= 1, "a round")
    launch.kill()  # it can say nothing to them
    launch.communicate(timeout=LONG)
    states = ("stopped", "done")
    peers.until(lambda: all(peers.standing(p).state in states for p in range(4)), "their end")


ENDLESS = """
import time
from dataclasses import dataclass
from coterie import Algorithm, State


@dataclass(frozen=True)
class Endless(Algorithm):
    "Trains one round, and then for ever."

    def start(self, nodes):
        return State(nodes.initial_params())

    def round(self, t, state, nodes):
        if t == 1:
            time.sleep(3600)
        yield from ()
        return State(nodes.train(state.params, t))

    def personal(self, state, nodes):
        return state.params
"""


def test_a_peer_that_is_stopped_while_it_trains_ends_and_keeps_what_was_done(here):
    (here / "endless.py").write_text(ENDLESS)
    changes = {"algorithm": [{"name": "endless:Endless"}], "runtime__checkpoint_every": 9}
    table = real(**{**ALONE, **changes})
    with company(here, table, 1) as peers:
        peers.start(0)
        peers.until(lambda: peers.round(0) == 1, "the first round")
        peers.strike(signal.SIGTERM, 0)
        assert peers.ends(0) == [143]
        assert peers.checkpoints(0) == [0, 1]
        assert peers.standing(0).state == "stopped"
