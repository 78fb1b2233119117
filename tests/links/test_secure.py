"""Secure aggregation: the sum is right, and nothing else is learnt."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
import torch

from coterie.core.fixed_point import MODULUS, encode, exponents, scale_of
from coterie.links import masks, shamir
from coterie.links.collector import Collector
from coterie.links.letters import Letter, SecureError, Session, packed, unpacked
from coterie.links.secure import Member, PublicKeys, Register
from tests.links.secure_group import (
    PHASES,
    REQUESTER,
    RUN,
    carry,
    identity,
    members,
    session,
    vectors,
)


def plain(wanted, alive, spread=1.0):
    """The fixed-point sum of some members' vectors, without any mask: uint32 [words]."""
    made = vectors(wanted, spread)
    terms, sums = torch.tensor(len(wanted.group)), []
    for part in range(len(wanted.parts)):
        rows = torch.tensor(np.stack([made[peer][part] for peer in wanted.group]))
        scale = scale_of(terms, exponents(rows).amax())
        kept = [wanted.group.index(peer) for peer in alive]
        sums.append(encode(rows[kept], scale).sum(0) % MODULUS)
    return torch.cat(sums).numpy().astype(np.uint32)


def played(wanted, drop=None, spread=1.0):
    collector = Collector(identity(REQUESTER), wanted)
    carry(collector, members(wanted, spread), drop)
    return collector.result


@pytest.mark.parametrize("group", [(0, 1), (0, 1, 2), (1, 3, 4, 6), (0, 1, 2, 3, 4, 5)])
@pytest.mark.parametrize("spread", [0.1, 1e4])
def test_the_sum_is_the_plain_fixed_point_sum_bit_for_bit(group, spread):
    wanted = session(group, len(group) // 2 + 1)
    found = played(wanted, spread=spread)
    assert np.array_equal(found.words, plain(wanted, group, spread))
    expected = [sum(parts) for parts in zip(*vectors(wanted, spread).values(), strict=True)]
    for part, total in zip(found.parts, expected, strict=True):
        assert np.allclose(part, total, rtol=0, atol=1e-6 * max(1.0, spread))
    assert found.members == group


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_member_may_drop_out_in_every_phase(phase, gone):
    wanted = session()
    counted = phase in ("survivors", "unmask")  # its vector had arrived
    alive = tuple(peer for peer in wanted.group if counted or peer != gone)
    found = played(wanted, {gone: phase})
    assert found.members == alive
    assert np.array_equal(found.words, plain(wanted, alive))


def test_several_members_may_drop_out_in_different_phases():
    wanted = session((0, 1, 2, 3, 4, 5), 3 + 1)
    found = played(wanted, {1: "shares", 4: "unmask"})
    assert found.members == (0, 2, 3, 4, 5)
    assert np.array_equal(found.words, plain(wanted, found.members))


@pytest.mark.parametrize("phase", PHASES)
def test_fewer_members_than_the_threshold_give_no_sum(phase):
    wanted = session()
    collector = Collector(identity(REQUESTER), wanted)
    with pytest.raises(SecureError, match="1 members are left, and 2 are needed"):
        carry(collector, members(wanted), {0: phase, 2: phase})
    assert collector.result is None


@pytest.mark.parametrize("phase", PHASES)
def test_where_all_are_needed_nobody_may_drop_out(phase):
    wanted = session(threshold=3)
    assert played(wanted).members == (0, 1, 2)
    with pytest.raises(SecureError, match="2 members are left, and 3 are needed"):
        played(wanted, {1: phase})


@pytest.mark.parametrize(
    ("group", "threshold"),
    [
        ((0,), 1),
        ((0,), 2),
        ((0, 1, 2), 1),
        ((0, 1, 2, 3), 2),
        ((0, 1), 3),
        ((1, 0), 2),
        ((0, 0), 2),
    ],
)
def test_there_is_no_session_that_could_open_a_single_model(group, threshold):
    with pytest.raises(SecureError):
        session(group, threshold)


def test_a_requester_is_no_member_of_its_own_group():
    with pytest.raises(SecureError, match="a set of other peers"):
        session((0, 1, REQUESTER))


def test_a_masked_vector_looks_like_noise():
    """Chi-squared over the bytes of what three members send whose vectors are all zeros."""
    wanted = session(parts=(20_000,))
    group = {peer: Member(identity(peer), Register(), [np.zeros(20_000)]) for peer in wanted.group}
    seen = []

    collector = Collector(identity(REQUESTER), wanted)
    letters = collector.begin()
    for phase in PHASES[:3]:
        for peer, data in letters.items():
            answer = group[peer].hear(data)
            collector.hear(peer, answer)
            seen += [Letter.unpack(answer).body] if phase == "shares" else []
        letters = collector.advance()
    assert len(seen) == 3
    for body in seen:
        counts = np.bincount(np.frombuffer(body, dtype=np.uint8), minlength=256)
        expected = len(body) / 256
        statistic = ((counts - expected) ** 2 / expected).sum()
        assert 255 - 8 * np.sqrt(2 * 255) < statistic < 255 + 8 * np.sqrt(2 * 255)  # 8 deviations
    assert len({body[:64] for body in seen}) == 3


def test_the_stream_of_a_fixed_key_is_uniform_and_its_own_inverse():
    words = np.zeros(masks.AT_ONCE + 77, dtype=np.uint32)
    masks.add_stream(words, bytes(range(32)), 1)
    bits = np.unpackbits(words.view(np.uint8))
    assert abs(bits.mean() - 0.5) < 5 / np.sqrt(len(bits))
    counts = np.bincount(words.view(np.uint8), minlength=256)
    expected = 4 * len(words) / 256
    assert ((counts - expected) ** 2 / expected).sum() < 255 + 6 * np.sqrt(2 * 255)
    neighbors = np.corrcoef(words[:-1].astype(float), words[1:].astype(float))[0, 1]
    assert abs(neighbors) < 0.01
    masks.add_stream(words, bytes(range(32)), -1)
    assert not words.any()


def test_shares_below_the_threshold_say_nothing_and_any_threshold_of_them_says_all():
    secret = bytes(range(32))
    shares = shamir.split(secret, 3, [1, 2, 3, 4, 5])
    for some in itertools.combinations(shares, 3):
        assert shamir.join({x: shares[x] for x in some}, 3) == secret
    with pytest.raises(shamir.ShareError, match="2 shares, and 3 are needed"):
        shamir.join({1: shares[1], 2: shares[2]}, 3)
    with pytest.raises(shamir.ShareError):
        shamir.join({1: shares[1], 2: shares[2], 4: shares[3]}, 3)


@pytest.mark.parametrize("share", [b"", bytes(65), b"\xff" * 66])
def test_malformed_shares_are_refused(share):
    with pytest.raises(shamir.ShareError, match="malformed"):
        shamir.join({1: share, 2: bytes(66)}, 2)


# a requester that cheats


def forged(kind, wanted, body, sender=REQUESTER):
    """A letter as the requester itself would sign it."""
    return identity(sender).write(kind, wanted.id, body).pack()


def started(wanted, until):
    """A collector and members that have answered all phases before this one, and its letters."""
    collector, group = Collector(identity(REQUESTER), wanted), members(wanted)
    letters = collector.begin()
    for _ in PHASES[: PHASES.index(until)]:
        for peer, data in letters.items():
            collector.hear(peer, group[peer].hear(data))
        letters = collector.advance()
    return collector, group, letters


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


def test_a_requester_gets_one_sum_in_a_superstep():
    """Two sums that differ by one member would give that member's model away."""
    register, parts = Register(), [np.zeros(50), np.zeros(1)]
    first, second = session((0, 1, 2)), session((0, 1), nonce=b"x" * 16)
    later = session((0, 1), t=1)
    Member(identity(0), register, parts).hear(forged("request", first, first.pack()))
    for again in (first, second):
        with pytest.raises(SecureError, match="a second sum in one superstep"):
            Member(identity(0), register, parts).hear(forged("request", again, again.pack()))
    Member(identity(0), register, parts).hear(forged("request", later, later.pack()))
    with pytest.raises(SecureError, match="a second sum"):
        Member(identity(0), register, parts).hear(forged("request", first, first.pack()))


def test_sums_of_two_rounds_give_away_a_model_that_stood_still():
    """A limit of secure aggregation, not a mistake: docs/secure-aggregation.md tells of it."""
    with_two, without = played(session((0, 1, 2))), played(session((0, 1), t=1))
    left = [both - fewer for both, fewer in zip(with_two.parts, without.parts, strict=True)]
    for part, model in zip(left, vectors(session((0, 1, 2)))[2], strict=True):
        assert np.allclose(part, model, rtol=0, atol=1e-7)


def test_another_vector_than_the_members_is_refused():
    wanted = session(parts=(49, 1))
    member = Member(identity(0), Register(), [np.zeros(50), np.zeros(1)])
    with pytest.raises(SecureError, match="another vector"):
        member.hear(forged("request", wanted, wanted.pack()))


def test_a_diverged_model_is_not_added_up():
    with pytest.raises(SecureError, match="diverged"):
        Member(identity(0), Register(), [np.array([1.0, np.nan])])


# hostile frames


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


def test_a_session_survives_its_way_as_bytes():
    wanted = session((1, 4, 6), 3, (7, 1), 9)
    assert Session.unpack(wanted.pack()) == wanted
    assert wanted.id != session((1, 4, 6), 3, (7, 1), 8).id
    assert wanted.run == RUN
