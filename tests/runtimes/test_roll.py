from coterie.runtimes.roll import Roll


def begun(*rounds: int, patience: int = 3) -> Roll:
    """Peers 0, 1, ... at these rounds."""
    roll = Roll(range(len(rounds)), patience)
    for peer, t in enumerate(rounds):
        roll.move(peer, (t, 0))
    return roll


def test_a_peer_is_present_from_its_first_announcement_until_it_leaves() -> None:
    roll = Roll([1], patience=3)
    assert not roll.present(1)
    assert roll.greet(1, life=7)
    assert not roll.present(1)
    assert roll.move(1, (4, 0))
    assert roll.present(1)
    assert not roll.move(1, (5, 0))
    roll.leave(1)
    assert not roll.present(1)
    assert roll.expected() == set()
    assert not roll.move(1, (5, 0))  # an answer that it still gave
    assert not roll.present(1)
    assert roll.greet(1, life=8)
    assert roll.move(1, (5, 0)) and roll.present(1)


def test_who_leaves_still_answers_those_behind_it() -> None:
    roll = begun(3)
    roll.leave(0)
    assert roll.serves(0, (2, 0)) and roll.serves(0, (3, 0))
    assert not roll.serves(0, (4, 0))
    roll.give_up([0])
    assert not roll.serves(0, (2, 0))


def test_whoever_is_silent_for_some_ticks_is_away_until_it_is_heard() -> None:
    roll = begun(0, 0)
    for _ in range(3):
        assert roll.everyone() == {0, 1}
        roll.tick()
        roll.move(0, (0, 0))
    assert roll.everyone() == {0}
    assert roll.move(1, (0, 0))  # it was not present
    assert roll.everyone() == {0, 1}


def test_a_peer_that_was_given_up_is_waited_for_again_when_it_moves() -> None:
    roll = begun(3, 3)
    roll.give_up([1])
    roll.move(1, (3, 0))  # heard, but at the same place
    assert roll.company() == {0}
    roll.move(1, (3, 1))
    assert roll.company() == {0, 1}


def test_who_is_past_a_place_will_not_come_to_it() -> None:
    roll = begun(3)
    assert roll.comes(0, (3, 0))
    assert roll.comes(0, (4, 0))
    roll.move(0, (3, 1))
    assert not roll.comes(0, (3, 0))
    assert roll.answers(0)  # but it may still answer a question


def test_announcements_never_lead_back() -> None:
    roll = begun(3)
    roll.move(0, (1, 5))
    assert roll.entries[0].place == (3, 0)


def test_a_hello_of_a_new_life_means_that_the_peer_started_again() -> None:
    roll = begun(9)
    assert roll.greet(0, life=7)  # the first hello, of one that runs
    assert roll.present(0)
    assert roll.greet(0, life=1)
    assert not roll.present(0)
    assert roll.comes(0, (4, 0))  # it will begin where the others are
    assert roll.behind(4) == roll.company() == set()
    assert not roll.greet(0, life=1)
    roll.move(0, (2, 0))
    assert roll.present(0) and roll.entries[0].place == (2, 0)
    assert not roll.greet(0, life=1)  # a late copy of the same hello
    assert roll.present(0)


def test_a_peer_that_was_given_up_is_not_waited_for_because_it_says_hello() -> None:
    roll = begun(9)
    roll.greet(0, life=7)
    roll.give_up([0])
    assert roll.greet(0, life=1)
    assert not roll.comes(0, (9, 0))
    roll.move(0, (9, 0))
    assert roll.comes(0, (9, 0))


def test_all_who_said_hello_are_present_when_the_run_begins() -> None:
    roll = Roll(range(4), patience=3)
    for peer in range(3):
        roll.greet(peer, life=1)
    assert roll.unheard() == {0, 1, 2, 3}  # they have not answered
    roll.welcome(0, begun=False)
    roll.welcome(1, begun=False)
    roll.welcome(2, begun=True)
    roll.move(2, (5, 1))
    assert roll.unheard() == {3}
    roll.begin((5, 0))
    assert roll.everyone() == {0, 1, 2}
    assert [roll.entries[peer].place for peer in range(3)] == [(5, 0), (5, 0), (5, 1)]


def test_the_current_round_is_not_the_claim_of_one_peer() -> None:
    assert begun(4, 5, 10**6).current() == 5
    assert begun(4, 10**6).current() == 4
    assert begun(0, 7, 7, 8).current() == 7
    assert Roll([1, 2], patience=3).current() is None


def test_given_up_and_silent_peers_do_not_count() -> None:
    roll = begun(0, 0, 9, patience=1)
    roll.give_up([0, 1])
    assert roll.current() == 9
    assert roll.behind(9) == set()
    roll.tick()
    assert roll.current() is None


def test_an_offer_is_over_when_every_present_peer_has_passed_it() -> None:
    roll = begun(3, 3)
    assert not roll.passed((3, 0))
    roll.move(0, (3, 1))
    assert not roll.passed((3, 0))
    roll.leave(1)
    assert roll.passed((3, 0))
