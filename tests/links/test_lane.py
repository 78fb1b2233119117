"""Order, duplicates, losses and replays between two peers, without a network."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.links.lane import Intake, Lane, Outbox, Parcel
from coterie.links.notes import NOBODY, Note

FIRST, SECOND, THIRD = (bytes([number]) * 16 for number in (1, 2, 3))


def lane(own: bytes, capacity: int = 32, window: int = 4) -> Lane:
    return Lane(own, Outbox(capacity, window), Intake(2 * window))


def due(one: Lane, now: float = 0.0) -> list[Note]:
    """All that a lane has to say."""
    notes = []
    while note := one.next(now):
        notes.append(note)
    return notes


def handle(one: Lane) -> list[bytes]:
    """Take what has arrived, and confirm it."""
    bodies = []
    while one.intake.waiting:
        session, note = one.intake.waiting.popleft()
        bodies.append(note.body)
        one.done(session, note.sequence)
    return bodies


def talk(a: Lane, b: Lane, now: float = 0.0) -> list[bytes]:
    """Carry everything between two until both are silent; what b received."""
    got = []
    while notes := [(note, b) for note in due(a, now)] + [(note, a) for note in due(b, now)]:
        for note, receiver in notes:
            receiver.take(note, now)
        got += handle(b)
        handle(a)
    return got


def pair(**bounds: int) -> tuple[Lane, Lane]:
    """Two lanes that have met."""
    a, b = lane(FIRST, **bounds), lane(SECOND, **bounds)
    a.reconnected(0.0)
    b.reconnected(0.0)
    talk(a, b)
    return a, b


def put(one: Lane, *bodies: bytes) -> None:
    for body in bodies:
        one.outbox.put(Parcel(b"", len(body), body=body))


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [str(number).encode() for number in range(start, start + count)]


def test_two_that_greet_each_other_have_met_and_fall_silent():
    a, b = pair()
    assert a.session == SECOND and b.session == FIRST
    assert not due(a) and not due(b)


def test_frames_arrive_in_order_and_are_let_go_once_handled():
    a, b = pair()
    put(a, *numbered(20))
    assert talk(a, b) == numbered(20)
    assert not a.outbox.held and not a.outbox.waiting


def test_no_more_than_a_window_is_on_the_way():
    a, b = pair(window=4)
    put(a, *numbered(20))
    assert len(due(a)) == 4
    assert b.outbox.next() is None


def test_what_comes_twice_is_taken_once():
    a, b = pair()
    put(a, *numbered(3))
    notes = due(a)
    taken = [b.take(note, 0.0) for note in notes + notes]
    assert taken == [True] * 3 + [False] * 3
    assert handle(b) == numbered(3)
    assert not any(b.take(note, 0.0) for note in notes)


def test_a_frame_after_a_lost_one_waits_for_it():
    a, b = pair()
    put(a, *numbered(3))
    lost, *others = due(a)
    assert lost.sequence == 1 and not any(b.take(note, 0.0) for note in others)
    assert not a.remind(0.5) and a.remind(5.0)  # no answer for a while: compare notes
    assert talk(a, b, 5.0) == numbered(3)


def test_the_oldest_goes_when_there_is_no_room_and_the_rest_arrives():
    a, b = lane(FIRST, capacity=4), lane(SECOND)
    dropped = [a.outbox.put(Parcel(b"", 1, body=body)) for body in numbered(10)]
    assert dropped == [False] * 4 + [True] * 6
    a.reconnected(0.0)
    b.reconnected(0.0)
    assert talk(a, b) == numbered(4, start=6)


def test_a_peer_that_comes_back_gets_what_its_earlier_life_had_not_handled():
    a, b = pair()
    put(a, *numbered(3))
    for note in due(a):
        b.take(note, 0.0)
    session, note = b.intake.waiting.popleft()
    b.done(session, note.sequence)
    for confirmed in due(b):  # one of three, then b dies
        a.take(confirmed, 0.0)
    again = lane(THIRD)
    again.reconnected(0.0)
    assert talk(a, again) == numbered(2, start=1)
    assert a.session == THIRD


def test_a_peer_that_starts_anew_counts_anew():
    a, b = pair()
    put(a, *numbered(5))
    talk(a, b)
    again = lane(THIRD)
    again.reconnected(0.0)
    put(again, *numbered(2))
    assert talk(again, b) == numbered(2)


def test_an_earlier_life_of_a_peer_is_not_believed_any_more():
    a, b = pair()
    put(a, *numbered(2))
    early = due(a)
    again = lane(THIRD)
    again.reconnected(0.0)
    talk(again, b)
    a.greet(0.0)
    assert not any(b.take(note, 0.0) for note in early + due(a))
    assert b.session == THIRD


def test_what_was_meant_for_an_earlier_life_of_the_receiver_is_not_taken():
    a, _ = pair()
    put(a, *numbered(2))
    early = due(a)
    again = lane(THIRD)
    assert not any(again.take(note, 0.0) for note in early)
    assert not handle(again)


def test_an_echoed_hello_does_not_establish_a_session():
    a, b = lane(FIRST), lane(SECOND)
    a.reconnected(0.0)
    echo = due(a)[0]
    assert echo.toward == NOBODY
    b.take(echo, 0.0)
    assert not b.met
    (question,) = due(b)
    assert question.reply and question.toward == FIRST


def test_who_said_bye_is_not_waited_for():
    a, b = pair()
    bye = a.bye()
    assert bye is not None and b.take(bye, 0.0)
    assert not b.reachable(0.0, patience=10.0) and not b.met
    put(b, b"too late")
    assert not due(b)


def test_who_leaves_frames_unanswered_is_unreachable_until_it_answers():
    a, b = pair()
    assert a.reachable(1000.0, patience=10.0)  # nothing is asked of it
    put(a, b"frame")
    due(a, 1000.0)
    assert a.reachable(1009.0, patience=10.0) and not a.reachable(1011.0, patience=10.0)
    a.greet(1011.0)
    for note in due(a, 1011.0):
        b.take(note, 1011.0)
    for note in due(b, 1011.0):
        a.take(note, 1011.0)
    assert a.reachable(1011.0, patience=10.0)


def test_a_dead_peer_is_waited_for_once():
    a, _ = pair(capacity=4, window=2)
    put(a, *numbered(4))
    due(a, 100.0)
    for number in range(50):  # its oldest frames go, new ones are tried
        put(a, *numbered(1, start=number))
        due(a, 111.0)
        assert not a.reachable(111.0, patience=10.0)


def test_a_slow_receiver_that_answers_stays_reachable():
    a, b = pair()
    put(a, b"frame")
    for now in range(0, 100, 5):
        a.remind(now)
        for note in due(a, now):
            b.take(note, now)
        for note in due(b, now):  # nothing was handled yet
            a.take(note, now)
        assert a.reachable(now, patience=10.0)
    assert handle(b) == [b"frame"]


def test_reminders_become_rarer():
    one = lane(FIRST)
    one.reconnected(0.0)
    times = [now for now in range(300) if one.remind(float(now))]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps == sorted(gaps) and gaps[-1] == 30


def test_a_peer_cannot_confirm_what_was_never_sent():
    a, b = pair()
    put(a, *numbered(8))
    a.take(Note("ack", SECOND, FIRST, 2**62, 2**62), 0.0)
    a.take(Note("hello", SECOND, FIRST, 2**62, 2**62), 0.0)
    assert len(a.outbox.held) == 8
    assert talk(a, b) == numbered(8)


def test_a_flood_is_bounded():
    _, b = pair(window=4)
    for number in range(1, 1000):
        b.take(Note("frame", FIRST, SECOND, number, 1), 0.0)
    assert len(b.intake.waiting) == 8


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["carry", "lose", "twice", "cut", "put"]), max_size=60))
def test_whatever_a_broker_does_order_holds_and_nothing_comes_twice(fates):
    a, b = pair(capacity=100)
    got: list[bytes] = []
    count = 0
    for now, fate in enumerate(fates):
        if fate == "put":
            put(a, *numbered(3, start=count))
            count += 3
        if fate == "cut":
            a.reconnected(float(now))
        for sender, receiver in ((a, b), (b, a)):
            for note in due(sender, float(now)) * {"lose": 0, "twice": 2}.get(fate, 1):
                receiver.take(note, float(now))
        got += handle(b)
    a.reconnected(1000.0)
    b.reconnected(1000.0)
    got += talk(a, b, 1000.0)
    assert got == numbered(count)


@pytest.mark.parametrize("kind", ["frame", "ack", "bye"])
def test_nobody_but_who_said_hello_is_heard(kind):
    _, b = pair()
    assert not b.take(Note(kind, THIRD, SECOND, 1, 1), 0.0)
    assert b.session == FIRST
