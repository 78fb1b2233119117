"""Changes to a configuration from the command line: `--set a.b=c`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from coterie.errors import InputError, unknown

INSTEAD = {"steps": "epochs", "epochs": "steps"}  # giving one takes the other away


def apply_change(table: dict[str, Any], change: str, lists: Mapping[str, Any]) -> None:
    """Apply one `a.b=c`; entries of lists may be named by number, label or name.

    `lists` holds what the entries of absent lists are.
    """
    key, equals, text = change.partition("=")
    if not equals or not key:
        raise InputError(f"--set takes key=value, such as train.lr=0.01; got {change!r}")
    *parents, last = key.strip().split(".")
    here: Any = table
    name = ""
    while parents:
        parent, name = name, _first(here, parents)
        here = _child(here, name, parent, change, lists)
        parents = parents[name.count(".") + 1 :]
    if not isinstance(here, dict):
        raise InputError(f"--set {change}: {key.strip().rpartition('.')[0]} is not a table")
    here[last] = _value(text.strip())
    here.pop(INSTEAD.get(last, ""), None)


def choose(table: dict[str, Any], names: Sequence[str], lists: Mapping[str, Any]) -> None:
    """Keep the algorithms of these labels or names, in this order; new ones have no options."""
    there = table.get("algorithm", lists["algorithm"])
    if isinstance(there, list):
        table["algorithm"] = [_entry(there, name) for name in names]


def _entry(there: Sequence[Any], name: str) -> dict[str, Any]:
    known = (dict(entry) for entry in there if isinstance(entry, dict) and name in _names(entry))
    return next(known, {"name": name})


def _first(here: Any, parts: Sequence[str]) -> str:
    """The name that the parts begin with; those of a list's entries may have dots in them."""
    known = {name for entry in here for name in _names(entry)} if isinstance(here, list) else ()
    longest = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((name for name in longest if name in known), parts[0])


def _child(here: Any, name: str, parent: str, change: str, lists: Mapping[str, Any]) -> Any:
    """The entry `name` of a table or list, which is itself the entry `parent`."""
    if isinstance(here, dict):
        return here.setdefault(name, lists.get(name, {}))
    if not isinstance(here, list):
        raise InputError(f"--set {change}: {parent} is not a table")
    names = [_names(entry) for entry in here]
    for number, entry in enumerate(here):
        if name in (str(number), *names[number]):
            return entry
    kind = parent.removesuffix("s")
    raise unknown(
        kind, name, [known[0] for known in names if known], f"--set {change} needs one of this run"
    )


def _names(entry: Any) -> list[str]:
    """What an entry of a list may be called: its label, its name, the class in an own file."""
    table = entry if isinstance(entry, dict) else {"name": entry}
    name = str(table.get("name", ""))
    known = (str(table.get("label", "")), name, name.rpartition(":")[2])
    return [one for one in dict.fromkeys(known) if one]


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
