"""What peers say to each other, frame by frame, without a link or a clock."""

from __future__ import annotations

from coterie.links import wire
from coterie.runtimes.packing import pack, unpack
from tests.runtimes.table import ROUNDS, RUN, Table, fetch, frame, ring


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


def test_only_the_algorithms_frames_are_its_traffic() -> None:
    table = Table(2)
    table.begin()
    table.say(0, ring(table.talks[0]))
    one = len(pack(ring(table.talks[0]), table.talks[0].nodes, RUN, (0, 0)) or b"")
    assert table.talks[0].sent["send"] == one
    table.talks[0].enter((ROUNDS, 0))  # the last program is no training
    table.say(0, ring(table.talks[0]))
    assert table.talks[0].sent["send"] == table.talks[0].sent["other"] == one
