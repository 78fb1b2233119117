"""The run folder of one peer: whose it is, that nobody else writes to it, and its log."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

from coterie.config import Config
from coterie.environment import describe_environment
from coterie.errors import InputError
from coterie.peers.collect import read_story
from coterie.peers.connect import KEYS
from coterie.peers.member import Member
from coterie.runtimes.checkpoint import write_atomically
from coterie.runtimes.lock import locked
from coterie.runtimes.logs import JsonLines

OWNER = "member.json"
LOG = "log.jsonl"


def default_folder(config: Config, me: int) -> Path:
    """Where a peer's run goes; always the same, so that a peer that starts again finds it."""
    who = "server" if me < 0 else f"peer-{me}"
    return Path("runs") / f"{config.experiment.name}-{who}"


def check_home(out: Path, member: Member, resume: bool) -> bool:
    """Whether the folder holds this very run; InputError where it holds anything else."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{str(out)!r} is a file; --out takes a folder, choose another")
    if not out.exists() or not any(out.iterdir()):
        if resume:
            raise InputError(f"there is no run to resume in {str(out)!r}")
        return False
    owner = _owner(out)
    if owner != _identity(member):
        raise InputError(
            f"{str(out)!r} holds {_difference(owner, member)}; choose another --out "
            "(of this configuration, only experiment.rounds, [evaluate], [runtime] and addresses "
            "may change)"
        )
    return True


def finished(out: Path, member: Member) -> bool:
    """Whether the run in the folder has come to its end already."""
    story = read_story(out)
    end = story.end if story else None
    rounds = member.config.experiment.rounds
    return bool(end and end["finished"] and end["round"] >= rounds)


@contextlib.contextmanager
def opened(out: Path, member: Member, folder: Path) -> Iterator[None]:
    """The folder as this peer's and nobody else's: whose run it is, how and on what it runs."""
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(locked(out))
            config = absolute(member.config, folder)
            write_atomically(out / OWNER, json.dumps(_identity(member)).encode())
            write_atomically(out / "config.toml", config.to_toml().encode())
            found = describe_environment(member.setup.device)
            write_atomically(out / "environment.json", json.dumps(found, indent=1).encode())
        except OSError as error:
            raise unwritable(out, error) from None
        yield


def unwritable(out: Path, error: OSError) -> InputError:
    """What to say where a folder cannot be written to."""
    return InputError(
        f"cannot write to {str(out)!r}: {error.strerror or error}; what was checkpointed before "
        "is intact: make room or choose another --out, then start the peer again"
    )


def absolute(config: Config, folder: Path) -> Config:
    """The configuration with whole paths, so that its copy in the run folder works too."""
    runtime, broker = config.runtime, config.runtime.broker
    files = ("password_file", "ca", "certificate", "key")
    found = {name: str((folder / getattr(broker, name)).resolve()) for name in files}
    broker = broker.model_copy(update={n: found[n] for n in files if getattr(broker, n)})
    update = {"broker": broker, "keys": str((folder / (runtime.keys or KEYS)).resolve())}
    peers = [
        peer.model_copy(update={"certificate": str((folder / peer.certificate).resolve())})
        if peer.certificate
        else peer
        for peer in config.peers
    ]
    return config.model_copy(update={"runtime": runtime.model_copy(update=update), "peers": peers})


def _identity(member: Member) -> dict[str, object]:
    return {"id": member.id, "run": member.run.hex()}


def _owner(out: Path) -> dict[str, object]:
    try:
        found = json.loads((out / OWNER).read_text())
    except (OSError, ValueError):
        raise InputError(f"{str(out)!r} is not empty and holds no peer; choose another") from None
    return found if isinstance(found, dict) else {}


def _difference(owner: dict[str, object], member: Member) -> str:
    if owner.get("run") == member.run.hex():
        return f"peer {owner.get('id')} of this run, not peer {member.id}"
    return "another run"


@contextlib.contextmanager
def logged(out: Path) -> Iterator[None]:
    """Write what happens as lines of JSON into the folder; what worries a peer also to stderr."""
    file = logging.FileHandler(out / LOG, encoding="utf-8", delay=True)
    file.setFormatter(JsonLines())
    shown = logging.StreamHandler(sys.stderr)
    shown.setLevel(logging.WARNING)
    shown.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    root = logging.getLogger("coterie")
    places: list[tuple[logging.Logger, logging.Handler]] = [
        (root, file),
        (logging.getLogger("coterie.peer"), shown),  # not of links, which come and go
    ]
    before = root.level
    root.setLevel(logging.INFO)
    for logger, handler in places:
        logger.addHandler(handler)
    try:
        yield
    finally:
        root.setLevel(before)
        for logger, handler in places:
            logger.removeHandler(handler)
            handler.close()
