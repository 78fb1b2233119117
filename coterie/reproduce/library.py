"""Where experiments lie: `experiments/PAPER/NAME.toml` is the experiment PAPER-NAME.

They stand beside the package in a source tree and are installed below share/coterie.
"""

from __future__ import annotations

import sysconfig
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import coterie
from coterie.errors import InputError, unknown

if TYPE_CHECKING:
    from coterie.reproduce.experiment import Experiment


def places() -> list[Path]:
    """The folders searched, first to last."""
    tree = Path(coterie.__file__).parents[1]
    user = sysconfig.get_path("data", sysconfig.get_preferred_scheme("user"))
    installed = [Path(base) / "share" / "coterie" for base in (sysconfig.get_path("data"), user)]
    beside = [tree] if (tree / "pyproject.toml").exists() else []
    return [base / "experiments" for base in (*beside, *installed)]


def names() -> dict[str, Path]:
    """The file of every experiment, by its name."""
    found: dict[str, Path] = {}
    for place in places():
        for path in sorted(place.glob("*/*.toml"), key=_natural):
            found.setdefault(f"{path.parent.name}-{path.stem}", path)
    return found


def titles() -> dict[str, str]:
    """What every experiment is called: read fast, since a run checks the rest of its file."""
    known = names()
    if not known:
        load("")  # says where they should be
    tables = {name: _table(path) for name, path in known.items()}
    return {name: table.get("title") or load(name).file.title for name, table in tables.items()}


def data_sets() -> dict[str, list[str]]:
    """The data sets that every experiment reads, those of the parts that it uses included."""
    return {name: sorted(set(_data_sets(path))) for name, path in names().items()}


def _data_sets(path: Path, only: str = "") -> Iterator[str]:
    """Those of an experiment, or of one of its parts."""
    table = _table(path)
    common = table.get("data", {}).get("source", ())
    for part in table.get("part", ()):
        if only in ("", part.get("name")):
            yield from _named(part.get("data", {}).get("source", common))
    for use in table.get("uses", ()):
        name, _, part = use.partition("/")
        yield from _data_sets(path.with_name(f"{name}.toml"), part)


def _named(source: Any) -> Iterator[str]:
    """The data sets in a source: a name, several, or a table that may be made `of` others."""
    if isinstance(source, str):
        yield source
    elif isinstance(source, dict):
        yield from _named(source.get("of", source.get("name", ())))
    else:
        yield from (name for one in source for name in _named(one))


def _table(path: Path) -> dict[str, Any]:
    """What a file says; nothing where it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def load(name: str) -> Experiment:
    """The experiment of a name, or of the path of a file."""
    from coterie.reproduce.experiment import read

    known = names()
    if name in known:
        return read(known[name], name)
    path = Path(name)
    if path.suffix == ".toml":
        if not path.is_file():
            raise InputError(f"there is no file {name!r}; coterie reproduce --list has the names")
        return read(path, path.stem)
    if not known:
        looked = ", ".join(str(place) for place in places())
        raise InputError(
            f"the experiments that come with Coterie are not installed (looked in {looked}); "
            "install it again, or give the path of an experiment's file"
        )
    raise unknown("experiment", name, known, "coterie reproduce --list")


def _natural(path: Path) -> list[tuple[int, int, str]]:
    """Sorts figure-9 before figure-10, and both before figure-A."""
    text = "".join(char if char.isalnum() else " " for char in f"{path.parent.name} {path.stem}")
    return [(0, int(w), "") if w.isdecimal() else (1, 0, w) for w in text.split()]
