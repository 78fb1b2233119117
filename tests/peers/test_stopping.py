"""The first signal asks for a clean end, the second ends at once; both only set and write."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

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


HANGS = """
import os
from coterie.peers.stopping import Stop
read, write = os.pipe()
with Stop(seconds=0.2) as stop:
    print("ready", flush=True)
    os.read(read, 1)  # goes on after a signal, for ever
"""


def test_whatever_hangs_is_ended_by_the_system_after_a_while():
    with subprocess.Popen([sys.executable, "-c", HANGS], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            process.terminate()
            assert process.wait(60) == -signal.SIGALRM
        finally:
            process.kill()


def test_an_end_in_time_stops_the_clock_and_starts_that_of_others_again():
    before = signal.setitimer(signal.ITIMER_REAL, 500)
    try:
        with Stop(seconds=300) as stop:
            stop.ask()
            assert signal.getitimer(signal.ITIMER_REAL)[0] <= 300
        assert 300 < signal.getitimer(signal.ITIMER_REAL)[0] <= 500
    finally:
        signal.setitimer(signal.ITIMER_REAL, *before)


def test_a_terminal_that_takes_nothing_more_holds_up_no_end():
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, bytes(4096))
    os.set_blocking(write, True)
    terminal = os.dup(2)
    os.dup2(write, 2)
    try:
        with Stop() as stop:
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.number == signal.SIGTERM
    finally:
        os.dup2(terminal, 2)
        for end in (read, write, terminal):
            os.close(end)
