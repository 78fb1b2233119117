"""The checkpoints of one peer: a file a round, the last few kept."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from coterie.errors import InputError
from coterie.runtimes import checkpoint
from coterie.runtimes.logs import tell

Rounds = tuple[int, ...]  # ascending


@dataclass(frozen=True)
class Moment:
    """A peer between two rounds."""

    round: int  # the next one
    state: Any
    sent: int  # bytes so far
    note: dict[str, Any]  # plain values of whoever watches


class Shelf:
    """Checkpoints in a folder, the newest `kept` of them; without a folder there are none."""

    def __init__(self, folder: Path | None, kept: int) -> None:
        self.folder = folder
        self.kept = kept

    def rounds(self) -> Rounds:
        """The rounds at which the peer can resume, ascending."""
        return tuple(sorted(self._files()))

    def save(self, moment: Moment) -> None:
        """Keep the state before a round."""
        if self.folder is None:
            return
        path = self.folder / f"round-{moment.round:07d}.safetensors"
        note = {"round": moment.round, "note": moment.note}
        checkpoint.save(path, [moment.state], torch.tensor([moment.sent]), note)
        for old in self.rounds()[: -self.kept]:
            self._files()[old].unlink(missing_ok=True)

    def load(self, t: int, like: Any) -> Moment | None:
        """The newest readable checkpoint not after round t; `like` has the shapes of the state."""
        files = self._files()
        for found in sorted((r for r in files if r <= t), reverse=True):
            try:
                note = checkpoint.read_note(files[found])["note"]
                states, sent = checkpoint.load(files[found], [like])
                return Moment(found, states[0], int(sent.sum()), note)
            except (InputError, KeyError) as error:
                tell("checkpoint unreadable", {"why": repr(str(error))}, logging.ERROR)
        return None

    def _files(self) -> dict[int, Path]:
        if self.folder is None or not self.folder.is_dir():
            return {}
        found = {
            path.stem.removeprefix("round-"): path
            for path in self.folder.glob("round-*.safetensors")
        }
        return {int(name): path for name, path in found.items() if name.isdigit()}


def first_round(mine: Rounds, theirs: list[Rounds], running: list[int]) -> int:
    """Where a starting peer begins: where most of the others are, or where all can resume exactly.

    `mine` and `theirs` are the rounds that this peer and others who are starting can resume,
    `running` the rounds of those who did not wait. The middle one of all these counts: a single
    peer that claims to be at the end does not take everybody there.
    """
    if running:
        others = sorted([*running, *(max(rounds, default=0) for rounds in theirs)])
        return max(*mine, others[(len(others) - 1) // 2], 0)
    shelves = [set(rounds) for rounds in (mine, *theirs) if rounds]
    counts = {t: sum(t in shelf for shelf in shelves) for shelf in shelves for t in shelf}
    for needed in (len(shelves), len(shelves) // 2 + 1):
        common = [t for t, count in counts.items() if count >= needed]
        if common:
            return max(common)
    tops = sorted(max(shelf) for shelf in shelves)
    return tops[(len(tops) - 1) // 2] if tops else 0
