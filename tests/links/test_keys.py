import datetime
import stat
from pathlib import Path

import pytest
from cryptography import x509
from typer.testing import CliRunner

from coterie.cli import app
from coterie.errors import InputError
from coterie.links import keys
from tests.links.grpc_peers import key_of


def test_a_key_is_for_its_owner_alone_and_comes_back_from_its_files(tmp_path: Path) -> None:
    made = keys.make("hospital-a")
    secret, certificate = keys.write(made, tmp_path / "new", "hospital-a")
    assert (secret.name, certificate.name) == ("hospital-a.key", "hospital-a.crt")
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert keys.read(secret, certificate) == made
    assert keys.read_certificate(certificate) == made.certificate
    assert b"PRIVATE" not in made.certificate and "PRIVATE" not in repr(made)


def test_the_fingerprint_is_the_hash_of_the_certificate() -> None:
    from cryptography.hazmat.primitives import hashes

    made = key_of("peer-0")
    parsed = x509.load_pem_x509_certificate(made.certificate)
    assert made.fingerprint == parsed.fingerprint(hashes.SHA256()).hex()


def test_no_two_certificates_share_fingerprint_or_subject() -> None:
    one, two = keys.make("same"), keys.make("same")
    assert one.fingerprint != two.fingerprint
    assert keys.subject(one.certificate) != keys.subject(two.certificate)


def test_a_certificate_cannot_vouch_for_others() -> None:
    parsed = x509.load_pem_x509_certificate(key_of("peer-0").certificate)
    assert not parsed.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    left = parsed.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    assert 3600 < left.days < 3651


@pytest.mark.parametrize("there", ["peer.key", "peer.crt"])
def test_nothing_is_overwritten(tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("mine")
    with pytest.raises(InputError, match="exists and is not overwritten"):
        keys.write(key_of("peer-0"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == "mine"


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "a b", "x" * 64])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="the name of a key is made of letters"):
        keys.make(name)
    with pytest.raises(InputError, match="the name of a key is made of letters"):
        keys.write(key_of("peer-0"), tmp_path, name)


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write keys to"):
        keys.write(key_of("peer-0"), tmp_path / "file" / "below")


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read the key .*a\.key.*coterie keys new"):
        keys.read(tmp_path / "a.key", tmp_path / "a.crt")
    with pytest.raises(InputError, match=rf"certificate 'a\.crt' in the folder '{tmp_path}'"):
        keys.read_certificate(tmp_path / "a.crt")


def test_a_key_that_everybody_can_read_is_refused(tmp_path: Path) -> None:
    secret, certificate = keys.write(key_of("peer-0"), tmp_path)
    secret.chmod(0o644)
    with pytest.raises(InputError, match=r"everybody on this machine can read the key.*chmod 600"):
        keys.read(secret, certificate)


def test_key_and_certificate_of_different_peers_are_refused(tmp_path: Path) -> None:
    secret, _ = keys.write(key_of("peer-0"), tmp_path, "zero")
    _, certificate = keys.write(key_of("peer-1"), tmp_path, "one")
    with pytest.raises(InputError, match="does not belong to the certificate"):
        keys.read(secret, certificate)


@pytest.mark.parametrize("data", [b"", b"garbage", b"\xff\x00"])
def test_files_that_hold_something_else_are_refused(tmp_path: Path, data: bytes) -> None:
    secret, certificate = keys.write(key_of("peer-0"), tmp_path)
    secret.write_bytes(data)
    with pytest.raises(InputError, match="holds no plain PEM private key"):
        keys.read(secret, certificate)
    certificate.write_bytes(data)
    with pytest.raises(InputError, match="expected one PEM certificate, got 0"):
        keys.read_certificate(certificate)


BEGIN, END = b"-----BEGIN CERTIFICATE-----\n", b"\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    "data",
    [
        BEGIN + b"!!!" + END,
        BEGIN + b"\xff\xff" + END,
        BEGIN + b"AAAA" + END,
        key_of("peer-0").certificate * 2,
    ],
)
def test_a_damaged_certificate_is_refused(tmp_path: Path, data: bytes) -> None:
    place = tmp_path / "damaged.crt"
    place.write_bytes(data)
    with pytest.raises(InputError, match=r"the certificate .*damaged\.crt.* cannot be used"):
        keys.read_certificate(place)


def test_a_certificate_that_expired_is_refused(tmp_path: Path) -> None:
    _, certificate = keys.write(keys.make("old", days=0), tmp_path)
    with pytest.raises(InputError, match=r"it is valid from .* make a new one"):
        keys.read_certificate(certificate)


def test_a_certificate_from_elsewhere_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "NAME", "www.example.org")
    _, certificate = keys.write(keys.make("other"), tmp_path)
    monkeypatch.undo()
    with pytest.raises(InputError, match=r"it does not hold the name 'peer\.coterie'"):
        keys.read_certificate(certificate)


def test_the_command_prints_the_lines_for_the_list_of_peers(tmp_path: Path) -> None:
    arguments = ["keys", "new", "--out", str(tmp_path / "keys"), "--name", "hospital-a"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0
    made = keys.read(tmp_path / "keys/hospital-a.key", tmp_path / "keys/hospital-a.crt")
    assert f'fingerprint = "{made.fingerprint}"\ncertificate = "hospital-a.crt"' in done.output
    again = CliRunner().invoke(app, arguments)
    assert isinstance(again.exception, InputError)
    assert "is not overwritten" in str(again.exception)
    assert keys.read(tmp_path / "keys/hospital-a.key", tmp_path / "keys/hospital-a.crt") == made
