"""The folders of several peers of one run as one run folder, for a report of them all."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from coterie import config as configuration
from coterie.errors import InputError
from coterie.peers.choose import nodes_of
from coterie.peers.collect import read_story, write_summary
from coterie.peers.home import OWNER
from coterie.run import new_folder

COPIED = ("config.toml", "environment.json")


def together(folders: Sequence[Path], out: Path | None) -> Path | None:
    """The run folder made of those of its peers; None: these are no peers of one run."""
    runs = [run_of(folder) for folder in folders]
    own = [
        folder for folder, run in zip(folders, runs, strict=True) if run and run == _common(runs)
    ]
    if len(own) < 2:
        return None
    if len(own) < len(folders):
        words = shlex.join(["coterie", "report", *map(str, own), "--out", "DIR"])
        raise InputError(
            f"{', '.join(repr(str(folder)) for folder in own)} are peers of one run; put them "
            f"together first, then report that folder beside the others: {words}"
        )
    return _collect(own, out)


def run_of(folder: Path) -> str:
    """The run of which a folder holds one peer; empty where it is no peer's."""
    try:
        found = json.loads((folder / OWNER).read_text())
    except (OSError, ValueError):
        return ""
    return str(found.get("run", "")) if isinstance(found, dict) else ""


def _common(runs: Sequence[str]) -> str:
    return next((run for run in runs if run and runs.count(run) > 1), "")


def _collect(folders: Sequence[Path], out: Path | None) -> Path:
    config = configuration.load(folders[0] / "config.toml")
    stories = [story for story in map(read_story, folders) if story is not None]
    nodes = [story.node for story in stories]
    if len(set(nodes)) < len(nodes):
        raise InputError(f"two of these folders are of one peer; got those of {sorted(nodes)}")
    target = out or new_folder(f"{config.experiment.name}-peers")
    if target.suffix == ".html" or (target / "checkpoints").exists():
        raise InputError(
            f"the records of all peers go to the folder --out, and {str(target)!r} is not one for "
            "them; choose another"
        )
    target.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        shutil.copyfile(folders[0] / name, target / name)
    write_summary(target, config, stories, range(nodes_of(config)))
    return target
