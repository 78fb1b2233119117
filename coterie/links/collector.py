"""Secure aggregation, the requester's side: it carries letters and learns one sum.

    collector = Collector(identity, session)
    letters = collector.begin()                    # member -> bytes
    while letters:
        ...                                        # carry them; hear(member, answer) for each
        letters = collector.advance()              # when nobody is waited for, or it took too long
    collector.result                               # a Sum

Whoever did not answer by then has dropped out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from coterie.links import masks, shamir
from coterie.links.letters import (
    Identity,
    Letter,
    SecureError,
    Session,
    bundle,
    packed,
    typed,
    unpacked,
)
from coterie.links.masks import MaskError, Words
from coterie.links.secure import (
    KEY,
    SEED,
    Numbers,
    PublicKeys,
    digest_of,
    enough,
    mask_pair,
    read_keys,
    scales,
    seed_stream,
)


@dataclass(frozen=True)
class Sum:
    """What a requester learns."""

    words: Words  # [words] modulo 2^32
    parts: list[Numbers]  # the same as numbers
    members: tuple[int, ...]  # whose vectors are in it


class Collector:
    """The requester of one session."""

    def __init__(self, identity: Identity, session: Session) -> None:
        if identity.me != session.requester:
            raise SecureError("a session of somebody else")
        self.identity = identity
        self.session = session
        self.result: Sum | None = None
        self.answers: dict[int, Letter] = {}  # of this phase
        self.asked: set[int] = set()  # in this phase
        self._due = ""  # the kind of the answers
        self._keys: dict[int, PublicKeys] = {}
        self._digest = b""
        self._after: Callable[[], dict[int, bytes]] = self.begin

    @property
    def waiting(self) -> set[int]:
        """Who has not answered in this phase."""
        return self.asked - self.answers.keys()

    def begin(self) -> dict[int, bytes]:
        """The requests, by member."""
        body = self.session.pack()
        return self._ask(
            "request", dict.fromkeys(self.session.group, body), "key", self._relay_keys
        )

    def hear(self, sender: int, data: bytes) -> None:
        """Take a member's answer; SecureError, and it does not count, where it is no good."""
        letter = self.identity.read(data)
        if letter.sender != sender or letter.session != self.session.id:
            raise SecureError("a letter of somebody else, or of another session")
        if letter.kind != self._due or sender not in self.waiting:
            raise SecureError(f"a letter {letter.kind!r:.20} that nobody waits for")
        self._check(letter)
        self.answers[sender] = letter

    def advance(self) -> dict[int, bytes]:
        """The letters of the next phase; none at the end. SecureError where too few are left."""
        enough(self.answers, self.session)
        return self._after()

    def _ask(
        self, kind: str, bodies: dict[int, bytes], due: str, after: Callable[[], dict[int, bytes]]
    ) -> dict[int, bytes]:
        self.asked, self.answers, self._due, self._after = set(bodies), {}, due, after
        write = self.identity.write
        return {to: write(kind, self.session.id, body).pack() for to, body in bodies.items()}

    def _check(self, letter: Letter) -> None:
        checks = {
            "key": self._check_key,
            "shared": self._check_shared,
            "masked": self._check_masked,
            "agree": self._check_agree,
            "open": self._check_open,
        }
        checks[letter.kind](letter)

    def _check_key(self, letter: Letter) -> None:
        PublicKeys.unpack(letter.body, self.session)

    def _relay_keys(self) -> dict[int, bytes]:
        self._keys = read_keys(list(self.answers.values()), self.session)
        self._digest = digest_of(self._keys)
        body = packed([self.answers[member].pack() for member in sorted(self.answers)])
        return self._ask("keys", dict.fromkeys(self._keys, body), "shared", self._relay_shares)

    def _check_shared(self, letter: Letter) -> None:
        receivers = set()
        for data in bundle(unpacked(letter.body)):
            share = self.identity.read(data)
            receiver, digest, _ = typed(unpacked(share.body), (int, bytes, bytes))
            right = (share.kind, share.session, share.sender, digest)
            if right != ("share", self.session.id, letter.sender, self._digest):
                raise SecureError("a share that is not the sender's")
            receivers.add(receiver)
        if receivers != self._keys.keys() - {letter.sender}:
            raise SecureError("shares for some members only")

    def _relay_shares(self) -> dict[int, bytes]:
        self._shared = set(self.answers)
        bodies: dict[int, list[bytes]] = {member: [] for member in self.answers}
        for _, letter in sorted(self.answers.items()):
            for data in bundle(unpacked(letter.body)):
                receiver = unpacked(Letter.unpack(data).body)[0]
                if receiver in bodies:
                    bodies[receiver].append(data)
        sent = {member: packed(letters) for member, letters in bodies.items()}
        return self._ask("shares", sent, "masked", self._tell_survivors)

    def _check_masked(self, letter: Letter) -> None:
        if len(letter.body) != 4 * self.session.words:
            raise SecureError("a vector of the wrong length")

    def _tell_survivors(self) -> dict[int, bytes]:
        self._alive = sorted(self.answers)
        self._total = np.zeros(self.session.words, dtype=np.uint32)
        for letter in self.answers.values():
            self._total += np.frombuffer(letter.body, dtype="<u4")
        self._agreed = packed([self._digest, sorted(self._shared), self._alive])
        bodies = dict.fromkeys(self._alive, packed(self._alive))
        return self._ask("survivors", bodies, "agree", self._request_shares)

    def _check_agree(self, letter: Letter) -> None:
        if letter.body != self._agreed:
            raise SecureError("a signature under another list of survivors")

    def _request_shares(self) -> dict[int, bytes]:
        body = packed([letter.pack() for _, letter in sorted(self.answers.items())])
        return self._ask("unmask", dict.fromkeys(self.answers, body), "open", self._finish)

    def _check_open(self, letter: Letter) -> None:
        self._opened(letter)

    def _opened(self, letter: Letter) -> dict[int, bytes]:
        """A member's shares, by owner."""
        found = {}
        value = unpacked(letter.body)
        for entry in value if isinstance(value, list) else [None]:
            owner, kind, share = typed(entry, (int, int, bytes))
            if kind != (SEED if owner in self._alive else KEY) or len(share) != shamir.SHARE:
                raise SecureError("a share that was not asked for")
            found[owner] = share
        if found.keys() != self._shared:
            raise SecureError("shares of some members only")
        return found

    def _finish(self) -> dict[int, bytes]:
        """Take all masks away: only the sum is left."""
        opened = {member: self._opened(letter) for member, letter in self.answers.items()}
        for owner in sorted(self._shared):
            number = self.session.number
            shares = {number(member): mine[owner] for member, mine in opened.items()}
            try:
                self._unmask(owner, shamir.join(shares, self.session.threshold))
            except (shamir.ShareError, MaskError) as error:
                raise SecureError(f"the shares of member {owner} are no good: {error}") from None
        self.result = Sum(self._total, self._numbers(), tuple(self._alive))
        self.asked, self.answers, self._due = set(), {}, ""
        return {}

    def _unmask(self, owner: int, secret: bytes) -> None:
        if owner in self._alive:
            masks.add_stream(self._total, seed_stream(secret, self.session), -1)
            return
        if masks.public_of(secret) != self._keys[owner].mask:
            raise SecureError(f"the shares of member {owner} give another key than its own")
        for peer in self._alive:  # what it would have added cancels what they did
            mask_pair(self._total, owner, peer, secret, self._keys, self.session)

    def _numbers(self) -> list[Numbers]:
        ends = np.cumsum(self.session.parts)[:-1]
        pieces = zip(np.split(self._total, ends), scales(self._keys, self.session), strict=True)
        return [piece.view(np.int32) / scale for piece, scale in pieces]
