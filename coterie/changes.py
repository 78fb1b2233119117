"""Changes to a configuration from the command line: `--set a.b=c`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
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
    for parent, name in zip(["", *parents], parents, strict=False):
        here = _child(here, name, parent, change, lists)
    if not isinstance(here, dict):
        raise InputError(f"--set {change}: {'.'.join(parents)} is not a table")
    here[last] = _value(text.strip())
    here.pop(INSTEAD.get(last, ""), None)


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
    raise unknown(kind, name, [known[0] for known in names if known], f"--set {change}")


def _names(entry: Any) -> list[str]:
    """What an entry of a list may be called: its label, its name."""
    table = entry if isinstance(entry, dict) else {"name": entry}
    return [str(table[key]) for key in ("label", "name") if table.get(key)]


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
