"""An algorithm of one's own: found, called by its class, and its mistakes told at its line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.contract.command import refused, summary, tiny, write

MINE = '''
from dataclasses import dataclass
from coterie import Algorithm, Send, State, mix, regular

@dataclass(frozen=True)
class Mine(Algorithm):
    """Half own, half heard."""

    degree: int = 2  # neighbors

    def start(self, nodes):
        return State(nodes.initial_params())

    def round(self, t, state, nodes):
        params = nodes.train(state.params, t)
        inbox = yield Send({"params": params}, along=nodes.graph(regular(self.degree), t))
        return State((params + mix(params, inbox, "params")) / 2)

    def personal(self, state, nodes):
        return state.params
'''


def test_an_algorithm_of_ones_own_runs_and_resumes_by_its_import_path(coterie, here):
    (here / "mine_here.py").write_text(MINE)
    file = write(here / "tiny.toml", tiny(algorithm=[{"name": "mine_here:Mine"}]))
    assert coterie("run", file, "--out", "out").code == 0
    more = coterie("run", "--out", "out", "--resume", "--set", "experiment.rounds=9")
    assert more.code == 0 and "Mine 4:2" in more.out and "mine_here:" not in more.out
    assert summary(here / "out")["results"][0]["rounds"] == 9


def test_an_algorithm_in_a_file_is_called_by_its_class_in_tables_and_changes(coterie, here):
    (here / "mine_there.py").write_text(MINE)
    words = ["--set", "algorithm.Mine.degree=3", "--out", "out"]
    file = write(here / "tiny.toml", tiny())
    done = coterie("compare", file, "--algorithms", "./mine_there.py:Mine", *words)
    assert done.code == 0 and "Mine 4:2" in done.out, done
    assert "degree = 3" in (here / "out" / "config.toml").read_text()


def test_a_misspelt_method_of_ones_own_algorithm_is_named(coterie, here):
    (here / "mine_short.py").write_text(MINE.replace("def personal", "def persnal"))
    file = write(here / "tiny.toml", tiny(algorithm=[{"name": "mine_short:Mine"}]))
    outcome = coterie("run", file)
    assert outcome.code == 2 and "does not define personal" in outcome.err


SERVED = """
from dataclasses import dataclass
import torch
from coterie import Algorithm, Send, State
from coterie.algorithms.fedavg import FedAvg
from coterie.core import Listen

@dataclass(frozen=True)
class Stranger:
    degree: int = 2

@dataclass(frozen=True)
class Filled(FedAvg):
    how: torch.Tensor = None

@dataclass(frozen=True)
class Noting(FedAvg):
    def notes(self, state, server):
        return {"entropy": torch.zeros(7)}

@dataclass(frozen=True)
class Counting(FedAvg):
    def notes(self, state, server):
        return 3

@dataclass(frozen=True)
class Delivering(FedAvg):
    def deliver(self, server, state, nodes):
        return State(torch.zeros(3))

@dataclass(frozen=True)
class Misspelling(FedAvg):
    def round(self, t, state, nodes):
        inbox = yield Listen(self.down(t, nodes), expect={"params": nodes.no_params})
        rows = {"updat": inbox["params"][inbox.sender], "samples": nodes.samples.float()}
        yield Send(rows, along=self.up(t, nodes), sender=inbox.hearers)
        return state
"""


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Stranger", "is no Algorithm; write `class Stranger(Algorithm)`"),
        ("Filled", "has a field that no option can fill"),
        ("Noting", "`notes` of Noting: 'entropy' is a tensor with a row a replica, [1, k]"),
        ("Counting", "`notes` of Counting gives a dict of names and tensors, and here an int"),
        ("Delivering", "`personal` of Delivering gives a model a node"),
        ("Misspelling", "no rows 'update' were sent; those that were: samples, updat"),
    ],
)
def test_what_an_own_algorithm_gives_is_checked(coterie, here, name, told):
    (here / "served.py").write_text(SERVED)
    forget(here / "served.py")
    file = write(here / "tiny.toml", tiny(algorithm=[{"name": f"./served.py:{name}"}]))
    refused(coterie("run", file), told)


def test_a_mistake_in_ones_own_algorithm_is_one_message_and_once_mended_the_run_goes_on(
    coterie, here, monkeypatch
):
    wrong = MINE.replace(
        "        params = nodes.train(state.params, t)\n",
        "        params = nodes.train(state.params[:, : 5 if t == 1 else None], t)\n",
    )
    (here / "slip.py").write_text(wrong)
    file = write(here / "tiny.toml", tiny(algorithm=[{"name": "./slip.py:Mine"}]))
    line = 1 + wrong.splitlines().index(next(x for x in wrong.splitlines() if "5 if" in x))
    failed = coterie("run", file, "--out", "out")
    refused(failed, "RuntimeError", f"(slip.py, line {line}, in round)", "COTERIE_DEBUG=1")
    assert "coterie run --out out --resume" in failed.err
    monkeypatch.setenv("COTERIE_DEBUG", "1")
    asked = coterie("run", "--out", "out", "--resume")
    assert asked.code == 2 and "Traceback" in asked.err and "lockstep.py" in asked.err
    (here / "slip.py").write_text(MINE + "\n")
    forget(here / "slip.py")
    assert coterie("run", "--out", "out", "--resume").code == 0
    assert summary(here / "out")["results"][0]["rounds"] == 2


def forget(file: Path) -> None:
    """Let a file be read again, as a new process would."""
    for name in [name for name in sys.modules if name.endswith(file.name)]:
        del sys.modules[name]


def test_a_round_without_a_yield_is_told_that_it_needs_one(coterie, here):
    body = MINE[MINE.index("        params = nodes.train") : MINE.index("    def personal")]
    (here / "silent.py").write_text(MINE.replace(body, "        return state\n\n"))
    file = write(here / "tiny.toml", tiny(algorithm=[{"name": "silent.py:Mine"}]))
    refused(coterie("run", file, "--out", "out"), "generator", "returned a State", "yield Send")


def test_who_looks_at_the_true_clusters_is_told_so_at_the_own_line(coterie, here):
    (here / "cheat.py").write_text(MINE.replace("nodes.train(state.params, t)", "nodes.cluster"))
    file = write(here / "tiny.toml", tiny(algorithm=[{"name": "cheat.py:Mine"}]))
    refused(coterie("run", file, "--out", "out"), "oracle=True", "(cheat.py, line", "--resume")


CRAMPED = """
from dataclasses import dataclass
import torch
from coterie.algorithms.epidemic import EpidemicLearning

@dataclass(frozen=True)
class Cramped(EpidemicLearning):
    def round(self, t, state, nodes):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB. GPU 0 has")
        yield
"""


def test_a_gpu_without_room_is_one_message(coterie, here):
    (here / "cramped.py").write_text(CRAMPED)
    file = write(here / "tiny.toml", tiny(algorithm=[{"name": "./cramped.py:Cramped"}]))
    outcome = coterie("run", file)
    refused(outcome, "Tried to allocate 9 GiB. Leave the GPU to this run", "--resume")
