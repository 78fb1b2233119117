"""Fetching data sets: official archives, checked, and never half-written."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import tarfile
import tempfile
import urllib.request
import zlib
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath

from coterie.data import home
from coterie.data.source import sources
from coterie.errors import InputError, unknown

CHUNK = 1 << 20  # bytes read at a time
TIMEOUT = 30  # seconds without a byte
Progress = Callable[[int, int | None], None]  # bytes so far, bytes in all where known


@dataclass(frozen=True)
class Archive:
    """A file to fetch: kept as it is in `folder`, or unpacked where it makes `folder`."""

    url: str
    md5: str
    folder: str
    unpack: bool = False

    @property
    def file(self) -> str:
        """The last part of the URL."""
        return self.url.rsplit("/", 1)[1]


def _idx(base: str, folder: str, checksums: dict[str, str]) -> tuple[Archive, ...]:
    return tuple(Archive(f"{base}/{file}.gz", md5, folder) for file, md5 in checksums.items())


ARCHIVES: dict[str, tuple[Archive, ...]] = {
    "mnist": _idx(
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        "mnist",
        {
            "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
        },
    ),
    "fashion-mnist": _idx(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        "fashion-mnist",
        {
            "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
    "cifar10": (
        Archive(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "c32a1d4ab5d03f1284b67883e8d87530",
            "cifar-10-batches-bin",
            unpack=True,
        ),
    ),
    "imagenette": (
        Archive(
            "https://s3.amazonaws.com/fast-ai-imageclas/imagenette2-160.tgz",
            "e793b78cc4c9e9a4ccc0c1155377a412",
            "imagenette2-160",
            unpack=True,
        ),
    ),
}


def check_fetchable(name: str) -> None:
    """InputError where a data set cannot be fetched."""
    if name not in ARCHIVES:
        raise unknown("data set to fetch", name, ARCHIVES, "coterie data list")


def get(
    name: str,
    base_url: str | None = None,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> Path:
    """Fetch a data set into a data folder and return where it lies; what is there already stays.

    `base_url` is a mirror with the same file names.
    """
    check_fetchable(name)
    root = folder or home.folders()[0]
    for archive in ARCHIVES[name]:
        url = f"{base_url.rstrip('/')}/{archive.file}" if base_url else archive.url
        if not _there(archive, root):
            _fetch(archive, url, root, progress)
    return root / ARCHIVES[name][0].folder


def _there(archive: Archive, root: Path) -> bool:
    if archive.unpack:
        return (root / archive.folder).is_dir()
    path = root / archive.folder / archive.file
    return path.is_file() and _md5(path) == archive.md5


def _fetch(archive: Archive, url: str, root: Path, progress: Progress | None) -> None:
    """Download, check and unpack beside the data set's place, then move it there in one step."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".get-", dir=root) as scratch:
            part = Path(scratch) / archive.file
            _download(url, part, progress)
            _check(part, url, archive.md5)
            _place(archive, part, root)
    except OSError as error:
        raise InputError(f"cannot write to {root}: {error}") from None


def _download(url: str, path: Path, progress: Progress | None) -> None:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as response, path.open("wb") as file:
            length = response.headers.get("Content-Length")
            total, done = int(length) if length else None, 0
            while block := response.read(CHUNK):
                file.write(block)
                done += len(block)
                if progress:
                    progress(done, total)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise InputError(
            f"cannot fetch {url}: {error}; check the network, or put the files in "
            f"{home.folders()[0]} yourself"
        ) from None


def _md5(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(CHUNK):
            digest.update(block)
    return digest.hexdigest()


def _check(path: Path, url: str, wanted: str) -> None:
    got = _md5(path)
    if got != wanted:
        raise InputError(
            f"{url} is not the file it should be: md5 {got}, expected {wanted}; nothing was kept, "
            "try again or use another mirror"
        )


def _place(archive: Archive, part: Path, root: Path) -> None:
    target = root / archive.folder
    if not archive.unpack:
        target.mkdir(exist_ok=True)
        part.replace(target / archive.file)
        return
    unpacked = part.parent / "unpacked"
    _unpack(part, unpacked)
    if not (unpacked / archive.folder).is_dir():
        raise InputError(f"{archive.file} holds no folder {archive.folder}")
    (unpacked / archive.folder).replace(target)


def _unpack(path: Path, into: Path) -> None:
    """Unpack plain files and folders; refuse an archive with a name that leads elsewhere."""
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = PurePosixPath(member.name)
                if (
                    name.is_absolute()
                    or ".." in name.parts
                    or not (member.isfile() or member.isdir())
                ):
                    raise InputError(f"{path.name} holds an unsafe entry {member.name!r}; refused")
            if hasattr(tarfile, "data_filter"):  # from Python 3.11.4 on
                archive.extraction_filter = tarfile.data_filter
            archive.extractall(into)
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"cannot unpack {path.name}: {error}") from None


@dataclass(frozen=True)
class Available:
    """A data set as this machine has it."""

    name: str
    found: Path | None  # its folder, where it lies on disk
    how: str  # how to get it or give it; "built in" needs nothing

    @property
    def ready(self) -> bool:
        """Whether it can be loaded now."""
        return self.found is not None or self.how == "built in"


def available() -> list[Available]:
    """Every registered data set: where it lies, or how to get it."""
    return [_available(name) for name in sources.entries]


def _available(name: str) -> Available:
    build = sources[name].build
    place: home.Place | None = getattr(build, "place", None)
    if place:
        return Available(name, place.find(), place.how())
    needs_path = any(field.name == "path" for field in fields(build))  # type: ignore[arg-type]
    return Available(name, None, "give its path" if needs_path else "built in")
