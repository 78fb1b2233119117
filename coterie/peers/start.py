"""From a command to a peer at work, or to a preview of what it would send."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

from coterie.config import Config
from coterie.peers.choose import SERVER, check_peers, choose
from coterie.peers.connect import Connection
from coterie.peers.dry_run import preview, told
from coterie.peers.home import check_home, default_folder, finished, logged, opened
from coterie.peers.member import SEALED, Member, is_federated, is_sealed, make_member
from coterie.peers.session import Say, Session
from coterie.peers.stopping import Stop
from coterie.run import check_names, resolved
from coterie.runtimes.logs import tell
from coterie.runtimes.packing import not_sealed
from coterie.tracking.choose import tracker_of


@dataclass(frozen=True)
class Job:
    """What was asked of one peer."""

    config: Config
    folder: Path  # of the configuration's file
    me: int
    algorithm: str = ""
    seed: int | None = None
    out: Path | None = None
    device: str = "auto"
    resume: bool = False
    leash: bool = False  # end when stdin does


def prepared(job: Job) -> tuple[Member, Connection]:
    """Everything that can be checked without the others, checked: names, keys, data, model."""
    config = choose(job.config, job.algorithm, job.seed)
    check_names(config)
    config = resolved(config)
    check_peers(config, job.me, is_federated(config))
    connection = Connection(config, job.me, job.folder)
    member = make_member(config, job.me, job.device)
    if is_sealed(member.config) and connection.identity() is None:
        raise not_sealed()
    return member, connection


def show(job: Job, say: Say) -> None:
    """Say what would leave this machine."""
    member, connection = prepared(job)
    for line in told(preview(member), member.id):
        say(line)
    say(f"link: {member.config.runtime.link}, {connection.protection}")


def work(job: Job, say: Say, stop: Stop) -> int:
    """Take part in the run until its end, and track it where asked; returns the exit code."""
    member, connection = prepared(job)
    tracker = tracker_of(member.config)
    if stop.number:
        return stop.code
    out = job.out or default_folder(member.config, job.me)
    code = _live(job, member, connection, out, say, stop)
    if tracker and not code:
        tracker.log(out, "the server" if job.me == SERVER else f"peer {job.me}")
    return code


def _live(job: Job, member: Member, connection: Connection, out: Path, say: Say, stop: Stop) -> int:
    again = check_home(out, member, job.resume)
    if again and finished(out, member):
        say(f"the run in {out} has come to its end; raise experiment.rounds to go on")
        return 0
    with opened(out, member, job.folder), logged(out):
        say(f"run folder: {out}")
        say(f"link: {member.config.runtime.link}, {connection.protection}")
        if is_sealed(member.config):
            say(SEALED)
        facts = {"peer": job.me, "run": member.run.hex(), "process": os.getpid()}
        tell("starts", {**facts, "link": connection.protection})
        link = connection.link(member.run, member.limits)
        session = Session(member, link, out, say, stop, connection.identity())
        return asyncio.run(session.live(job.leash))
