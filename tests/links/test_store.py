"""The store: what comes out of it is what went in, or an error."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from coterie.errors import InputError
from coterie.links.store import Store, Stored, StoreError
from tests.links.peers import finish

RUN = bytes(range(16))


@pytest.fixture(autouse=True)
def brief_pauses(monkeypatch):
    monkeypatch.setattr("coterie.links.store._PAUSES", (0.001, 0.001, 0.001))


@pytest.fixture(params=["file", "memory"])
def url(request, tmp_path):
    return f"file://{tmp_path}/store" if request.param == "file" else f"memory://{tmp_path.name}"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "store"


def at(folder: Path, owner: int = 0, keep: float = 60.0) -> Store:
    return Store(f"file://{folder}", RUN, owner, keep)


def path_of(stored: Stored) -> Path:
    return Path(stored.url.removeprefix("file://"))


async def refused(store: Store, stored: Stored, match: str, deadline: float = 60.0) -> None:
    with pytest.raises(StoreError, match=match):
        await store.get(stored, deadline)


def test_another_peer_reads_what_one_wrote(url):
    async def check():
        mine, other = Store(url, RUN, 0), Store(url, RUN, 1)
        stored, fresh = await mine.put(b"model" * 1000)
        assert fresh and stored.size == 5000 and stored.url.startswith(url)
        assert await other.get(stored) == b"model" * 1000

    finish(check())


def test_the_same_content_is_written_once(url):
    async def check():
        store = Store(url, RUN, 0)
        first, second = await store.put(b"model"), await store.put(b"model")
        assert first[1] and not second[1] and first[0] == second[0]

    finish(check())


def test_nothing_half_written_is_seen(folder):
    async def check():
        stored, _ = await at(folder).put(b"model")
        assert [path.name for path in path_of(stored).parent.iterdir()] == [stored.digest.hex()]

    finish(check())


def test_missing_content_is_an_error(url):
    async def check():
        store = Store(url, RUN, 0)
        stored, _ = await store.put(b"model")
        await store.close()
        await refused(Store(url, RUN, 1), stored, "FileNotFoundError")

    finish(check())


@pytest.mark.parametrize("content, match", [(b"mode", "4 bytes, not 5"), (b"nodel", "sha256")])
def test_damaged_content_is_an_error(folder, content, match):
    async def check():
        store = at(folder)
        stored, _ = await store.put(b"model")
        path_of(stored).write_bytes(content)
        await refused(store, stored, match)

    finish(check())


def test_content_that_shows_up_late_is_found(folder):
    async def check():
        store = at(folder)
        stored, _ = await store.put(b"model")
        path_of(stored).rename(folder / "away")
        read, attempts = store._read, []

        def late(wanted: Stored) -> bytes:
            attempts.append(wanted)
            if len(attempts) == 3:
                (folder / "away").rename(path_of(stored))
            return read(wanted)

        store._read = late  # type: ignore[method-assign]
        assert await store.get(stored) == b"model" and len(attempts) == 3

    finish(check())


@pytest.mark.parametrize(
    "move",
    [
        lambda url, name: f"file:///etc/{name}",
        lambda url, name: url.replace("/0/", "/0/../../../other/"),
        lambda url, name: url.replace(RUN.hex(), "0" * 32),
        lambda url, name: f"http://127.0.0.1/{RUN.hex()}/0/{name}",
        lambda url, name: f"{url}/../{name}",
        lambda url, name: f"{url}\n",
        lambda url, name: url.replace(name, "0" * 64),
        lambda url, name: "simplecache::" + url,
    ],
)
def test_nothing_outside_the_run_is_opened(folder, move):
    async def check():
        store = at(folder)
        stored, _ = await store.put(b"model")
        store._read = lambda wanted: pytest.fail("it was opened")  # type: ignore[method-assign]
        url = move(stored.url, stored.digest.hex())
        await refused(store, replace(stored, url=url), "not an object of this run")

    finish(check())


def test_links_and_pipes_in_the_folder_are_not_followed(folder):
    async def check():
        store = at(folder)
        stored, _ = await store.put(b"model")
        path_of(stored).rename(folder / "elsewhere")
        path_of(stored).symlink_to(folder / "elsewhere")
        await refused(store, stored, "not a file")
        path_of(stored).unlink()
        os.mkfifo(path_of(stored))
        await refused(store, stored, "not a file")

    finish(check())


def test_a_store_that_hangs_is_left_after_the_deadline(folder):
    async def check():
        store, wake = at(folder), threading.Event()
        stored, _ = await store.put(b"model")
        store._read = lambda wanted: wake.wait(60) and b""  # type: ignore[method-assign]
        await refused(store, stored, "no answer", deadline=0.1)
        wake.set()

    finish(check())


def test_old_objects_go_unless_somebody_waits_for_them(folder):
    async def check():
        store = at(folder, keep=0.0)
        kept, _ = await store.put(b"kept")
        gone, _ = await store.put(b"gone")
        await store.sweep({kept.url})
        assert path_of(kept).exists() and not path_of(gone).exists()
        await at(folder, owner=1).put(b"of another")
        patient = at(folder, owner=2)
        fresh, _ = await patient.put(b"fresh")
        await patient.sweep(set())
        assert path_of(fresh).exists()

    finish(check())


def test_a_peer_cleans_up_behind_itself_and_nobody_else(folder):
    async def check():
        other, _ = await at(folder, owner=1).put(b"of another")
        left, _ = await at(folder).put(b"left by a crash")
        store = at(folder)
        await store.open()
        assert not path_of(left).exists()
        await store.put(b"model")
        await store.close()
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert files == [path_of(other)]

    finish(check())


def test_a_store_that_cannot_be_written_is_said_at_the_start(tmp_path):
    (tmp_path / "store").write_text("a file, not a folder")

    async def check():
        with pytest.raises(InputError, match="cannot be used"):
            await at(tmp_path / "store").open()

    finish(check())


@pytest.mark.parametrize(
    "url, match",
    [
        ("/shared/folder", "a store is a URL"),
        ("zip::file:///a", "a store is a URL"),
        ("nonsense://a", "unknown kind of store"),
    ],
)
def test_a_url_that_is_no_store_is_refused(url, match):
    with pytest.raises(InputError, match=match):
        Store(url, RUN, 0)


def test_closing_is_bounded_when_the_store_does_not_answer(folder, monkeypatch):
    monkeypatch.setattr("coterie.links.store._CLOSING", 0.05)
    answers = threading.Event()

    async def check():
        store = at(folder)
        await store.put(b"model")
        monkeypatch.setattr(store._system, "exists", lambda path: answers.wait(60))
        await store.close()
        answers.set()

    finish(check())
