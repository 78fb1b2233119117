from __future__ import annotations

import functools
import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from coterie.data import Archive, available, fetch, get, load
from coterie.errors import InputError

from .conftest import write_cifar10, write_idx

FOLDER = "cifar-10-batches-bin"
FILE = "cifar-10-binary.tar.gz"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """A server on loopback, and the folder it gives out."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    folder = tmp_path / "mirror"
    folder.mkdir()
    handler = functools.partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", folder
        server.shutdown()
        thread.join()


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def expect(monkeypatch: pytest.MonkeyPatch, path: Path, checksum: str = "") -> None:
    """Make the archive of cifar10 the one at this path."""
    archive = Archive(f"http://x.invalid/{path.name}", checksum or md5(path), FOLDER, unpack=True)
    monkeypatch.setitem(fetch.ARCHIVES, "cifar10", (archive,))


def pack_cifar10(folder: Path) -> Path:
    write_cifar10(folder / FOLDER)
    with tarfile.open(folder / FILE, "w:gz") as tar:
        tar.add(folder / FOLDER, arcname=FOLDER)
    return folder / FILE


def test_an_archive_is_fetched_checked_and_unpacked(
    mirror: tuple[str, Path], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, folder = mirror
    packed = pack_cifar10(folder)
    expect(monkeypatch, packed)
    seen: list[tuple[int, int | None]] = []
    path = get("cifar10", base_url=url, progress=lambda done, total: seen.append((done, total)))
    assert path == home / FOLDER
    assert len(load("cifar10").train) == 50
    assert seen[-1] == (packed.stat().st_size, packed.stat().st_size)
    assert [p.name for p in home.iterdir()] == [FOLDER]


def test_plain_files_are_kept_as_they_are(
    mirror: tuple[str, Path], home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, folder = mirror
    write_idx(folder / "m", packed=True)
    files = sorted((folder / "m").iterdir())
    archives = tuple(Archive(f"http://x.invalid/{f.name}", md5(f), "mnist") for f in files)
    monkeypatch.setitem(fetch.ARCHIVES, "mnist", archives)
    elsewhere = tmp_path / "elsewhere"
    assert get("mnist", base_url=url + "m", folder=elsewhere) == elsewhere / "mnist"
    assert sorted(p.name for p in (elsewhere / "mnist").iterdir()) == [f.name for f in files]


def test_what_is_there_is_not_fetched_again(home: Path) -> None:
    (home / FOLDER).mkdir()
    assert get("cifar10", base_url="http://127.0.0.1:1") == home / FOLDER


def test_a_damaged_plain_file_is_fetched_again(
    mirror: tuple[str, Path], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, folder = mirror
    (folder / "a.gz").write_bytes(b"whole")
    monkeypatch.setitem(
        fetch.ARCHIVES, "mnist", (Archive("http://x.invalid/a.gz", md5(folder / "a.gz"), "mnist"),)
    )
    (home / "mnist").mkdir()
    (home / "mnist" / "a.gz").write_bytes(b"who")
    get("mnist", base_url=url)
    assert (home / "mnist" / "a.gz").read_bytes() == b"whole"


def test_a_wrong_checksum_keeps_nothing(
    mirror: tuple[str, Path], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, folder = mirror
    expect(monkeypatch, pack_cifar10(folder), checksum="0" * 32)
    with pytest.raises(InputError, match=f"md5 [0-9a-f]+, expected {'0' * 32}; nothing was kept"):
        get("cifar10", base_url=url)
    assert not list(home.iterdir())


def test_an_interrupted_download_leaves_nothing(
    mirror: tuple[str, Path], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, folder = mirror
    expect(monkeypatch, pack_cifar10(folder))

    def interrupt(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get("cifar10", base_url=url, progress=interrupt)
    assert not list(home.iterdir())


def hostile(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    return member


@pytest.mark.parametrize(
    "member",
    [
        hostile("../outside"),
        hostile(f"{FOLDER}/../../outside"),
        hostile("/outside"),
        hostile(f"{FOLDER}/link", tarfile.SYMTYPE, "/etc/passwd"),
        hostile(f"{FOLDER}/link", tarfile.LNKTYPE, "../../outside"),
        hostile(f"{FOLDER}/pipe", tarfile.FIFOTYPE),
    ],
    ids=lambda member: f"{member.name}{member.linkname}",
)
def test_an_archive_with_an_unsafe_entry_is_refused(
    mirror: tuple[str, Path],
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    member: tarfile.TarInfo,
) -> None:
    url, folder = mirror
    with tarfile.open(folder / FILE, "w:gz") as tar:
        tar.addfile(hostile(f"{FOLDER}/first"), io.BytesIO())
        tar.addfile(member, io.BytesIO())
    expect(monkeypatch, folder / FILE)
    with pytest.raises(InputError, match="unsafe entry"):
        get("cifar10", base_url=url)
    assert not list(home.iterdir())


@pytest.mark.parametrize("data", [b"", b"no archive", b"\x1f\x8b\x08\x00"])
def test_a_file_that_is_no_archive_is_refused(
    mirror: tuple[str, Path], home: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    url, folder = mirror
    (folder / FILE).write_bytes(data)
    expect(monkeypatch, folder / FILE)
    with pytest.raises(InputError, match="cannot unpack"):
        get("cifar10", base_url=url)
    assert not list(home.iterdir())


def test_an_archive_without_its_folder_is_refused(
    mirror: tuple[str, Path], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, folder = mirror
    with tarfile.open(folder / FILE, "w:gz") as tar:
        tar.addfile(hostile("other/file"), io.BytesIO())
    expect(monkeypatch, folder / FILE)
    with pytest.raises(InputError, match=f"holds no folder {FOLDER}"):
        get("cifar10", base_url=url)


def test_a_file_the_server_has_not_is_one_clear_message(
    mirror: tuple[str, Path], home: Path
) -> None:
    with pytest.raises(InputError, match=r"cannot fetch http://.*404.*check the network"):
        get("cifar10", base_url=mirror[0])
    assert not list(home.iterdir())


def test_no_network_is_one_clear_message(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(InputError, match=r"cannot fetch http://127\.0\.0\.1:1/.*refused"):
        get("cifar10", base_url="http://127.0.0.1:1")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write to .*file"):
        get("cifar10", folder=tmp_path / "file")


def test_a_data_set_that_cannot_be_fetched_gets_a_suggestion() -> None:
    with pytest.raises(InputError, match="did you mean 'cifar10'"):
        get("cifar1O")


def test_every_data_set_says_where_it_is_or_how_to_get_it(home: Path) -> None:
    write_idx(home / "mnist")
    listed = {entry.name: entry for entry in available()}
    assert listed["mnist"].found == home / "mnist"
    assert not listed["cifar10"].ready
    assert listed["cifar10"].how == "coterie data get cifar10"
    assert listed["digits"].ready
    assert listed["table"].how == "give its path"


def test_every_archive_belongs_to_a_data_set_and_its_place(home: Path) -> None:
    for name, archives in fetch.ARCHIVES.items():
        for archive in archives:
            assert len(archive.md5) == 32
            (home / archive.folder).mkdir(exist_ok=True)
        found = next(entry.found for entry in available() if entry.name == name)
        assert found == home / archives[0].folder
