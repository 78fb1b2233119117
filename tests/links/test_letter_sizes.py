"""The bytes that a simulation counts for a secure sum are those that the real protocol sends."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from coterie.links.collector import Collector
from coterie.links.letter_sizes import secure_sum_bytes
from coterie.links.letters import Identity, Letter, SecureError, Session
from coterie.links.quorum import quorum
from coterie.links.secure import Member, Register
from coterie.runtimes.seals import letter_frame
from tests.links.secure_group import RUN, identity, long_term


def sent(session: Session, place: tuple[int, int]) -> tuple[int, list[int]]:
    """What a session really sends, frame by frame."""
    everybody = (session.requester, *session.group)
    keys = {peer: long_term(number) for number, peer in enumerate(everybody)}
    known = {peer: key.certificate for peer, key in keys.items()}
    make = {peer: Identity(peer, key.key, known) for peer, key in keys.items()}
    parts = [np.linspace(-1, 1, size) for size in session.parts]
    members = {peer: Member(make[peer], Register(), parts) for peer in session.group}
    collector, bytes_ = Collector(make[session.requester], session), Counter()
    letters = collector.begin()
    while letters:
        for peer, letter in letters.items():
            answer = members[peer].hear(letter)
            collector.hear(peer, answer)
            bytes_[session.requester] += len(letter_frame(RUN, session.requester, place, letter))
            bytes_[peer] += len(letter_frame(RUN, peer, place, answer))
        letters = collector.advance()
    return bytes_[session.requester], [bytes_[peer] for peer in session.group]


@pytest.mark.parametrize(
    ("group", "requester", "place", "parts"),
    [
        ((0, 1), 2, (0, 0), (1,)),
        ((0, 1, 2), 7, (149, 0), (73418, 1)),
        ((1, 127, 128), 3, (127, 1), (50, 128)),
        ((5, 255, 256, 65535), 300, (128, 1), (255, 256, 3)),
        ((0, 65536, 70000), 129, (65536, 2), (16384,)),
        (tuple(range(20)), -1, (255, 1), (300, 1)),
    ],
    ids=str,
)
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_every_byte_is_counted(group, requester, place, parts, share):
    least = quorum(len(group), share)
    session = Session(RUN, *place, requester, group, least, parts, bytes(16))
    assert secure_sum_bytes(place, requester, group, least, parts) == sent(session, place)


def test_signatures_are_equally_long_and_others_are_refused():
    letters = [identity(0).write("key", bytes(32), bytes([n])) for n in range(40)]
    assert {len(letter.signature) for letter in letters} == {64}
    assert all(identity(1).read(letter.pack()) == letter for letter in letters)
    for signature in (b"", letters[0].signature[:-1], letters[0].signature + b"\0", bytes(64)):
        broken = Letter("key", bytes(32), 0, b"\0", signature)
        with pytest.raises(SecureError, match="peer 0 did not sign"):
            identity(1).read(broken.pack())
