"""Control messages of a link through a broker: signed, so that the broker need not be trusted.

    msgpack([head, signature, body])      head = msgpack of the fields below but the body

The signature covers the run, who sends to whom, and the head; the head holds the sha256 of the
body, or of what lies in the store. Both ends put their session into every note: what was recorded
in another life of either of them is not accepted again.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgpack

from coterie.errors import InputError

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
except ImportError:
    raise InputError("this link needs cryptography: pip install 'coterie[peer]'") from None

KINDS = ("hello", "frame", "ack", "bye")
NOBODY = bytes(16)  # stands for a session that is not known yet
_CONTEXT = struct.Struct(">16s16sqq")
_HEAD_LIMIT = 4096  # bytes
_FIELDS = (str, bytes, bytes, int, int, bool, bytes, int, str)


class NoteError(ValueError):
    """A control message that is not what it should be, or not from whom it should be."""


@dataclass(frozen=True)
class Note:
    """What one peer tells another through the broker."""

    kind: str  # "hello" (I am here), "frame", "ack", "bye" (I leave)
    session: bytes  # of the sender: 16 random bytes per life of a peer
    toward: bytes  # the session of the receiver, as far as the sender knows it
    sequence: int  # of a frame; else the highest that has arrived here
    base: int  # the oldest frame that the sender still holds; else the highest that was handled
    reply: bool = False  # a hello that asks for one
    digest: bytes = b""  # sha256 of the body or of what lies in the store
    size: int = 0  # bytes of the frame
    url: str = ""  # where the frame lies, if not in the body
    body: bytes = b""  # a small frame; the certificate of who says hello


@dataclass(frozen=True)
class Route:
    """Whose note it is, to whom, in which run."""

    run: bytes
    sender: int
    receiver: int

    def context(self) -> bytes:
        """What a signature covers besides the head."""
        return _CONTEXT.pack(b"coterie/mqtt/1", self.run, self.sender, self.receiver)


@dataclass(frozen=True)
class Identity:
    """A peer's long-term key and the certificate that others know by its fingerprint."""

    key: ec.EllipticCurvePrivateKey
    certificate: bytes  # DER

    @classmethod
    def of(cls, key: bytes, certificate: bytes) -> Identity:
        """From PEM."""
        try:
            private = serialization.load_pem_private_key(key, password=None)
            public = x509.load_pem_x509_certificate(certificate)
        except (ValueError, TypeError) as error:
            raise InputError(f"not a key and a certificate in PEM: {error}") from None
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise InputError("not an elliptic-curve key; make one with: coterie keys new")
        if private.public_key() != public.public_key():
            raise InputError("the key is not that of the certificate")
        return cls(private, public.public_bytes(serialization.Encoding.DER))

    @property
    def fingerprint(self) -> str:
        """By which the others know the certificate: its sha256."""
        return hashlib.sha256(self.certificate).hexdigest()


class Seal:
    """Signs as one peer, and checks the others by the fingerprints of their certificates.

    Without an identity nothing is signed and everything is believed: loopback only.
    """

    def __init__(self, identity: Identity | None, fingerprints: Mapping[int, str]) -> None:
        self.identity = identity
        self._pins = {peer: plain(pin) for peer, pin in fingerprints.items()}
        self._keys: dict[int, ec.EllipticCurvePublicKey] = {}

    def sign(self, data: bytes) -> bytes:
        """The signature of data, empty without an identity."""
        if self.identity is None:
            return b""
        return self.identity.key.sign(data, ec.ECDSA(hashes.SHA256()))

    def check(self, peer: int, data: bytes, signature: bytes) -> None:
        """NoteError unless this peer signed."""
        if self.identity is None:
            return
        if peer not in self._keys:
            raise NoteError(f"peer {peer} has not shown its certificate yet")
        try:
            self._keys[peer].verify(signature, data, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            raise NoteError(f"the signature is not that of peer {peer}") from None

    def admit(self, peer: int, certificate: bytes) -> None:
        """Take the key of a certificate, if its fingerprint is the one known for this peer."""
        if self.identity is None or peer in self._keys:
            return
        found = hashlib.sha256(certificate).hexdigest()
        if found != self._pins.get(peer):
            raise NoteError(f"peer {peer} shows a certificate with unknown fingerprint {found}")
        key = x509.load_der_x509_certificate(certificate).public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise NoteError(f"the key of peer {peer} is not an elliptic-curve key")
        self._keys[peer] = key


def encode(note: Note, route: Route, seal: Seal) -> bytes:
    """A note as the payload of a message."""
    digest = note.digest if note.url else hashlib.sha256(note.body).digest()
    head = msgpack.packb(
        [
            *(note.kind, note.session, note.toward, note.sequence, note.base),
            *(note.reply, digest, note.size, note.url),
        ]
    )
    made: bytes = msgpack.packb([head, seal.sign(route.context() + head), note.body])
    return made


def decode(payload: bytes, route: Route, seal: Seal, limit: int) -> Note:
    """The note in a payload; NoteError unless it is well-formed and its sender's."""
    head, signature, body = _parts(payload, limit)
    note = _note(head, body)
    if note.kind == "hello":
        seal.admit(route.sender, body)
    seal.check(route.sender, route.context() + head, signature)
    if not note.url and hashlib.sha256(body).digest() != note.digest:
        raise NoteError("the body does not have the sha256 of the head")
    return note


def _parts(payload: bytes, limit: int) -> tuple[bytes, bytes, bytes]:
    try:
        parts = msgpack.unpackb(payload, max_bin_len=max(limit, _HEAD_LIMIT), max_array_len=3)
    except (ValueError, msgpack.UnpackException) as error:
        raise NoteError(f"unreadable: {error}") from None
    if not isinstance(parts, list) or [type(part) for part in parts] != [bytes, bytes, bytes]:
        raise NoteError("not a note: head, signature and body expected")
    head, signature, body = parts
    if len(head) > _HEAD_LIMIT:
        raise NoteError(f"a head of {len(head)} bytes; at most {_HEAD_LIMIT}")
    return head, signature, body


def _note(head: bytes, body: bytes) -> Note:
    try:
        fields: Any = msgpack.unpackb(head, max_array_len=len(_FIELDS))
    except (ValueError, msgpack.UnpackException) as error:
        raise NoteError(f"unreadable head: {error}") from None
    if not isinstance(fields, list) or tuple(type(field) for field in fields) != _FIELDS:
        raise NoteError("the head does not have the expected fields")
    note = replace(Note(*fields), body=body)
    sessions = len(note.session) == len(note.toward) == 16 and note.session != NOBODY
    if note.kind not in KINDS or not sessions:
        raise NoteError("a field of the head is malformed")
    if min(note.sequence, note.base, note.size) < 0:
        raise NoteError("a number in the head is negative")
    if note.kind == "frame" and len(body) != (0 if note.url else note.size):
        raise NoteError(f"a frame of {note.size} bytes announced, {len(body)} came")
    return note


def plain(fingerprint: str) -> str:
    """A fingerprint without colons and capitals."""
    return fingerprint.replace(":", "").lower()
