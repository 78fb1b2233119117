"""What peers say to each other, frame by frame, without a link or a clock."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from functools import cache

import pytest
import torch

from coterie.core import Fetch, Nodes, Ring, Send
from coterie.core.messages import Message
from coterie.errors import InputError
from coterie.links import wire
from coterie.runtimes.conversation import CHATTY, Bounds, Conversation
from coterie.runtimes.packing import pack, unpack
from coterie.runtimes.roll import Roll

from ..world import World

RUN = bytes(range(16))
ROUNDS = 20


@cache
def block(n: int) -> Nodes:
    """All nodes; nobody trains here, so that they can be used again."""
    return World(n=n, counts=(4,) * n).nodes()


class Table:
    """Peers at a table; what they say lies on it until it is carried over."""

    def __init__(self, n: int, window: int = 2) -> None:
        self.on_the_way: deque[tuple[int, int, bytes]] = deque()
        self.talks = [self._talk(n, me, window) for me in range(n)]

    def _talk(self, n: int, me: int, window: int) -> Conversation:
        nodes = block(n)[torch.tensor([me])]
        roll = Roll([peer for peer in range(n) if peer != me], patience=3)
        talk = Conversation(
            nodes,
            RUN,
            roll,
            Bounds(ROUNDS, window),
            lambda to, data: self.on_the_way.append((me, to, data)),
        )
        talk.life = me + 1
        return talk

    def carry(self, *, but: Iterable[int] = ()) -> None:
        """Hand everything over, but what these peers say."""
        while self.on_the_way:
            sender, to, data = self.on_the_way.popleft()
            if sender not in set(but):
                self.talks[to].hear(sender, data)

    def said(self, kind: str) -> list[tuple[int, int]]:
        """From whom to whom frames of a kind are on the way."""
        return [(s, to) for s, to, data in self.on_the_way if wire.peek(data).kind == kind]

    def begin(self, t: int = 0) -> None:
        """All begin together."""
        for talk in self.talks:
            arrive(talk)
        self.carry()
        for talk in self.talks:
            talk.begin(t)
        self.carry()

    def say(self, me: int, message: Message) -> None:
        """Let a peer say its message."""
        talk = self.talks[me]
        talk.say(message, pack(message, talk.nodes, RUN, talk.place))


def arrive(talk: Conversation, rounds: tuple[int, ...] = ()) -> None:
    """Let a peer come and greet everybody."""
    talk.await_start(rounds)
    talk.hello(talk.roll.entries)


def rows(me: int) -> dict[str, torch.Tensor]:
    return {"x": torch.full((1, 3), float(me)).double()}


def ring(talk: Conversation) -> Send:
    return Send(rows(talk.me), talk.nodes.graph(Ring(), 0))


def fetch(talk: Conversation, *of: int) -> Fetch:
    return Fetch(rows(talk.me), torch.tensor([of]).reshape(1, -1))


def frame(kind: str, sender: int, t: int = 0, step: int = 0, value: float = 1.0) -> bytes:
    held = {"x": torch.full((1, 3), value).double()} if kind in ("send", "offer") else {}
    return wire.encode(wire.Frame(RUN, t, step, sender, kind, held))


def test_a_message_that_nobody_would_take_is_an_error_of_its_sender() -> None:
    table = Table(3)
    table.begin()
    talk = table.talks[0]
    talk.bounds = Bounds(ROUNDS, limits=wire.Limits(header=50, body=50))
    with pytest.raises(InputError, match=r"runtime\.largest"):
        table.say(0, ring(talk))
    assert not table.said("send")


def test_all_who_said_hello_are_there_when_the_run_begins() -> None:
    table = Table(3)
    table.begin()
    assert all(len(talk.roll.everyone()) == 2 for talk in table.talks)


def test_rows_go_to_the_neighbors_and_are_heard_by_them() -> None:
    table = Table(4)
    table.begin()
    for talk in table.talks:
        table.say(talk.me, ring(talk))
    assert sorted(table.said("send")) == [
        (me, to) for me in range(4) for to in sorted([(me - 1) % 4, (me + 1) % 4])
    ]
    assert table.talks[0].missing() == {1, 3}
    table.carry(but=[3])
    assert table.talks[0].missing() == {3}
    letters = table.talks[0].collect()
    inbox, faults = unpack(ring(table.talks[0]), table.talks[0].nodes, letters, wire.Limits())
    assert faults == {}
    assert inbox.source.tolist() == [1]
    assert inbox["x"].tolist() == [[1.0, 1.0, 1.0]]


def test_nobody_waits_for_those_who_left_or_were_given_up_or_are_past() -> None:
    for leave in ("bye", "silent", "stuck", "past"):
        table = Table(3)
        table.begin()
        talk = table.talks[0]
        table.say(0, ring(talk))
        assert talk.missing() == {1, 2}
        if leave == "bye":
            talk.hear(1, frame("bye", 1))
        elif leave == "past":
            talk.hear(1, frame("at", 1, 1))
        elif leave == "stuck":
            talk.roll.give_up([1])
        else:
            for _ in range(3):
                talk.roll.tick()
                talk.hear(2, frame("at", 2))
        assert talk.missing() == {2}, leave


def test_frames_of_later_supersteps_wait_for_them() -> None:
    table = Table(2)
    table.begin()
    talk = table.talks[0]
    talk.hear(1, frame("send", 1, 0, 0, 5.0))
    talk.hear(1, frame("send", 1, 0, 1, 6.0))
    talk.hear(1, frame("send", 1, 2, 0, 7.0))
    for place, value in (((0, 0), 5.0), ((0, 1), 6.0), ((2, 0), 7.0)):
        talk.enter(place)
        table.say(0, ring(talk))
        assert talk.missing() == set()
        inbox, _ = unpack(ring(talk), talk.nodes, talk.collect(), wire.Limits())
        assert inbox["x"][0, 0] == value


def test_a_question_goes_to_the_asked_peer_alone_and_is_answered_once() -> None:
    table = Table(3)
    table.begin()
    for talk in table.talks:
        table.say(talk.me, fetch(talk, *([2] if talk.me == 0 else [])))
    assert table.said("ask") == [(0, 2)]
    table.carry()
    assert table.talks[0].missing() == set()
    inbox, _ = unpack(
        fetch(table.talks[0], 2), table.talks[0].nodes, table.talks[0].collect(), wire.Limits()
    )
    assert inbox["x"].tolist() == [[2.0, 2.0, 2.0]]
    table.talks[2].hear(0, frame("ask", 0))
    assert table.said("offer") == []
    assert table.talks[2].rejected == {0: 1}


def test_an_early_question_waits_until_there_is_an_offer() -> None:
    table = Table(2)
    table.begin()
    table.say(0, fetch(table.talks[0], 1))
    table.carry()
    assert table.talks[0].missing() == {1}
    table.say(1, fetch(table.talks[1]))
    table.carry()
    assert table.talks[0].missing() == set()
    assert set(table.talks[0].collect()) == {1}


def test_an_offer_is_kept_until_every_present_peer_is_past_it() -> None:
    table = Table(3)
    table.begin()
    holder = table.talks[2]
    table.say(2, fetch(holder))
    holder.enter((1, 0))
    table.say(2, fetch(holder))
    holder.hear(0, frame("at", 0, 1))
    assert set(holder.offers) == {(0, 0), (1, 0)}
    table.on_the_way.clear()
    holder.hear(1, frame("ask", 1, 0))  # one round behind, and answered with that round's offer
    (letter,) = [data for _, _, data in table.on_the_way if wire.peek(data).kind == "offer"]
    assert (wire.peek(letter).round, wire.peek(letter).superstep) == (0, 0)
    holder.hear(1, frame("at", 1, 1))
    assert set(holder.offers) == {(1, 0)}


def test_offers_beyond_the_window_are_dropped_whoever_is_behind() -> None:
    table = Table(2, window=2)
    table.begin()
    for t in range(8):
        table.talks[0].enter((t, 0))
        table.say(0, fetch(table.talks[0]))
    assert set(table.talks[0].offers) == {(4, 0), (5, 0), (6, 0), (7, 0)}


def test_who_asks_for_what_is_no_longer_there_is_told_so() -> None:
    table = Table(2)
    table.begin()
    table.say(0, fetch(table.talks[0], 1))  # an early question, never answered:
    table.carry()
    table.talks[1].enter((3, 0))  # the other skips that round
    table.carry()
    assert table.talks[0].missing() == set()
    assert table.talks[0].collect() == {}


def test_who_asks_somebody_that_offers_nothing_is_told_so() -> None:
    table = Table(2)
    table.begin()
    table.say(1, ring(table.talks[1]))
    table.say(0, fetch(table.talks[0], 1))
    table.carry()
    assert table.talks[0].missing() == set()


def test_answers_that_nobody_asked_for_are_refused() -> None:
    table = Table(3)
    table.begin()
    talk = table.talks[0]
    talk.hear(1, frame("offer", 1))
    table.say(0, fetch(talk, 2))
    talk.hear(1, frame("offer", 1))
    talk.hear(2, frame("offer", 2, 1))
    assert talk.rejected == {1: 2, 2: 1}
    assert talk.missing() == {2}


def test_a_peer_that_comes_late_gets_the_current_message() -> None:
    table = Table(3)
    for talk in table.talks[:2]:
        arrive(talk)
    table.carry(but=[2])  # which is not there yet
    for talk in table.talks[:2]:
        talk.begin(0)
        table.say(talk.me, ring(talk))
    assert (0, 2) not in table.said("send")
    table.carry()
    arrive(table.talks[2])
    table.carry()
    assert table.talks[2].roll.everyone() == {0, 1}  # they said where they are
    assert table.talks[0].roll.everyone() == {1}  # it has not begun
    table.talks[2].begin(0)
    table.carry()
    assert table.talks[0].roll.everyone() == {1, 2}
    table.say(2, ring(table.talks[2]))
    assert table.talks[2].missing() == set()


def test_a_peer_that_started_again_is_told_where_the_others_are() -> None:
    table = Table(2)
    table.begin(7)
    table.talks[0].hear(1, hello(1, life=99))
    assert not table.talks[0].roll.present(1)
    assert table.said("welcome") == [(0, 1)]
    table.talks[0].hear(1, hello(1, life=99))  # it says so until it is heard
    assert table.said("welcome") == [(0, 1), (0, 1)]


def test_old_news_are_no_welcome() -> None:
    table = Table(3)
    talk = table.talks[2]
    arrive(talk)
    talk.hear(0, frame("at", 0, 3))  # was under way when this peer was not there
    talk.hear(1, welcome(1, 9, life=77))  # to whoever was here before
    assert talk.roll.unheard() == {0, 1}
    assert talk.roll.everyone() == set()
    talk.hear(0, hello(0))
    talk.hear(0, welcome(0, 9, life=talk.life))
    assert talk.roll.unheard() == {1}
    assert talk.roll.entries[0].place == (9, 0)


def test_greetings_end_whoever_comes_first_and_how_often_they_are_said() -> None:
    for order in ((0, 1), (1, 0)):
        table = Table(2)
        for me in order:
            arrive(table.talks[me])
            table.talks[me].hello([1 - me])
            table.carry()
        assert not table.talks[0].roll.unheard() and not table.talks[1].roll.unheard()


def welcome(sender: int, t: int, life: int, begun: int = 1) -> bytes:
    rows = {"life": torch.tensor([life, begun]), "rounds": torch.zeros(0, dtype=torch.int64)}
    return wire.encode(wire.Frame(RUN, t, 0, sender, "welcome", rows))


def hello(sender: int, life: int = 9) -> bytes:
    rows = {"life": torch.tensor([life])}
    return wire.encode(wire.Frame(RUN, 0, 0, sender, "hello", rows))


def test_a_welcome_names_the_rounds_that_a_peer_can_resume() -> None:
    table = Table(2)
    for number, talk in enumerate(table.talks):
        arrive(talk, tuple(range(number * 10, number * 10 + 3)))
    table.carry()
    assert table.talks[0].theirs == {1: (10, 11, 12)}
    assert table.talks[1].theirs == {0: (0, 1, 2)}


def test_only_the_algorithms_frames_are_its_traffic() -> None:
    table = Table(2)
    table.begin()
    table.say(0, ring(table.talks[0]))
    one = len(pack(ring(table.talks[0]), table.talks[0].nodes, RUN, (0, 0)) or b"")
    assert table.talks[0].sent["send"] == one
    table.talks[0].enter((ROUNDS, 0))  # the last program is no training
    table.say(0, ring(table.talks[0]))
    assert table.talks[0].sent["send"] == table.talks[0].sent["other"] == one


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
