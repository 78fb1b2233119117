"""The first signal asks for a clean end, the second ends at once; both only set and write."""

from __future__ import annotations

import os
import signal

import pytest

from coterie.peers.stopping import Stop


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_wakes_once_and_is_remembered(number, capfd):
    woken = []
    before = signal.getsignal(number)
    with Stop() as stop:
        stop.wake = lambda: woken.append(stop.number)
        os.kill(os.getpid(), number)
        stop.ask()
    assert woken == [number] and stop.code == 128 + number
    assert signal.getsignal(number) is before
    assert "again: at once" in capfd.readouterr().err


def test_the_second_signal_does_the_last_thing_and_ends(monkeypatch, capfd):
    ends = []
    monkeypatch.setattr(os, "_exit", ends.append)
    with Stop(at_once=lambda: ends.append("last")) as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert not ends and stop.number == signal.SIGINT
        os.kill(os.getpid(), signal.SIGTERM)
    assert ends == ["last", 143]


def test_nobody_asked_is_no_end():
    with Stop() as stop:
        assert not stop.number
