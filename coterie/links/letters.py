"""Signed letters of secure aggregation, and the session that all of them name.

A letter counts only if the certificate in the list of peers says that its sender signed it, for
this session and for this purpose; who carried it does not matter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgpack
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from coterie.links.quorum import SMALLEST, quorum

MEMBERS = 1 << 12  # of a group at most
WORDS = 1 << 30  # of a vector at most
Data = bytes | memoryview
_CONTEXT = b"coterie secure aggregation 1\0"


class SecureError(ValueError):
    """A letter or a request that is not what it should be; whoever gets it answers nothing."""


@dataclass(frozen=True)
class Session:
    """One sum: who wants it, when, of whom and of what; its id follows from all of that."""

    run: bytes  # 16 bytes
    round: int
    superstep: int
    requester: int
    group: tuple[int, ...]  # ascending
    threshold: int  # members without whom nothing is opened
    parts: tuple[int, ...]  # words of each part of the vector; each has its own scale
    nonce: bytes  # 16 bytes

    def __post_init__(self) -> None:
        if list(self.group) != sorted(set(self.group)) or self.requester in self.group:
            raise SecureError("a group is a set of other peers, in order")
        if not SMALLEST <= len(self.group) <= MEMBERS:
            raise SecureError(f"a group has {SMALLEST} members or more, got {len(self.group)}")
        if not quorum(len(self.group)) <= self.threshold <= len(self.group):
            raise SecureError(f"threshold {self.threshold} is no majority of {len(self.group)}")
        if not self.parts or min(self.parts) < 1 or sum(self.parts) > WORDS:
            raise SecureError("a vector has parts of one word or more")
        if len(self.run) != 16 or len(self.nonce) != 16 or self.round < 0 or self.superstep < 0:
            raise SecureError("a session names a run, a round and a nonce")

    @cached_property
    def id(self) -> bytes:
        """32 bytes that only this session has."""
        return hashlib.sha256(_CONTEXT + self.pack()).digest()

    @property
    def words(self) -> int:
        """The length of the vector."""
        return sum(self.parts)

    def number(self, member: int) -> int:
        """The number of a member as a holder of shares, from 1."""
        return self.group.index(member) + 1

    def pack(self) -> bytes:
        """The session as bytes."""
        return packed(_fields(self))

    @classmethod
    def unpack(cls, data: Data) -> Session:
        """The session in these bytes; SecureError where they are none."""
        run, when, step, who, group, least, parts, nonce = typed(
            unpacked(data), (bytes, int, int, int, list, int, list, bytes)
        )
        return cls(run, when, step, who, whole(group), least, whole(parts), nonce)


def _fields(session: Session) -> list[Any]:
    s = session
    group, parts = list(s.group), list(s.parts)
    return [s.run, s.round, s.superstep, s.requester, group, s.threshold, parts, s.nonce]


@dataclass(frozen=True)
class Letter:
    """What one peer said in a session, and its signature."""

    kind: str
    session: bytes
    sender: int
    body: Data
    signature: bytes

    def pack(self) -> bytes:
        """The letter as bytes: a list in msgpack, in which a long body is copied once."""
        fields = (self.kind, self.session, self.sender)
        head = b"\x95" + b"".join(map(packed, fields)) + _long(len(self.body))
        return b"".join((head, self.body, packed(self.signature)))

    @classmethod
    def unpack(cls, data: bytes) -> Letter:
        """The letter in these bytes; SecureError where they are none."""
        return cls(*typed(unpacked(data), (str, bytes, int, bytes, bytes)))

    @property
    def signed(self) -> bytes:
        """What the signature is about."""
        about = packed([self.kind, self.session, self.sender])
        return _CONTEXT + about + hashlib.sha256(self.body).digest()


class Identity:
    """A peer's long-term key, and the certificates of all others, by id, as PEM."""

    def __init__(self, me: int, key: bytes, certificates: Mapping[int, bytes]) -> None:
        self.me = me
        self._key = load_pem_private_key(key, password=None)
        self._known = {peer: _public(pem) for peer, pem in certificates.items()}

    def write(self, kind: str, session: bytes, body: Data) -> Letter:
        """A letter signed by this peer."""
        letter = Letter(kind, session, self.me, body, b"")
        assert isinstance(self._key, ec.EllipticCurvePrivateKey)
        signature = self._key.sign(letter.signed, ec.ECDSA(SHA256()))
        return Letter(kind, session, self.me, body, _flat(signature, self._key.curve))

    def read(self, data: bytes) -> Letter:
        """The letter in these bytes, its signature checked against the list of peers."""
        letter = Letter.unpack(data)
        public = self._known.get(letter.sender)
        if public is None:
            raise SecureError(f"a letter of {letter.sender}, who is not in the list of peers")
        try:
            signature = _nested(letter.signature, public.curve)
            public.verify(signature, letter.signed, ec.ECDSA(SHA256()))
        except InvalidSignature:
            raise SecureError(f"a letter that peer {letter.sender} did not sign") from None
        return letter


def _flat(signature: bytes, curve: ec.EllipticCurve) -> bytes:
    """The two numbers of a signature side by side: always equally long, unlike DER."""
    size = -(-curve.key_size // 8)
    return b"".join(number.to_bytes(size, "big") for number in decode_dss_signature(signature))


def _nested(signature: bytes, curve: ec.EllipticCurve) -> bytes:
    """The same as DER; InvalidSignature where it has another length."""
    size = -(-curve.key_size // 8)
    if len(signature) != 2 * size:
        raise InvalidSignature
    first, second = signature[:size], signature[size:]
    return encode_dss_signature(int.from_bytes(first, "big"), int.from_bytes(second, "big"))


def _public(pem: bytes) -> ec.EllipticCurvePublicKey:
    public = x509.load_pem_x509_certificate(pem).public_key()
    if not isinstance(public, ec.EllipticCurvePublicKey):
        raise SecureError("a certificate without an elliptic-curve key")
    return public


def packed(value: Any) -> bytes:
    """Plain values as bytes."""
    data: bytes = msgpack.packb(value)
    return data


def _long(size: int) -> bytes:
    """How msgpack begins so many bytes."""
    if size < 1 << 8:
        return b"\xc4" + size.to_bytes(1, "big")
    if size < 1 << 16:
        return b"\xc5" + size.to_bytes(2, "big")
    return b"\xc6" + size.to_bytes(4, "big")


def unpacked(data: Data) -> Any:
    """Plain values out of bytes that anybody may have written."""
    try:
        return msgpack.unpackb(data, max_map_len=0)
    except (ValueError, msgpack.UnpackException, RecursionError):
        raise SecureError("unreadable bytes") from None


def typed(value: Any, types: tuple[type, ...]) -> list[Any]:
    """A list whose entries have exactly these types."""
    if not isinstance(value, list) or [type(entry) for entry in value] != list(types):
        raise SecureError("not the expected fields")
    return value


def whole(value: Any) -> tuple[int, ...]:
    """A list of whole numbers."""
    if not isinstance(value, list) or any(type(entry) is not int for entry in value):
        raise SecureError("not a list of whole numbers")
    return tuple(value)


def bundle(value: Any) -> list[bytes]:
    """A list of bytes, no more than a group can write to a member."""
    if not isinstance(value, list) or any(type(entry) is not bytes for entry in value):
        raise SecureError("not a list of letters")
    if len(value) > MEMBERS:
        raise SecureError(f"{len(value)} letters in one")
    return value
