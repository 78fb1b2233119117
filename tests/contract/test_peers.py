"""Real peers as a user meets them: what they print, write, refuse and survive."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch

from coterie.links import keys
from coterie.links.ports import reserved_ports
from tests.contract.command import begin, refused, write
from tests.contract.company import LONG, company, listed, real
from tests.links.mosquitto import mosquitto, needs_mosquitto

ALONE = {
    "data__clusters": [{"name": "all", "nodes": 1}],
    "algorithm": [{"name": "local"}],
    "experiment__rounds": 2,
}
FEDERATED = {"algorithm": [{"name": "fedavg"}]}


def summary(folder: Path) -> dict[str, Any]:
    (result,) = json.loads((folder / "summary.json").read_text())["results"]
    found: dict[str, Any] = result
    return found


BAD_TABLES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "no peers": ({"peers": []}, ("no [[peers]]", "coterie launch")),
    "too few peers": (
        {"peers": [{"id": 0, "address": "127.0.0.1:9"}]},
        ("4 nodes (3:1)", "0 to 3", "got 0"),
    ),
    "an id twice": (
        {"peers": [{"id": 0, "address": "127.0.0.1:9"}] * 2},
        ("two peers have the id 0",),
    ),
    "no server in the list": (FEDERATED, ("the server (id = -1)", "0 to 3")),
    "several algorithms": (
        {"algorithm": [{"name": "local"}, {"name": "epidemic"}]},
        ("one algorithm", "local, epidemic", "--algorithm local"),
    ),
    "several ratios": (
        {"data__ratios": ["3:1", "2:2"]},
        ("one population", "3:1, 2:2", "--set"),
    ),
    "nodes that do not train": (
        {"evaluate__unseen_clients": 0.25},
        ("evaluate.unseen_clients", "all take part", "0.25"),
    ),
    "tests on samples of others": (
        {"evaluate__everywhere": True},
        ("evaluate.everywhere", "test samples of others"),
    ),
    "a stop at a target": (
        {"evaluate__stop": True, "evaluate__target": 50.0},
        ("evaluate.stop", "accuracy of all"),
    ),
    "heads picked by tests": (
        {"evaluate__by_tests": True},
        ("evaluate.by_tests", "train samples"),
    ),
    "an unknown link": ({"runtime__link": "grcp"}, ("runtime.link", "'grpc'", "'grcp'")),
    "a link within a process": ({"runtime__link": "memory"}, ("'memory'", "'grpc' or 'mqtt'")),
    "no broker": ({"runtime__link": "mqtt"}, ("broker", "runtime.broker.url")),
    "a bad broker": (
        {"runtime__link": "mqtt", "runtime__broker": {"url": "broker:1883"}},
        ("mqtts://user@host:port",),
    ),
    "no deadline": ({"runtime__deadline": 0}, ("runtime.deadline", "greater than 0")),
    "an unknown key of a peer": (
        {"peers": [{"id": 0, "adress": "127.0.0.1:9"}]},
        ("adress", "did you mean", "address"),
    ),
    "an address of another machine": (
        {"peers": [{"id": peer, "address": f"192.0.2.{peer}:7000"} for peer in range(4)]},
        ("no keys", "192.0.2.0:7000", "coterie keys new"),
    ),
    "an unknown algorithm": ({"algorithm": [{"name": "facad"}]}, ("did you mean 'facade'?",)),
}


@pytest.mark.parametrize("kind", BAD_TABLES)
def test_a_bad_configuration_is_refused_before_anything_is_opened(kind, coterie, here):
    changes, words = BAD_TABLES[kind]
    table = real(**{"peers": listed([7000, 7001, 7002, 7003]), **changes})
    outcome = coterie("peer", write(here / "bad.toml", table), "--id", 0, "--out", "out")
    refused(outcome, *words)
    assert not (here / "out").exists()


@pytest.mark.parametrize(
    "words, said",
    [
        (["--id", "9"], ["no peer 9", "0, 1, 2, 3"]),
        ([], ["--id N, or --server"]),
        (["--id", "1", "--server"], ["--id N, or --server"]),
        (["--server"], ["needs no server"]),
        (["--id", "0", "--algorithm", "epidemic"], ["unknown algorithm 'epidemic'", "facade"]),
        (["--id", "0", "--resume"], ["no run to resume"]),
        (["--id", "0", "--metrics", "everywhere"], ["host:port", "'everywhere'"]),
    ],
    ids=str,
)
def test_bad_words_are_refused(words, said, coterie, here):
    file = write(here / "peers.toml", real(peers=listed([7000, 7001, 7002, 7003])))
    refused(coterie("peer", file, *words), *said)


def secured(here: Path) -> dict[str, Any]:
    return real(peers=listed([7000, 7001, 7002, 7003], here / "keys"))


def test_a_peer_without_its_key_is_refused(coterie, here):
    file = write(here / "peers.toml", secured(here))
    (here / "keys" / "peer2.key").unlink()
    refused(coterie("peer", file, "--id", 2), "fingerprint", "peer 2", "coterie keys new")
    words = ("--set", "runtime.keys=elsewhere")
    refused(coterie("peer", file, "--id", 1, *words), "elsewhere", "coterie keys new")


def test_a_wrong_fingerprint_is_refused(coterie, here):
    table = secured(here)
    table["peers"][1]["fingerprint"] = keys.make("other").fingerprint
    refused(coterie("peer", write(here / "peers.toml", table), "--id", 0), "peer 1", "fingerprint")


def test_some_peers_without_a_fingerprint_are_refused(coterie, here):
    table = secured(here)
    del table["peers"][3]["fingerprint"], table["peers"][3]["certificate"]
    refused(
        coterie("peer", write(here / "p.toml", table), "--id", 0), "without a fingerprint", "3;"
    )


def test_an_address_in_use_is_refused(coterie, here):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file = write(here / "one.toml", real(**ALONE, peers=listed([port])))
        refused(coterie("peer", file, "--id", 0, "--out", "a"), "cannot listen", str(port))
        with reserved_ports(1) as ports:
            file = write(here / "one.toml", real(**ALONE, peers=listed(ports)))
            words = ("--id", 0, "--out", "b", "--metrics", port)
            refused(coterie("peer", file, *words), "metrics", str(port))


def test_a_lone_peer_leaves_a_run_folder_and_does_not_run_twice(coterie, here):
    with reserved_ports(1) as ports:
        file = write(here / "one.toml", real(**ALONE, peers=listed(ports)))
        outcome = coterie("peer", file, "--id", 0)
        assert outcome.code == 0, outcome
        assert "no keys" in outcome.out and "round 2/2 accuracy" in outcome.out
        assert "done: 2 rounds, " in outcome.out and "models/node-0.safetensors" in outcome.out
        folder = here / "runs" / "real-peer-0"
        wanted = {"config.toml", "records.jsonl", "summary.json", "environment.json", "log.jsonl"}
        assert wanted <= {path.name for path in folder.iterdir()}
        assert summary(folder)["nodes"] == 1 and summary(folder)["rounds"] == 2
        model = safetensors.torch.load_file(folder / "models" / "node-0.safetensors")
        assert model and all(tensor.isfinite().all() for tensor in model.values())
        assert "come to its end" in coterie("peer", file, "--id", 0, "--resume").out
        words = ("--set", "experiment.rounds=4", "--set", "evaluate.every=2")
        longer = coterie("peer", file, "--id", 0, *words)
        assert longer.code == 0 and "goes on at round 3" in longer.out, longer
        assert "round 3/4 peers" in longer.out and "round 4/4 accuracy" in longer.out
        assert summary(folder)["rounds"] == 4
        assert coterie("report", folder).code == 0
        assert "0 done 4/4" in coterie("status", folder).out
        other = coterie("peer", file, "--id", 0, "--set", "train.lr=0.5", "--out", folder)
        refused(other, "another run", "--out")


def test_a_peer_is_as_good_in_its_copied_configuration(coterie, here):
    with reserved_ports(1) as ports:
        table = real(**ALONE, peers=listed(ports, here / "keys"))
        file = write(here / "one.toml", table)
        assert coterie("peer", file, "--id", 0, "--out", "a").code == 0
        again = coterie("peer", here / "a" / "config.toml", "--id", 0, "--out", "b")
        assert again.code == 0 and "mutual TLS" in again.out, again
        assert summary(here / "a")["accuracy"] == summary(here / "b")["accuracy"]


def test_a_dry_run_says_exactly_what_would_leave(coterie, here):
    file = write(here / "peers.toml", real(peers=listed([7000, 7001, 7002, 7003])))
    outcome = coterie("peer", file, "--id", 1, "--dry-run")
    assert outcome.code == 0, outcome
    for word in ("core float64[1, 24]", "head float64[1, 15]", "choice int64[1]", "to "):
        assert word in outcome.out
    table = real(peers=listed([7000, 7001, 7002, 7003]), runtime={"path": "loop"})
    assert coterie("run", write(here / "sim.toml", table), "--out", "sim").code == 0
    per_round = summary(here / "sim")["bytes_per_node"] / 3
    assert f"2 messages and {per_round:.0f} bytes a round, to 2 peers" in outcome.out
    assert not (here / "runs").exists()


def test_a_dry_run_of_client_and_server_names_both_ways(coterie, here):
    table = real(peers=listed([7000, 7001, 7002, 7003, 7004], server=True), **FEDERATED)
    file = write(here / "peers.toml", table)
    client = coterie("peer", file, "--id", 2, "--dry-run").out
    assert "float64[1, 39]" in client and "to the server" in client
    server = coterie("peer", file, "--server", "--dry-run").out
    assert "to 0, 1, 2, 3" in server and "at an evaluation" in server


OWN = """
import numpy as np
from torch import nn

def build(shape):
    module = nn.Sequential(nn.Linear(*shape.sample, 4), nn.Linear(4, shape.outputs))
    module.head = ("1",)
    return module

def load(site):
    x = np.random.default_rng(int(site)).normal(size=(60, 3))
    y = (x[:, 0] > 0).astype(int) + 0 * int(site)
    return x[10:], y[10:], x[:10], y[:10]
"""


def own(here: Path, **more: Any) -> dict[str, Any]:
    (here / "mine").mkdir(exist_ok=True)
    (here / "mine" / "parts.py").write_text(OWN)
    source = {"name": "mine/parts.py:load", "site": "{node}"}
    data = {"source": source, "own": True, "classes": 3, **more}
    return real(data=data, model={"name": "mine/parts.py:build"})


def test_samples_of_ones_own_need_no_dealing(coterie, here):
    table = {**own(here), "peers": listed([7000, 7001])}
    table["algorithm"] = [{"name": "epidemic", "degree": 1}]
    file = write(here / "own.toml", table)
    outcome = coterie("peer", file, "--id", 1, "--dry-run")
    assert outcome.code == 0 and "params float64[1, 31]" in outcome.out, outcome
    refused(coterie("run", file), "data.own", "coterie launch")


def test_own_samples_that_are_not_there_are_named(coterie, here):
    table = {**own(here, source="site-{node}.npz"), "peers": listed([7000, 7001])}
    table["algorithm"] = [{"name": "epidemic", "degree": 1}]
    refused(coterie("peer", write(here / "o.toml", table), "--id", 1), "site-1.npz", "data.source")


def test_own_labels_beyond_the_classes_are_refused(coterie, here):
    arrays = {f"x_{part}": np.zeros((4, 3)) for part in ("train", "test")}
    arrays |= {f"y_{part}": np.arange(4) for part in ("train", "test")}
    np.savez(here / "site-0.npz", **arrays)
    table = {**own(here, source="site-{node}.npz"), "peers": listed([7000])}
    table["algorithm"] = [{"name": "local"}]
    refused(coterie("peer", write(here / "o.toml", table), "--id", 0), "0..2", "0..3")


def test_a_server_without_samples_must_be_told_their_shape(coterie, here):
    table = {**own(here), "peers": listed([7000, 7001], server=True), **FEDERATED}
    refused(coterie("peer", write(here / "o.toml", table), "--server"), "data.shape", "[columns]")
    table["data"]["shape"] = [3]
    outcome = coterie("peer", write(here / "o.toml", table), "--server", "--dry-run")
    assert outcome.code == 0 and "params float64[1, 31]" in outcome.out, outcome


@pytest.mark.slow
def test_clients_with_samples_of_their_own_and_a_server_without(here):
    table = {**own(here, shape=[3]), **FEDERATED}
    table["peers"] = [{"id": peer, "cluster": name} for peer, name in enumerate("abab")]
    launch = begin("launch", write(here / "own.toml", table), "--out", "out", cwd=here)
    out, err = launch.communicate(timeout=LONG)
    assert launch.returncode == 0, out + err
    result = summary(here / "out")
    assert set(result["accuracy"]) == {"a", "b"} and result["scenario"] == "2:2"
    assert result["server_bytes"] > 0 and result["nodes"] == 4


@pytest.mark.parametrize(
    "words, said",
    [
        (["--peers", "5"], ["4 nodes (3:1)", "--peers must be 4, got 5", "data.clusters.plain"]),
        (["--link", "carrier-pigeon"], ["runtime.link", "'carrier-pigeon'"]),
        (["--algorithm", "facde"], ["unknown algorithm 'facde'", "did you mean 'facade'?"]),
        (["--resume"], ["--resume needs --out"]),
        (["--resume", "--out", "none"], ["no launch to resume in 'none'"]),
        (["--out", "."], ["'.' is not empty", "--resume"]),
    ],
    ids=str,
)
def test_a_bad_launch_starts_nothing(words, said, coterie, here):
    refused(coterie("launch", write(here / "real.toml", real()), *words), *said)
    assert [path.name for path in here.iterdir()] == ["real.toml"]


@pytest.mark.slow
def test_what_a_peer_refuses_ends_the_launch(here):
    file = write(here / "real.toml", real(model={"name": "nowhere.py:build"}))
    launch = begin("launch", file, "--out", "out", cwd=here)
    out, err = launch.communicate(timeout=LONG)
    assert launch.returncode == 2, out + err
    assert "nowhere.py:build" in err and "Traceback" not in err


@pytest.mark.parametrize("place", ["nothing-here", ".", "127.0.0.1:99999"], ids=str)
def test_status_of_nobody_is_refused(place, coterie, here):
    refused(coterie("status", place))


def test_status_shows_who_cannot_be_reached(coterie, here):
    with reserved_ports(1) as ports:  # nobody listens there
        address = f"127.0.0.1:{ports[0]}"
        assert "unreachable" in coterie("status", address).out
        table = real(peers=[{"id": 3, "metrics": address}])
        outcome = coterie("status", write(here / "peers.toml", table))
        assert outcome.code == 0 and "3 unreachable" in outcome.out


def same_as_simulated(coterie: Any, here: Path, file: Path, out: Path) -> None:
    """A launch has the results of the simulation, to the last byte."""
    assert coterie("run", file, "--out", here / "sim").code == 0
    wanted, got = summary(here / "sim"), summary(out)
    assert got.pop("missing") == []
    assert got.pop("consensus_distance") is None  # nobody has the models of all
    wanted.pop("consensus_distance"), wanted.pop("train_seconds"), got.pop("train_seconds")
    assert got["bytes_per_node"] == wanted["bytes_per_node"]
    assert got["accuracy"] == pytest.approx(wanted["accuracy"], abs=1e-6)
    assert {k: v for k, v in got.items() if not isinstance(v, float | dict)} == {
        k: v for k, v in wanted.items() if not isinstance(v, float | dict)
    }
    for kind in ("choice", "population"):
        assert lines(out, kind) == lines(here / "sim", kind)
    assert (out / "report.html").stat().st_size > 1000
    models = sorted(path.relative_to(out) for path in out.glob("models/**/*.safetensors"))
    assert models == sorted(p.relative_to(here / "sim") for p in here.glob("sim/models/**/*.saf*"))


def lines(folder: Path, kind: str) -> list[dict[str, Any]]:
    found = map(json.loads, (folder / "records.jsonl").read_text().splitlines())
    return [record for record in found if record["kind"] == kind]


def test_a_launch_over_grpc_is_the_run_that_was_simulated(coterie, here):
    file = write(here / "real.toml", real())
    launch = begin("launch", file, "--peers", 4, "--out", "out", cwd=here)
    out, err = launch.communicate(timeout=LONG)
    assert launch.returncode == 0, out + err
    assert "round 3/3 peers 4/4" in " ".join(out.split()) and "report: out/report.html" in out
    same_as_simulated(coterie, here, file, here / "out")
    assert "3 done 3/3" in coterie("status", "out").out
    again = begin("launch", "--out", "out", "--resume", cwd=here)  # without the file
    out, err = again.communicate(timeout=LONG)
    assert again.returncode == 0, out + err
    assert summary(here / "out")["rounds"] == 3


@needs_mosquitto
def test_a_launch_over_mqtt_is_the_run_that_was_simulated(coterie, here):
    file = write(here / "real.toml", real())
    with mosquitto(here) as broker:
        where = f"mqtt://127.0.0.1:{broker.port}"
        words = ("--link", "mqtt", "--broker", where, "--out", "out")
        launch = begin("launch", file, *words, cwd=here)
        out, err = launch.communicate(timeout=LONG)
    assert launch.returncode == 0, out + err
    same_as_simulated(coterie, here, file, here / "out")


def test_ctrl_c_ends_a_waiting_peer_with_a_usable_folder(here):
    with company(here, real(), 4) as peers:
        peers.start(0)
        peers.until(lambda: "waiting for peers: 1, 2, 3" in peers.told(), "its waiting")
        peers.strike(signal.SIGINT, 0)
        assert peers.ends(0) == [130]
        assert peers.standing(0).state == "stopped"
        found = json.loads((peers.folder(0) / "summary.json").read_text())
        assert found["results"] == [] and found["order"] == ["facade"]
        assert "Traceback" not in peers.told()


def test_a_peer_that_is_killed_comes_back_and_catches_up(here):
    table = real(experiment__rounds=100000, runtime__deadline=2.0)
    with company(here, table, 4) as peers:
        peers.start(0, 1, 2, 3)
        peers.until(lambda: peers.round(0, 1, 2, 3) >= 3, "three rounds")
        peers.strike(signal.SIGKILL, 2)
        others, kept = peers.round(0, 1, 3), peers.checkpoints(2)[-1]
        peers.until(lambda: peers.round(0, 1, 3) >= others + 3, "rounds of those left")
        peers.start(2)
        peers.until(lambda: len(peers.events(2, "begins")) == 2, "the return of peer 2")
        back = peers.events(2, "begins")[1]
        assert back["state"] == kept, "it has its own state again"
        peers.until(lambda: peers.round(2) > others + 3, "peer 2 where the others are")
        peers.until(lambda: peers.standing(0).alive == 4, "everybody sees it")
        peers.strike(signal.SIGTERM, 0, 1, 2, 3)
        assert peers.ends(0, 1, 2, 3) == [143] * 4
        assert all(peers.summary(peer)["rounds"] > 3 for peer in range(4))
