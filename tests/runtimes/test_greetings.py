"""How peers come, come back and greet each other, frame by frame."""

from __future__ import annotations

from tests.runtimes.table import Table, arrive, frame, hello, ring, welcome


def test_all_who_said_hello_are_there_when_the_run_begins() -> None:
    table = Table(3)
    table.begin()
    assert all(len(talk.roll.everyone()) == 2 for talk in table.talks)


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


def test_a_welcome_names_the_rounds_that_a_peer_can_resume() -> None:
    table = Table(2)
    for number, talk in enumerate(table.talks):
        arrive(talk, tuple(range(number * 10, number * 10 + 3)))
    table.carry()
    assert table.talks[0].theirs == {1: (10, 11, 12)}
    assert table.talks[1].theirs == {0: (0, 1, 2)}
