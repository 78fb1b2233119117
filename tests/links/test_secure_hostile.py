"""Requesters and members that break the rules of secure aggregation learn nothing."""

from __future__ import annotations

import random

import numpy as np
import pytest

from coterie.links import masks
from coterie.links.collector import Collector
from coterie.links.letters import Letter, SecureError, packed, unpacked
from coterie.links.secure import Member, PublicKeys, Register
from tests.links.secure_group import (
    PHASES,
    REQUESTER,
    forged,
    identity,
    members,
    plain,
    session,
    started,
)


def own_keys():
    secret = masks.new_secret()
    other = masks.new_secret()
    return PublicKeys(masks.public_of(secret), masks.public_of(other), (3, 3)).pack()


@pytest.mark.parametrize("signature", ["the real one", "none", "the requester's"])
def test_a_requester_that_swaps_in_its_own_keys_learns_nothing(signature):
    wanted = session()
    _, group, letters = started(wanted, "keys")
    real = unpacked(Letter.unpack(letters[0]).body)
    signatures = {
        "the real one": Letter.unpack(real[1]).signature,
        "none": b"",
        "the requester's": identity(REQUESTER).write("key", wanted.id, own_keys()).signature,
    }
    fake = Letter("key", wanted.id, 1, own_keys(), signatures[signature])
    with pytest.raises(SecureError, match="peer 1 did not sign"):
        group[0].hear(forged("keys", wanted, packed([real[0], fake.pack(), real[2]])))
    with pytest.raises(SecureError, match="'' is due"):  # and nothing more is answered
        group[0].hear(letters[0])


def test_a_requester_that_names_itself_as_a_member_is_refused():
    wanted = session()
    _, group, letters = started(wanted, "keys")
    real = unpacked(Letter.unpack(letters[0]).body)
    mine = forged("key", wanted, own_keys())  # well signed, but of nobody in the group
    with pytest.raises(SecureError, match="keys of nobody in the group"):
        group[0].hear(forged("keys", wanted, packed([real[0], real[1], mine])))
    with pytest.raises(SecureError, match="'' is due"):  # and nothing more is answered
        group[0].hear(letters[0])


def test_keys_of_another_session_are_refused():
    wanted, other = session(), session(nonce=b"n" * 16)
    _, _, old = started(other, "keys")
    _, group, letters = started(wanted, "keys")
    real, replayed = (unpacked(Letter.unpack(data[0]).body) for data in (letters, old))
    with pytest.raises(SecureError, match="keys of another session"):
        group[0].hear(forged("keys", wanted, packed([real[0], replayed[1], real[2]])))


def test_a_member_that_is_told_of_too_few_keys_stops():
    wanted = session()
    _, group, letters = started(wanted, "keys")
    real = unpacked(Letter.unpack(letters[0]).body)
    with pytest.raises(SecureError, match="1 members are left"):
        group[0].hear(forged("keys", wanted, packed([real[0]])))


def test_members_that_are_told_of_different_keys_notice():
    wanted = session((0, 1, 2, 3), 3)
    collector, group, letters = started(wanted, "keys")
    real = unpacked(Letter.unpack(letters[0]).body)
    partial = forged("keys", wanted, packed(real[:3]))
    shared = Letter.unpack(group[0].hear(partial))
    group[1].hear(letters[1])
    with pytest.raises(SecureError, match="not the sender's"):
        collector.hear(0, shared.pack())
    to_one = [data for data in unpacked(shared.body) if unpacked(Letter.unpack(data).body)[0] == 1]
    with pytest.raises(SecureError, match="different keys"):
        group[1].hear(forged("shares", wanted, packed(to_one)))


def test_a_member_never_opens_both_kinds_of_shares():
    wanted = session()
    _, group, letters = started(wanted, "unmask")
    group[0].hear(letters[0])  # the seeds of all three
    for body in ([0, 1], [0, 2], [0, 1, 2]):
        with pytest.raises(SecureError, match="'' is due"):
            group[0].hear(forged("survivors", wanted, packed(body)))
    with pytest.raises(SecureError, match="'' is due"):
        group[0].hear(letters[0])


def test_members_that_are_told_of_different_survivors_open_nothing():
    wanted = session()
    _, group, _ = started(wanted, "survivors")
    first = group[0].hear(forged("survivors", wanted, packed([0, 1, 2])))
    second = group[1].hear(forged("survivors", wanted, packed([0, 1])))
    with pytest.raises(SecureError, match="different survivors"):
        group[0].hear(forged("unmask", wanted, packed([first, second])))
    with pytest.raises(SecureError, match="different survivors"):
        group[1].hear(forged("unmask", wanted, packed([first, second])))


def test_a_member_asks_for_the_signatures_of_enough_others():
    wanted = session()
    _, group, _ = started(wanted, "survivors")
    mine = group[0].hear(forged("survivors", wanted, packed([0, 1, 2])))
    with pytest.raises(SecureError, match="1 members are left"):
        group[0].hear(forged("unmask", wanted, packed([mine, mine])))


@pytest.mark.parametrize("alive", [[0], [1, 2], [0, 5], [0, 0], [1, 0], []])
def test_lists_of_survivors_that_cannot_be_are_refused(alive):
    wanted = session()
    _, group, _ = started(wanted, "survivors")
    with pytest.raises(SecureError):
        group[0].hear(forged("survivors", wanted, packed(alive)))


def test_a_session_cannot_pass_for_another():
    """The id follows from the group: a false name is noticed before anything is said."""
    wanted, other = session((0, 1, 2)), session((0, 1, 3))
    member = members(wanted)[0]
    lie = identity(REQUESTER).write("request", other.id, wanted.pack()).pack()
    with pytest.raises(SecureError, match="not the sender's"):
        member.hear(lie)


def test_nobody_asks_in_the_name_of_another():
    wanted = session()
    for sender in (3, 0):
        with pytest.raises(SecureError, match="not the sender's"):
            members(wanted)[1].hear(forged("request", wanted, wanted.pack(), sender))


def test_who_is_not_in_the_group_stays_silent():
    wanted = session((1, 2, 3))
    outsider = Member(identity(0), Register(), [np.zeros(50), np.zeros(1)])
    with pytest.raises(SecureError, match="peer 0 is not in the group"):
        outsider.hear(forged("request", wanted, wanted.pack()))


@pytest.mark.parametrize("phase", PHASES)
def test_a_changed_letter_is_never_taken(phase):
    """One changed byte anywhere: refused, or (in msgpack's own framing) the very same letter."""
    wanted = session(parts=(3,))
    spots = random.Random(phase)
    for _ in range(12):
        _, group, letters = started(wanted, phase)
        data = bytearray(letters[0])
        data[spots.randrange(len(data))] ^= 1 << spots.randrange(8)
        with pytest.raises(SecureError):
            group[0].hear(bytes(data))


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00", b"\xc1" * 9, b"\x95" + b"\x00" * 5, packed([1, 2]), packed({}), b"\x91" * 5000],
)
def test_rubbish_is_refused_on_both_sides(data):
    wanted = session()
    collector = Collector(identity(REQUESTER), wanted)
    collector.begin()
    with pytest.raises(SecureError):
        members(wanted)[0].hear(data)
    with pytest.raises(SecureError):
        collector.hear(0, data)
    for phase in PHASES[1:]:  # and inside a well-signed letter
        _, group, _ = started(wanted, phase)
        with pytest.raises(SecureError):
            group[0].hear(forged(phase, wanted, data))


def test_a_collector_takes_only_what_it_waits_for():
    wanted = session()
    collector, group, letters = started(wanted, "keys")
    answer = group[0].hear(letters[0])
    with pytest.raises(SecureError, match="somebody else"):
        collector.hear(1, answer)
    collector.hear(0, answer)
    with pytest.raises(SecureError, match="nobody waits for"):
        collector.hear(0, answer)
    with pytest.raises(SecureError, match="not in the list of peers"):
        collector.hear(9, Letter("shared", wanted.id, 9, b"", b"").pack())


def test_a_member_that_sends_rubbish_counts_as_gone():
    wanted = session()
    collector, group, letters = started(wanted, "shares")
    for peer, data in letters.items():
        answer = Letter.unpack(group[peer].hear(data))
        if peer == 1:
            answer = identity(1).write("masked", wanted.id, answer.body[:-4])
            with pytest.raises(SecureError, match="wrong length"):
                collector.hear(peer, answer.pack())
        else:
            collector.hear(peer, answer.pack())
    assert collector.waiting == {1}
    for _ in range(2):
        for peer, data in collector.advance().items():
            collector.hear(peer, group[peer].hear(data))
    assert collector.advance() == {}
    assert collector.result.members == (0, 2)
    assert np.array_equal(collector.result.words, plain(wanted, (0, 2)))


def test_shares_of_a_wrong_key_are_noticed():
    wanted = session()
    collector, group, letters = started(wanted, "shares")
    for peer in (0, 1):
        collector.hear(peer, group[peer].hear(letters[peer]))
    letters = collector.advance()
    for peer in (0, 1):
        collector.hear(peer, group[peer].hear(letters[peer]))
    for peer, data in collector.advance().items():
        answer = Letter.unpack(group[peer].hear(data))
        opened = [
            [o, kind, bytes(66) if o == 2 else share] for o, kind, share in unpacked(answer.body)
        ]
        collector.hear(peer, identity(peer).write("open", wanted.id, packed(opened)).pack())
    with pytest.raises(SecureError, match="another key than its own"):
        collector.advance()
