"""Model bytes in a store that all peers can reach: a shared folder, a bucket, what fsspec opens.

    <store URL>/<run>/<peer>/<sha256 of the content>

A peer writes below its own folder alone, and reads only names of this form below the URL that it
was configured with, so that nobody can make it open another file or host. What it reads is used
only when size and sha256 are those that the sender signed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import re
import time
from collections.abc import Callable, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from coterie.errors import InputError

_LOG = logging.getLogger(__name__)
_PAUSES = (0.1, 0.3, 1.0, 3.0)  # seconds between attempts: some stores show new objects late
_CLOSING = 15.0  # seconds for removing what is left in the end
_T = TypeVar("_T")


class StoreError(Exception):
    """What should be in the store is missing, damaged, or not ours to read."""


@dataclass(frozen=True)
class Stored:
    """Where content lies, and what it must be."""

    url: str
    digest: bytes  # sha256
    size: int


class Store:
    """The objects of one run below a URL, written as one peer."""

    def __init__(self, url: str, run: bytes, owner: int, keep: float = 60.0) -> None:
        self._system, root = _file_system(url)
        scheme, _, rest = url.partition("://")
        self._base = f"{scheme}://{rest.rstrip('/')}"
        self._root = root.rstrip("/")
        self._prefix = f"{self._base}/{run.hex()}"
        self._names = re.compile(re.escape(self._prefix) + r"/-?[0-9]{1,9}/([0-9a-f]{64})")
        self._own = f"{self._prefix}/{owner}"
        self._used: dict[str, float] = {}  # URL of an own object -> when it was last put
        self._keep = keep  # seconds that an object outlives its last use
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="coterie-store")

    async def open(self) -> None:
        """Remove what an earlier life of this peer left behind, and try whether writing works."""
        try:
            await self._run(self._clear, 30.0)
            probe, _ = await self.put(b"coterie", 30.0)
            await self._run(lambda: self._remove(probe.url), 30.0)
        except StoreError as error:
            raise InputError(
                f"the store {self._base} cannot be used: {error}; check the URL and who may write"
            ) from None
        self._used.clear()

    async def put(self, content: bytes, deadline: float = 60.0) -> tuple[Stored, bool]:
        """Write content, unless it is there already; also returns whether it was written."""
        digest = await self._run(lambda: hashlib.sha256(content).digest(), deadline)
        stored = Stored(f"{self._own}/{digest.hex()}", digest, len(content))
        fresh = stored.url not in self._used
        if fresh:
            await self._again(lambda: self._write(self._path(stored.url), content), deadline)
        self._used[stored.url] = time.monotonic()
        return stored, fresh

    async def get(self, stored: Stored, deadline: float = 30.0) -> bytes:
        """Read content and check it; where it is not there or not right, try again for a while."""
        found = self._names.fullmatch(stored.url)
        if not found or found[1] != stored.digest.hex():
            raise StoreError(f"{stored.url!r:.200} is not an object of this run in {self._base}")
        return await self._again(lambda: self._read(stored), deadline)

    async def sweep(self, held: Set[str]) -> None:
        """Remove own objects that nobody waits for and that have not been used for a while."""
        limit = time.monotonic() - self._keep
        for url in [u for u, used in self._used.items() if used < limit and u not in held]:
            del self._used[url]
            await self._discard(url)

    async def close(self) -> None:
        """Remove all own objects, as far as the store answers; the next life removes the rest."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING):
                for url in list(self._used):
                    await self._discard(url)
        self._used.clear()
        if _is_local(self._system):
            with contextlib.suppress(StoreError):  # something else may lie there
                await self._run(lambda: self._system.rmdir(self._path(self._own)), 10.0)
        self._threads.shutdown(wait=False)

    async def _discard(self, url: str) -> None:
        try:
            await self._run(lambda: self._remove(url), 10.0)
        except StoreError as error:
            _LOG.warning("could not remove %s: %s", url, error)

    async def _again(self, work: Callable[[], _T], deadline: float) -> _T:
        end = time.monotonic() + deadline
        for pause in _PAUSES:
            try:
                return await self._run(work, end - time.monotonic())
            except StoreError as error:
                if time.monotonic() + pause >= end:
                    raise
                _LOG.debug("trying again in %s s: %s", pause, error)
                await asyncio.sleep(pause)
        return await self._run(work, end - time.monotonic())

    async def _run(self, work: Callable[[], _T], seconds: float) -> _T:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                return await loop.run_in_executor(self._threads, work)
        except StoreError:
            raise
        except TimeoutError:
            raise StoreError(f"no answer from {self._base} in {seconds:.0f} s") from None
        except Exception as error:  # each file system has errors of its own
            raise StoreError(f"{type(error).__name__}: {error}") from error

    def _path(self, url: str) -> str:
        return self._root + url.removeprefix(self._base)

    def _write(self, path: str, content: bytes) -> None:
        if not _is_local(self._system):
            self._system.pipe_file(path, content)  # object stores show an object whole or not
            return
        self._system.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        self._system.pipe_file(f"{path}.part", content)
        self._system.mv(f"{path}.part", path)

    def _read(self, stored: Stored) -> bytes:
        path = self._path(stored.url)
        info = self._system.info(path)
        if info.get("type") != "file" or info.get("islink"):
            raise StoreError(f"{stored.url} is not a file")
        if info.get("size") != stored.size:
            raise StoreError(f"{stored.url} has {info.get('size')} bytes, not {stored.size}")
        content: bytes = self._system.cat_file(path, start=0, end=stored.size)
        if hashlib.sha256(content).digest() != stored.digest:
            raise StoreError(f"{stored.url} does not have the sha256 that its sender signed")
        return content

    def _remove(self, url: str) -> None:
        if self._system.exists(self._path(url)):
            self._system.rm_file(self._path(url))

    def _clear(self) -> None:
        own = self._path(self._own)
        if self._system.exists(own):
            for path in self._system.ls(own, detail=False):
                self._system.rm_file(path)


def _file_system(url: str) -> tuple[Any, str]:
    """The file system behind a URL and the path within it."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise InputError("a store needs fsspec: pip install 'coterie[peer]'") from None
    if "://" not in url or "::" in url:
        raise InputError(f"a store is a URL such as file:///shared/folder, got {url!r}")
    try:
        system, path = url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        raise InputError(f"no package for the store {url}: {error}") from None
    except ValueError as error:
        raise InputError(f"unknown kind of store {url!r}: {error}") from None
    return system, path


def _is_local(system: Any) -> bool:
    return "file" in (system.protocol if isinstance(system.protocol, tuple) else [system.protocol])
