"""All peers at a glance: one table that changes, or lines where there is no terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.live import Live

from coterie.peers.standing import Standing
from coterie.peers.survey import table


class Board:
    """Shows how peers stand, as a context manager."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self.said: tuple[object, ...] = ()

    def __enter__(self) -> Board:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.live:
            self.live.stop()

    def show(self, found: Sequence[Standing]) -> None:
        """The standings of all, now."""
        if self.live:
            self.live.update(table(found), refresh=True)
            return
        now = (_slowest(found), *sorted(_lost(found)))
        if now != self.said:
            self.said = now
            self.console.print(_line(found), highlight=False, soft_wrap=True, markup=False)


def _lost(found: Sequence[Standing]) -> list[str]:
    return [str(one.id) for one in found if one.state == "failed"]


def _slowest(found: Sequence[Standing]) -> int:
    return min((one.round for one in found if one.state != "failed"), default=0)


def _line(found: Sequence[Standing]) -> str:
    """The slowest round, how many run, and the mean of their accuracies."""
    rounds = max((one.rounds for one in found), default=0)
    known = [one.accuracy for one in found if one.accuracy is not None]
    lost = _lost(found)
    words = [
        f"round {_slowest(found)}/{rounds}",
        f"peers {len(found) - len(lost)}/{len(found)}",
        f"accuracy {sum(known) / len(known):.1f} %" if known else "",
        f"lost: {', '.join(lost)}" if lost else "",
    ]
    return "  ".join(word for word in words if word)
