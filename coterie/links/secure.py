"""Secure aggregation after Bonawitz et al. (2017): a member's side. docs/secure-aggregation.md

No sockets and no clocks: a member is handed each letter of the requester and returns its answer.

    request    who wants the sum of whom      -> key      two fresh public keys, signed
    keys       the members' signed keys       -> shared   for each other member, locked: shares
    shares     the shares locked for me       -> masked   the vector under all masks
    survivors  whose vectors arrived          -> agree    that list, signed
    unmask     what the others signed         -> open     for each a share of its seed or key

Whatever others are said to have written is checked against the list of peers. A requester that
breaks a rule gets no further answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from coterie.core.fixed_point import CLIP, exponents, scale_of
from coterie.links import masks, shamir
from coterie.links.letters import (
    Data,
    Identity,
    Letter,
    SecureError,
    Session,
    bundle,
    packed,
    typed,
    unpacked,
    whole,
)
from coterie.links.masks import MaskError, Words
from coterie.links.quorum import SMALLEST

Numbers = NDArray[np.float64]
SEED, KEY = 0, 1  # the two kinds of shares; nobody ever gets both of one member
LARGEST = 1024  # exponent of a clip
AT_ONCE = 1 << 15  # numbers that are rounded together


@dataclass(frozen=True)
class PublicKeys:
    """What a member says about itself in a session."""

    mask: bytes
    share: bytes
    exponents: tuple[int, ...]  # of the clip of each part

    def pack(self) -> bytes:
        """These keys as bytes."""
        return packed([self.mask, self.share, list(self.exponents)])

    @classmethod
    def unpack(cls, data: Data, session: Session) -> PublicKeys:
        """The keys in these bytes; SecureError where they are none."""
        mask, share, clip = typed(unpacked(data), (bytes, bytes, list))
        found = cls(mask, share, whole(clip))
        if len(mask) != masks.KEY or len(share) != masks.KEY:
            raise SecureError("a public key of the wrong length")
        if len(found.exponents) != len(session.parts):
            raise SecureError("a clip for every part is needed")
        if not all(CLIP <= exponent <= LARGEST for exponent in found.exponents):
            raise SecureError("a clip out of range")
        return found


class Register:
    """The sums a peer took part in: one for each requester and superstep, in order, never twice."""

    def __init__(self) -> None:
        self._last: dict[tuple[bytes, int], tuple[int, int]] = {}

    def claim(self, session: Session) -> None:
        """Take part in a session; SecureError where the requester had its sum of this superstep."""
        who, place = (session.run, session.requester), (session.round, session.superstep)
        if place <= self._last.get(who, (-1, -1)):
            raise SecureError("a second sum in one superstep: two sums give away a model")
        self._last[who] = place


class Member:
    """One member of a group, for one session; `parts` is its vector, as finite numbers.

    `clips` are the exponents that it says it needs; None: those of `parts`.
    """

    def __init__(
        self,
        identity: Identity,
        register: Register,
        parts: Sequence[Numbers],
        clips: tuple[int, ...] | None = None,
    ) -> None:
        if not all(np.isfinite(part).all() for part in parts):
            raise SecureError("a diverged model cannot be added up")
        self.identity = identity
        self.me = identity.me
        self.register = register
        self.parts = parts
        self.clips = clips_of(parts) if clips is None else clips
        self.expects = "request"  # the kind of the next letter; "": it has ended
        self._answers: dict[str, tuple[Callable[[Letter], Letter], str]] = {
            "request": (self._join, "keys"),
            "keys": (self._share, "shares"),
            "shares": (self._mask, "survivors"),
            "survivors": (self._agree, "unmask"),
            "unmask": (self._open, ""),
        }

    def hear(self, data: bytes) -> bytes:
        """The answer to a letter of the requester; SecureError, and no more, where it cheats."""
        letter = self.identity.read(data)
        if letter.kind != self.expects:
            raise SecureError(f"a letter {letter.kind!r:.20}, and {self.expects!r} is due")
        if self.expects != "request":
            self._check_requester(letter)
        answer, after = self._answers[letter.kind]
        self.expects = ""  # until the letter proves good
        try:
            reply = answer(letter)
        except (MaskError, shamir.ShareError) as error:
            raise SecureError(str(error)) from None
        self.expects = after
        return reply.pack()

    def _check_requester(self, letter: Letter) -> None:
        if letter.session != self.session.id or letter.sender != self.session.requester:
            raise SecureError("a letter of another session")

    def _join(self, letter: Letter) -> Letter:
        """Phase 1: two fresh keys for this session alone."""
        session = Session.unpack(letter.body)
        if letter.session != session.id or letter.sender != session.requester:
            raise SecureError("a session that is not the sender's")
        if self.me not in session.group:
            raise SecureError(f"peer {self.me} is not in the group")
        if session.parts != tuple(len(part) for part in self.parts):
            raise SecureError("the session is about another vector")
        self.register.claim(session)
        self.session = session
        self._mask_key, self._share_key = masks.new_secret(), masks.new_secret()
        public = PublicKeys(
            masks.public_of(self._mask_key), masks.public_of(self._share_key), self.clips
        )
        self._mine = self._write("key", public.pack())
        return self._mine

    def _share(self, letter: Letter) -> Letter:
        """Phase 2: shares of the seed and of the mask key, locked for their holders."""
        letters = [self.identity.read(data) for data in bundle(unpacked(letter.body))]
        self.keys = read_keys(letters, self.session)
        if self._mine not in letters:
            raise SecureError("somebody else's keys instead of mine")
        self._digest = digest_of(self.keys)
        self._seed = masks.new_secret()
        numbers = {peer: self.session.number(peer) for peer in self.keys}
        least = self.session.threshold
        seeds = shamir.split(self._seed, least, numbers.values())
        keys = shamir.split(self._mask_key, least, numbers.values())
        self._held = {self.me: (seeds[numbers[self.me]], keys[numbers[self.me]])}
        locked = [
            self._write("share", self._locked(peer, seeds[number] + keys[number])).pack()
            for peer, number in numbers.items()
            if peer != self.me
        ]
        return self._write("shared", packed(locked))

    def _locked(self, peer: int, text: bytes) -> bytes:
        key = masks.agree(self._share_key, self.keys[peer].share, self._purpose(self.me, peer))
        return packed([peer, self._digest, masks.lock(key, text, self._digest)])

    def _purpose(self, sender: int, receiver: int) -> bytes:
        return packed(["share", self.session.id, sender, receiver])

    def _mask(self, letter: Letter) -> Letter:
        """Phase 3: the vector, under one mask of its own and one with each other member."""
        for data in bundle(unpacked(letter.body)):
            self._take_share(self.identity.read(data))
        enough(self._held, self.session)
        words = encoded(self.parts, self.keys, self.session)
        masks.add_stream(words, seed_stream(self._seed, self.session), 1)
        for peer in self._held:
            if peer != self.me:
                mask_pair(words, self.me, peer, self._mask_key, self.keys, self.session)
        return self._write("masked", words.astype("<u4", copy=False).view(np.uint8).data)

    def _take_share(self, letter: Letter) -> None:
        receiver, digest, locked = typed(unpacked(letter.body), (int, bytes, bytes))
        if letter.kind != "share" or letter.session != self.session.id or receiver != self.me:
            raise SecureError("a share for somebody else")
        if letter.sender not in self.keys or letter.sender in self._held:
            raise SecureError("a share of nobody, or a second one")
        if digest != self._digest:
            raise SecureError("members were told of different keys")
        about = self._purpose(letter.sender, self.me)
        key = masks.agree(self._share_key, self.keys[letter.sender].share, about)
        text = masks.unlock(key, locked, digest)
        if len(text) != 2 * shamir.SHARE:
            raise SecureError("a malformed share")
        self._held[letter.sender] = text[: shamir.SHARE], text[shamir.SHARE :]

    def _agree(self, letter: Letter) -> Letter:
        """Phase 4: whose vectors are in the sum; signed, so that all members see the same list."""
        self._alive = survivors(whole(unpacked(letter.body)), self._held, self.session)
        if self.me not in self._alive:
            raise SecureError("a sum without me")
        text = packed([self._digest, sorted(self._held), list(self._alive)])
        self._agreed = self._write("agree", text)
        return self._agreed

    def _open(self, letter: Letter) -> Letter:
        """Phase 5: of each member one share, of its seed if it is in the sum, else of its key."""
        signers = set()
        for data in bundle(unpacked(letter.body)):
            one = self.identity.read(data)
            if (one.kind, one.session, one.body) != ("agree", self.session.id, self._agreed.body):
                raise SecureError("members were told of different survivors")
            signers.add(one.sender)
        if not signers <= set(self._alive):
            raise SecureError("a signature of somebody who is not in the sum")
        enough(signers, self.session)
        opened = [[peer, *self._opened(peer)] for peer in sorted(self._held)]
        return self._write("open", packed(opened))

    def _opened(self, peer: int) -> tuple[int, bytes]:
        kind = SEED if peer in self._alive else KEY
        return kind, self._held[peer][kind]

    def _write(self, kind: str, body: Data) -> Letter:
        return self.identity.write(kind, self.session.id, body)


def clips_of(parts: Sequence[Numbers]) -> tuple[int, ...]:
    """The exponents of the clips that the parts of a vector need."""
    return tuple(int(exponents(torch.from_numpy(part)[None])) for part in parts)


def read_keys(letters: Sequence[Letter], session: Session) -> dict[int, PublicKeys]:
    """The members' keys by id, each signed by its owner for this session."""
    found: dict[int, PublicKeys] = {}
    for letter in letters:
        if letter.kind != "key" or letter.session != session.id:
            raise SecureError("keys of another session")
        if letter.sender not in session.group or letter.sender in found:
            raise SecureError("keys of nobody in the group, or a second time")
        found[letter.sender] = PublicKeys.unpack(letter.body, session)
    every = [key for keys in found.values() for key in (keys.mask, keys.share)]
    if len(set(every)) < len(every):
        raise SecureError("two equal keys")
    enough(found, session)
    return dict(sorted(found.items()))


def enough(members: Sequence[int] | set[int] | Mapping[int, object], session: Session) -> None:
    """SecureError unless so many members are enough to go on."""
    if len(members) < max(session.threshold, SMALLEST):
        raise SecureError(f"{len(members)} members are left, and {session.threshold} are needed")


def survivors(
    alive: tuple[int, ...], held: Mapping[int, object], session: Session
) -> tuple[int, ...]:
    """A list of members that are in the sum, checked."""
    if list(alive) != sorted(set(alive)) or not set(alive) <= set(held):
        raise SecureError("survivors that nobody knows")
    enough(alive, session)
    return alive


def digest_of(keys: Mapping[int, PublicKeys]) -> bytes:
    """32 bytes that stand for all members' keys."""
    text = packed([[peer, one.pack()] for peer, one in sorted(keys.items())])
    return hashlib.sha256(text).digest()


def scales(keys: Mapping[int, PublicKeys], session: Session) -> list[float]:
    """The scale of each part: what the largest of the members' clips allows."""
    clips = zip(*(one.exponents for one in keys.values()), strict=True)
    terms = torch.tensor(len(session.group))
    return [float(scale_of(terms, torch.tensor(max(clip)))) for clip in clips]


def encoded(parts: Sequence[Numbers], keys: Mapping[int, PublicKeys], session: Session) -> Words:
    """A vector in fixed point: uint32 [words], as `fixed_point.encode` makes it."""
    words = np.empty(session.words, dtype=np.int32)  # no number needs more bits: see `scale_of`
    ends = np.cumsum(session.parts)[:-1]
    for part, scale, out in zip(parts, scales(keys, session), np.split(words, ends), strict=True):
        _encode(part, scale, out)
    return words.view(np.uint32)


def _encode(part: Numbers, scale: float, out: NDArray[np.int32]) -> None:
    """The nearest whole numbers, piece by piece: the way between does not leave the cache."""
    way = np.empty(min(AT_ONCE, len(part)))
    for start in range(0, len(part), AT_ONCE):
        piece = part[start : start + AT_ONCE]
        scaled = np.multiply(piece, scale, out=way[: len(piece)])
        out[start : start + AT_ONCE] = np.rint(scaled, out=scaled)


def seed_stream(seed: bytes, session: Session) -> bytes:
    """The key of a member's own mask."""
    return masks.derive(seed, packed(["seed", session.id]))


def mask_pair(
    words: Words,
    me: int,
    peer: int,
    secret: bytes,
    keys: Mapping[int, PublicKeys],
    session: Session,
) -> None:
    """Add the mask that two members have in common: one adds what the other takes away."""
    info = packed(["mask", session.id, min(me, peer), max(me, peer)])
    masks.add_stream(words, masks.agree(secret, keys[peer].mask, info), 1 if peer > me else -1)
