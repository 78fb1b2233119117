"""Secure aggregation: the sum is right, whoever drops out, and no session opens a single model."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.links.collector import Collector
from coterie.links.letters import SecureError, Session
from coterie.links.secure import Member, Register
from tests.links.secure_group import (
    PHASES,
    REQUESTER,
    RUN,
    carry,
    forged,
    identity,
    members,
    plain,
    played,
    session,
    vectors,
)


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


def test_a_session_survives_its_way_as_bytes():
    wanted = session((1, 4, 6), 3, (7, 1), 9)
    assert Session.unpack(wanted.pack()) == wanted
    assert wanted.id != session((1, 4, 6), 3, (7, 1), 8).id
    assert wanted.run == RUN
