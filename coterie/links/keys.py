"""A peer's long-term key and certificate: made once, pinned by every other peer."""

from __future__ import annotations

import datetime
import hashlib
import os
import re
import secrets
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coterie.errors import InputError

NAME = "peer.coterie"  # the same in every certificate: a peer is known by its fingerprint alone
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True)
class Keys:
    """A peer's private key and certificate, both PEM."""

    key: bytes = field(repr=False)
    certificate: bytes = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """What the other peers' lists say about this peer."""
        return fingerprint(self.certificate)


def fingerprint(certificate: bytes) -> str:
    """The sha256 of a PEM certificate's DER form, as 64 hex digits."""
    found = _CERTIFICATE.findall(certificate)
    if len(found) != 1:
        raise InputError(f"expected one PEM certificate, got {len(found)}")
    try:
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(found[0].decode("ascii"))).hexdigest()
    except ValueError as error:
        raise InputError(f"not a PEM certificate: {error}") from None


def make(name: str = "peer", days: int = 3650) -> Keys:
    """A new key (ECDSA P-256) and a certificate that it signs itself."""
    _check_name(name)
    _need_cryptography()
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name)
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))  # clocks of peers differ
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return Keys(secret, certificate.public_bytes(serialization.Encoding.PEM))


def _subject(name: str) -> Any:
    """A subject that no other peer has: TLS looks certificates up by it."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, name),
            x509.NameAttribute(NameOID.SERIAL_NUMBER, secrets.token_hex(16)),
        ]
    )


def write(keys: Keys, folder: Path, name: str = "peer") -> tuple[Path, Path]:
    """Write NAME.key, which only its owner can read, and NAME.crt; never over what is there."""
    _check_name(name)
    places = folder / f"{name}.key", folder / f"{name}.crt"
    for place in places:
        if place.exists() or place.is_symlink():
            raise InputError(f"{str(place)!r} exists and is not overwritten; choose another name")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_new(places[0], keys.key, 0o600)
        _write_new(places[1], keys.certificate, 0o644)
    except OSError as error:
        raise InputError(f"cannot write keys to {str(folder)!r}: {error.strerror}") from None
    return places


def _check_name(name: str) -> None:
    if not _FILE_NAME.fullmatch(name):
        raise InputError(
            "the name of a key is made of letters, digits, '.', '_' and '-', at most 63 of them, "
            f"and starts with a letter or digit; got {name!r:.80}"
        )


def _write_new(place: Path, data: bytes, mode: int) -> None:
    handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(data)


def read(key: Path, certificate: Path) -> Keys:
    """A peer's own key and certificate, checked to belong together and to be valid today."""
    _need_cryptography()
    keys = Keys(_read_secret(key), read_certificate(certificate))
    if _public(_load_key(keys.key, key)) != _public(_load_certificate(keys.certificate)):
        raise InputError(
            f"the key {str(key)!r} does not belong to the certificate {str(certificate)!r}"
        )
    return keys


def read_certificate(place: Path) -> bytes:
    """A peer's certificate, checked to be one that this package made and valid today."""
    _need_cryptography()
    data = _read_file(place, "certificate")
    try:
        fingerprint(data)
        _check_certificate(_load_certificate(data))
    except (InputError, ValueError) as error:
        raise InputError(f"the certificate {str(place)!r} cannot be used: {error}") from None
    return data


def subject(certificate: bytes) -> str:
    """Whom a certificate names; no two in a list may name the same."""
    _need_cryptography()
    return str(_load_certificate(certificate).subject.rfc4514_string())


def _load_certificate(data: bytes) -> Any:
    from cryptography import x509

    return x509.load_pem_x509_certificate(data)


def _check_certificate(certificate: Any) -> None:
    from cryptography import x509

    names = certificate.extensions.get_extension_for_class
    try:
        known = names(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound:
        known = []
    if NAME not in known:
        raise InputError(f"it does not hold the name {NAME!r}; make one with: coterie keys new")
    now = datetime.datetime.now(datetime.UTC)
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not first <= now <= last:
        raise InputError(
            f"it is valid from {first:%Y-%m-%d} to {last:%Y-%m-%d}; check the clock or make a new "
            "one with: coterie keys new"
        )


def _load_key(data: bytes, place: Path) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InputError(f"{str(place)!r} holds no plain PEM private key: {error}") from None


def _public(holder: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    data: bytes = holder.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return data


def _read_secret(place: Path) -> bytes:
    data = _read_file(place, "key")
    if os.name == "posix" and place.stat().st_mode & 0o007:
        raise InputError(
            f"everybody on this machine can read the key {str(place)!r}; "
            f"change that with: chmod 600 {place}"
        )
    return data


def _read_file(place: Path, what: str) -> bytes:
    try:
        return place.read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot read the {what} {place.name!r} in the folder {str(place.resolve().parent)!r}: "
            f"{error.strerror}; put it there, or make one with: coterie keys new"
        ) from None


def _need_cryptography() -> None:
    try:
        import cryptography  # noqa: F401  (only whether it is there)
    except ImportError:
        raise InputError(
            "keys need the package cryptography: pip install 'coterie[peer]'"
        ) from None
