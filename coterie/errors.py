"""Errors a user can act on."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class InputError(Exception):
    """Something a user gave cannot be used: the message says what, what was got, what to do."""


def unknown(kind: str, got: str, known: Iterable[str], hint: str = "") -> InputError:
    """The error for a name that does not exist, with the closest name that does."""
    names = sorted(known)
    plain = {name.lower(): name for name in names}
    close = difflib.get_close_matches(got.lower(), plain, n=1)
    advice = f"did you mean {plain[close[0]]!r}?" if close else f"known: {', '.join(names)}"
    return InputError(f"unknown {kind} {got!r}; {advice}" + (f" ({hint})" if hint else ""))


@contextmanager
def at(where: str) -> Iterator[None]:
    """Errors inside say to which key of the configuration they belong."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}") from error.__cause__
