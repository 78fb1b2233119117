from pathlib import Path
from typing import Any

import pytest

from coterie.errors import InputError
from coterie.links import keys
from coterie.links.keys import Keys
from coterie.links.roster import PeerEntry, Roster, is_loopback, split_address
from tests.links.grpc_peers import key_of


def table(**changed: Any) -> dict[str, Any]:
    return {"id": 0, "address": "a.example.org:7000", **changed}


def listed(peer: int, key: Keys, address: str = "") -> PeerEntry:
    place = address or f"10.0.0.{peer + 2}:7000"
    return PeerEntry(peer, place, key.fingerprint, key.certificate)


def test_tables_become_a_list_with_certificates_from_files(tmp_path: Path) -> None:
    tables = []
    for peer, name in ((-1, "server"), (0, "peer-0"), (1, "peer-1")):
        keys.write(key_of(name), tmp_path, name)
        mark = key_of(name).fingerprint
        tables.append(table(id=peer, address=f"{name}:7000", fingerprint=mark))
        tables[-1]["certificate"] = f"{name}.crt"
    known = Roster.from_tables(tables, tmp_path)
    assert known.ids == [-1, 0, 1] and known.secured
    assert known[-1].address == "server:7000"
    assert known[1] == listed(1, key_of("peer-1"), "peer-1:7000")


def test_a_list_may_do_without_fingerprints_or_peers() -> None:
    assert not Roster.from_tables([table()], Path()).secured
    assert not Roster(()).secured


def test_a_fingerprint_may_be_written_as_openssl_prints_it(tmp_path: Path) -> None:
    key = key_of("peer-0")
    keys.write(key, tmp_path)
    spaced = ":".join(key.fingerprint[i : i + 2].upper() for i in range(0, 64, 2))
    known = Roster.from_tables([table(fingerprint=spaced, certificate="peer.crt")], tmp_path)
    assert known[0].fingerprint == key.fingerprint


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (table(adress="x:1"), "unknown key of \\[\\[peers\\]\\] 'adress'; did you mean 'address'"),
        ({"id": 0}, "lacks address"),
        ({"address": "a:1"}, "lacks id"),
        (table(id="0"), "the id of a peer is a number from 0, or -1 for the server; got '0'"),
        (table(id=True), "the id of a peer is a number"),
        (table(id=-2), "got -2"),
        (table(address=7000), "address of a peer is text in quotes; got 7000"),
        (table(fingerprint=1), "fingerprint of a peer is text in quotes"),
        (table(fingerprint="abc"), "the fingerprint of peer 0 is not 64 hex digits: 'abc'"),
        (table(fingerprint="g" * 64), "is not 64 hex digits"),
        (table(fingerprint="0" * 64), "peer 0 has a fingerprint but no certificate"),
        (table(certificate="none.crt"), "cannot read the certificate"),
    ],
)
def test_a_wrong_entry_is_refused(bad: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        Roster.from_tables([bad], tmp_path)


def test_a_certificate_that_is_not_the_one_of_the_fingerprint_is_refused() -> None:
    one, other = key_of("peer-0"), key_of("peer-1")
    with pytest.raises(InputError) as error:
        PeerEntry(0, "a:1", one.fingerprint, other.certificate)
    assert one.fingerprint in str(error.value) and other.fingerprint in str(error.value)


@pytest.mark.parametrize(
    ("peers", "what"),
    [
        ((PeerEntry(0, "a:1"), PeerEntry(0, "a:2")), "id: 0"),
        ((PeerEntry(0, "a:1"), PeerEntry(1, "a:1")), "address: a:1"),
        ((listed(0, key_of("peer-0")), listed(1, key_of("peer-0"))), "fingerprint: "),
    ],
)
def test_two_peers_that_share_something_are_refused(
    peers: tuple[PeerEntry, ...], what: str
) -> None:
    with pytest.raises(InputError, match=f"two peers of the list have the same {what}"):
        Roster(peers)


def test_two_certificates_of_the_same_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys.secrets, "token_hex", lambda _: "same")
    twins = listed(0, keys.make("twin")), listed(1, keys.make("twin"))
    with pytest.raises(InputError, match="the same certificate subject: "):
        Roster(twins)


def test_some_fingerprints_but_not_all_are_refused() -> None:
    with pytest.raises(InputError, match="peers without a fingerprint in the list: 1;"):
        Roster((listed(0, key_of("peer-0")), PeerEntry(1, "a:1")))


def test_a_peer_that_is_not_listed_is_named() -> None:
    with pytest.raises(InputError, match="no peer 3 in the list of peers; known: -1, 0"):
        Roster((PeerEntry(0, "a:1"), PeerEntry(-1, "a:2")))[3]


@pytest.mark.parametrize(
    "address",
    [
        *("", "host", "host:", "host:0", "host:65536", "host:1a", ":7000", "host:-1", "::1:7000"),
        *("[::1:7000", "[10.0.0.1]:7000", "ho st:1", "host:¹", "a/b:1", "-a:1", "host:7000 "),
    ],
)
def test_an_address_that_is_not_host_and_port_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="an address"):
        split_address(address)


@pytest.mark.parametrize(
    ("address", "host", "near"),
    [
        ("127.0.0.1:7000", "127.0.0.1", True),
        ("127.5.0.1:7000", "127.5.0.1", True),
        ("[::1]:7000", "::1", True),
        ("LocalHost:7000", "LocalHost", True),
        ("0.0.0.0:7000", "0.0.0.0", False),
        ("[::]:7000", "::", False),
        ("10.0.0.1:7000", "10.0.0.1", False),
        ("localhost.example.org:7000", "localhost.example.org", False),
    ],
)
def test_addresses_of_this_machine_are_told_from_others(
    address: str, host: str, near: bool
) -> None:
    assert split_address(address) == (host, 7000)
    assert is_loopback(address) == near
