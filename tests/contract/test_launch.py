"""A launch that cannot be: one message before anything is started or written."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coterie import config as configuration
from coterie.peers.children import Child
from coterie.peers.launch import Launch
from coterie.peers.stopping import Stop
from tests.contract.command import refused, write
from tests.contract.company import real

BAD_WORDS = {  # what is wrong -> words beside the file, and what the message has to say
    "a folder below a file": (["--out", "real.toml/x"], ["cannot write", "--out"]),
    "a file as folder": (["--out", "real.toml"], ["is a file", "--out"]),
    "a used folder": (["--out", "."], ["not empty", "--resume"]),
    "a device": (["--device", "tpu", "--out", "out"], ["unknown device 'tpu'"]),
    "a broker": (
        ["--link", "mqtt", "--broker", "nonsense", "--out", "out"],
        ["mqtts://user@host:port"],
    ),
    "a link": (["--link", "post", "--out", "out"], ["runtime.link", "'post'"]),
    "a number of peers": (["--peers", "9", "--out", "out"], ["4 nodes (3:1)", "got 9"]),
    "an algorithm": (
        ["--algorithm", "facadee", "--out", "out"],
        ["unknown algorithm 'facadee'", "did you mean 'facade'?"],
    ),
    "nothing to resume": (["--resume", "--out", "out"], ["no launch to resume", "'out'"]),
    "nowhere to resume": (["--resume"], ["--resume needs --out"]),
}


@pytest.mark.parametrize("kind", BAD_WORDS)
def test_a_launch_that_cannot_be_is_refused_before_anything_is_written(kind, coterie, here):
    words, said = BAD_WORDS[kind]
    refused(coterie("launch", write(here / "real.toml", real()), *words), *said)
    assert [path.name for path in here.iterdir()] == ["real.toml"]


@pytest.mark.parametrize(
    "code, asked, state",
    [
        (-signal.SIGTERM, signal.SIGINT, "starting"),  # before it heard of signals
        (128 + signal.SIGTERM, signal.SIGINT, "starting"),
        (-signal.SIGKILL, signal.SIGINT, "failed"),
        (-signal.SIGTERM, 0, "failed"),
        (1, signal.SIGINT, "failed"),
    ],
)
def test_a_peer_is_lost_only_if_nobody_stopped_it(code, asked, state, tmp_path: Path):
    stop = Stop()
    launch = Launch(configuration.parse(real()), tmp_path, "cpu", lambda found: None, stop)
    stop.number = asked
    process: Any = SimpleNamespace(returncode=code)
    launch.children.all.append(Child(0, process, tmp_path / "0.log", code))
    assert [one.state for one in launch.standings()] == [state, *["starting"] * 3]
