"""Masks that hide a vector of 32-bit words: keys agreed in pairs, and the streams they give.

Library primitives alone: X25519, HKDF with SHA-256, ChaCha20, ChaCha20-Poly1305. Every key is used
for one stream or one message of one session, so that a nonce never meets a key twice.
"""

from __future__ import annotations

import secrets

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

Words = NDArray[np.uint32]

KEY = 32  # bytes of every key and seed
AT_ONCE = 1 << 16  # words of a stream that are in memory together; they fit in a cache
_ONCE = bytes(12)  # the nonce of a key that is used once


class MaskError(ValueError):
    """A key or a message that is no good."""


def new_secret() -> bytes:
    """A private key of X25519, or a seed."""
    return secrets.token_bytes(KEY)


def public_of(secret: bytes) -> bytes:
    """The public key of a private one."""
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def agree(secret: bytes, public: bytes, info: bytes) -> bytes:
    """The key that two members have in common, for the purpose that `info` names."""
    try:
        shared = X25519PrivateKey.from_private_bytes(secret).exchange(
            X25519PublicKey.from_public_bytes(public)
        )
    except ValueError:  # a point of small order, or of the wrong length
        raise MaskError("a public key that agrees on nothing") from None
    return derive(shared, info)


def derive(secret: bytes, info: bytes) -> bytes:
    """A key made of a secret for the purpose that `info` names."""
    return HKDF(algorithm=SHA256(), length=KEY, salt=None, info=info).derive(secret)


def add_stream(words: Words, key: bytes, sign: int) -> None:
    """Add the stream of a key to words, or take it away, modulo 2^32, in place."""
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    zeros = memoryview(bytes(4 * min(AT_ONCE, len(words))))
    mask = np.empty(len(zeros) // 4, dtype="<u4")  # one piece of the stream after the other
    for start in range(0, len(words), AT_ONCE):
        piece = words[start : start + AT_ONCE]
        stream.update_into(zeros[: 4 * len(piece)], mask.view(np.uint8).data)
        if sign > 0:
            piece += mask[: len(piece)]
        else:
            piece -= mask[: len(piece)]


def lock(key: bytes, text: bytes, about: bytes) -> bytes:
    """A message that only holders of the key can read; `about` is bound to it, not hidden."""
    return ChaCha20Poly1305(key).encrypt(_ONCE, text, about)


def unlock(key: bytes, data: bytes, about: bytes) -> bytes:
    """The text of a locked message; MaskError where anything was changed."""
    try:
        return ChaCha20Poly1305(key).decrypt(_ONCE, data, about)
    except InvalidTag:
        raise MaskError("a locked message that was not meant for this, or was changed") from None
