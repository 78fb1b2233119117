"""Shares of a secret: too few say nothing."""

from __future__ import annotations

import itertools

import pytest

from coterie.links import shamir


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
