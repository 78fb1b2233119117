"""Frames that are no good: dropped, counted, logged, and without any effect."""

from __future__ import annotations

import logging

import pytest
import torch

from coterie.errors import InputError
from coterie.links import wire
from coterie.runtimes.conversation import CHATTY, Bounds
from coterie.runtimes.packing import unpack
from tests.runtimes.table import ROUNDS, RUN, Table, frame, hello, ring


def test_a_message_that_nobody_would_take_is_an_error_of_its_sender() -> None:
    table = Table(3)
    table.begin()
    talk = table.talks[0]
    talk.bounds = Bounds(ROUNDS, limits=wire.Limits(header=50, body=50))
    with pytest.raises(InputError, match=r"runtime\.largest"):
        table.say(0, ring(talk))
    assert not table.said("send")


BAD = {
    "nothing": b"",
    "garbage": b"COT1" + bytes(range(60)),
    "another run": wire.encode(wire.Frame(bytes(16), 0, 0, 1, "at", {})),
    "a false sender": frame("at", 0),
    "no such round": frame("send", 1, ROUNDS + 2),
    "a negative round": frame("send", 1, -1),
    "no such superstep": frame("at", 1, 0, 10**6),
    "rows in an announcement": wire.encode(
        wire.Frame(RUN, 0, 0, 1, "at", {"x": torch.zeros(1 << 16)})
    ),
    "a hello without a life": wire.encode(wire.Frame(RUN, 0, 0, 1, "hello", {})),
    "a hello with a life of 0": hello(1, life=0),
    "a welcome with many rounds": wire.encode(
        wire.Frame(
            RUN,
            0,
            0,
            1,
            "welcome",
            {"life": torch.tensor([1, 0]), "rounds": torch.arange(100)},
        )
    ),
    "a malformed welcome": wire.encode(wire.Frame(RUN, 0, 0, 1, "welcome", {})),
    "an answer": frame("offer", 1),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_frame_is_logged_and_counted_and_changes_nothing(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = Table(3)
    table.begin()
    talk = table.talks[0]
    table.say(0, ring(talk))
    table.on_the_way.clear()
    with caplog.at_level(logging.WARNING, "coterie.peer"):
        talk.hear(1, BAD[name])
    assert talk.rejected == {1: 1}
    assert len(caplog.records) == 1
    assert "sender=1" in caplog.text
    assert talk.missing() == {1, 2}
    assert not talk.box.frames and not table.on_the_way


def test_a_frame_beyond_the_window_is_dropped_but_tells_where_its_sender_is() -> None:
    table = Table(3)
    table.begin()
    talk = table.talks[0]
    table.say(0, ring(talk))
    talk.hear(1, frame("send", 1, 3))
    assert talk.rejected == {1: 1}
    assert talk.missing() == {2}
    assert not talk.box.frames


def test_a_stranger_is_not_heard() -> None:
    table = Table(2)
    table.begin()
    table.talks[0].hear(5, frame("at", 5))
    table.talks[0].hear(0, frame("at", 0))
    assert table.talks[0].rejected == {5: 1, 0: 1}


def test_replays_are_dropped() -> None:
    table = Table(2)
    table.begin()
    talk = table.talks[0]
    for value in (1.0, 2.0):
        talk.hear(1, frame("send", 1, 0, 0, value))
    assert talk.rejected == {1: 1}
    table.say(0, ring(talk))
    inbox, _ = unpack(ring(talk), talk.nodes, talk.collect(), wire.Limits())
    assert inbox["x"].tolist() == [[1.0, 1.0, 1.0]]
    talk.enter((1, 0))
    talk.hear(1, frame("send", 1, 0, 0))
    assert talk.late == 1


def test_a_flood_of_bad_frames_does_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    table = Table(2)
    table.begin()
    with caplog.at_level(logging.WARNING, "coterie.peer"):
        for _ in range(1000):
            table.talks[0].hear(1, b"garbage")
    assert table.talks[0].rejected == {1: 1000}
    assert len(caplog.records) < CHATTY + 10


def test_a_flood_of_good_frames_does_not_fill_the_memory() -> None:
    table = Table(2)
    table.begin()
    talk = table.talks[0]
    for t in range(ROUNDS):
        for step in range(300):
            talk.hear(1, frame("ask", 1, t, step))
    assert len(talk.box.frames) <= 3 * 256
