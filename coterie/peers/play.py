"""A launch as a command: started, shown, reported, with an exit code."""

from __future__ import annotations

import asyncio
import shlex

from coterie.display import console, print_results, say
from coterie.peers.board import Board
from coterie.peers.launch import Launch, Order, folder_of, ordered
from coterie.peers.member import SEALED, is_sealed
from coterie.peers.stopping import Stop
from coterie.report.page import write_report

__all__ = ["Order", "play"]


def play(order: Order, stop: Stop) -> int:
    """Carry out an order; returns the exit code: 0 where every peer came to its end."""
    config = ordered(order)
    out = folder_of(order)
    say(f"run folder: {out}")
    if is_sealed(config):
        say(SEALED)
    with Board(console) as board:
        launch = Launch(config, out, order.device, board.show, stop)
        summary = asyncio.run(launch.run())
    for child in launch.children.died:
        if not stop.number:
            say(f"peer {child.id} did not come to its end ({_how(child.code)}): {child.output}")
    if summary["results"]:
        print_results(summary)
        say(f"report: {write_report([out])}")
    if stop.number:
        say(f"stopped; go on with: coterie launch --out {shlex.quote(str(out))} --resume")
        return stop.code
    return 1 if launch.children.died else 0


def _how(code: int | None) -> str:
    return f"signal {-code}" if code and code < 0 else f"exit code {code}"
