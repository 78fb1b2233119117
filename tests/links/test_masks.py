"""Masks: they look like noise, and take themselves away."""

from __future__ import annotations

import numpy as np

from coterie.links import masks
from coterie.links.collector import Collector
from coterie.links.letters import Letter
from coterie.links.secure import Member, Register
from tests.links.secure_group import (
    PHASES,
    REQUESTER,
    identity,
    session,
)


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
