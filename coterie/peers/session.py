"""One peer from its first to its last round: the runtime, watched, recorded and shown."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.errors import InputError, at
from coterie.links.link import Link
from coterie.metrics.traffic import format_bytes
from coterie.peers import standing
from coterie.peers.choose import SERVER
from coterie.peers.collect import read_story, write_summary
from coterie.peers.diary import Diary
from coterie.peers.endpoint import endpoint, split
from coterie.peers.home import unwritable
from coterie.peers.member import Member
from coterie.peers.standing import Standing
from coterie.peers.stopping import Stop
from coterie.runtimes.logs import tell
from coterie.runtimes.peer import Peer
from coterie.runtimes.plan import Outcome, Plan, Report, Watch

if TYPE_CHECKING:
    from coterie.links.letters import Identity

Say = Callable[[str], None]
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)  # errors of a disk, not of a socket
TICK = 1.0  # seconds between two looks at the standing


class Session:
    """A peer at work in its run folder."""

    def __init__(
        self,
        member: Member,
        link: Link,
        out: Path,
        say: Say,
        stop: Stop,
        identity: Identity | None = None,
    ) -> None:
        self.member = member
        self.link = link
        self.out = out
        self.say = say
        self.stop = stop
        self.state = "starting"
        self.before = standing.read(out)  # of an earlier life
        self.diary = Diary(member, out)
        watch = Watch(self._begin, self._round, self._skip, self.diary.note)
        self.peer = Peer(
            member.part.algorithm, member.nodes, link, self._plan(), watch, identity=identity
        )

    def _plan(self) -> Plan:
        config = self.member.config
        runtime, every = config.runtime, config.evaluate.every
        return Plan(
            run=self.member.run,
            peers=self.member.ids,
            rounds=config.experiment.rounds,
            deadline=runtime.deadline,
            window=runtime.window,
            threshold=runtime.threshold,
            patience=runtime.patience,
            evaluate_every=every,
            checkpoint_every=runtime.checkpoint_every or every,
            folder=self.out / "checkpoints",
            limits=self.member.limits,
        )

    async def live(self, leash: bool = False) -> int:
        """All of it; returns the exit code."""
        loop = asyncio.get_running_loop()
        self.stop.wake = lambda: loop.call_soon_threadsafe(self.peer.stop)
        if self.stop.number:
            self.peer.stop()
        if leash:
            loop.add_reader(0, self._pulled, loop)
        ticking = asyncio.create_task(self._tick())
        try:
            async with self._endpoint():
                outcome = await self.peer.run()
            return self._end(outcome)
        except OSError as error:
            if error.filename is None and error.errno not in DISK:
                raise
            raise unwritable(self.out, error) from error
        finally:
            ticking.cancel()
            self.stop.wake = lambda: None
            if self.state not in ("done", "stopped"):
                self.state = "failed"
            self._show()

    @contextlib.asynccontextmanager
    async def _endpoint(self) -> AsyncIterator[None]:
        address = self.member.config.runtime.metrics
        if not address:
            yield
            return
        with at("runtime.metrics"):
            split(address)
        async with endpoint(address, lambda: standing.to_metrics(self.standing())) as bound:
            self.say(f"metrics: http://{bound}/metrics")
            tell("metrics", {"address": bound})
            yield

    def _pulled(self, loop: asyncio.AbstractEventLoop) -> None:
        """Whoever holds the other end of stdin is gone: nobody wants this peer any more."""
        if not os.read(0, 1024):
            loop.remove_reader(0)
            self.stop.ask()

    def standing(self) -> Standing:
        """How this peer stands now; before it begins again, how it stood."""
        now = round(time.time(), 3)
        if self.before is not None and self.state in ("starting", "waiting"):
            return replace(self.before, state=self.state, time=now)
        status, config = self.peer.status(), self.member.config
        rounds = config.experiment.rounds
        known = [where.round for where in status.others.values() if where.round is not None]
        return Standing(
            id=self.member.id,
            name=config.experiment.name,
            state=self.state,
            round=self.diary.done,
            rounds=rounds,
            accuracy=self.diary.accuracy,
            loss=self.diary.loss,
            bytes=status.bytes,
            control=status.control,
            received=self.link.traffic.received,
            alive=1 + sum(where.present for where in status.others.values()),
            peers=len(self.member.ids),
            furthest=min(max([self.diary.done, *known]), rounds),
            late=status.late,
            rejected=status.rejected,
            time=now,
        )

    def _show(self) -> None:
        with contextlib.suppress(OSError):  # a full disk stops the peer at its next checkpoint
            standing.write(self.standing(), self.out)

    async def _tick(self) -> None:
        missing: set[int] = set()
        while True:
            self._show()
            await asyncio.sleep(TICK)
            if self.state in ("starting", "waiting"):
                self.state = "waiting"
                missing = self._miss(missing)

    def _miss(self, before: set[int]) -> set[int]:
        """Say which peers have not been heard, where these are others than before."""
        missing = self.peer.roll.unheard()
        if missing and missing != before:
            names = ["the server" if peer == SERVER else str(peer) for peer in sorted(missing)]
            self.say(f"waiting for peers: {', '.join(names)}")
        return missing

    def _begin(self, t: int, note: dict[str, Any]) -> None:
        self.diary.begin(t, note)
        self.state = "running"
        if t:
            self.say(f"goes on at round {t + 1}")
        self._show()

    def _round(self, report: Report) -> None:
        self.diary.round(report)
        now = self.standing()
        if report.round == now.rounds:
            self.state = "ending"
        self._show()
        self.say(self._line(now, report))

    def _line(self, now: Standing, report: Report) -> str:
        left = self.diary.left
        told = report.scores is not None and now.accuracy is not None
        words = [
            f"round {now.round}/{now.rounds}" + ("" if report.phase == "round" else " (final)"),
            "" if not told else f"accuracy {now.accuracy:.1f} %",
            f"peers {now.alive}/{now.peers}",
            f"without {', '.join(map(str, report.missed))}" if report.missed else "",
            "" if left is None else f"{left:.0f} s left",
        ]
        return "  ".join(word for word in words if word)

    def _last_line(self, outcome: Outcome) -> str:
        if not outcome.finished:
            return f"stopped after round {outcome.rounds}; start this peer again to go on"
        sent = f"{self.diary.seconds:.0f} s, {format_bytes(outcome.bytes)} sent"
        model = self.diary.model
        return f"done: {outcome.rounds} rounds, {sent}" + (f"; model: {model}" if model else "")

    def _skip(self, t: int, to: int) -> None:
        self.diary.skip(t, to)
        self.say(f"skips rounds {t + 1} to {to}: the others have moved on")

    def _end(self, outcome: Outcome) -> int:
        """Leave a folder that can be used, however far the run came."""
        self.diary.end(outcome)
        story = read_story(self.out)
        write_summary(self.out, self.member.config, [story] if story else [])
        self.state = "done" if outcome.finished else "stopped"
        self.say(self._last_line(outcome))
        if outcome.finished:
            return 0
        if not self.stop.number:
            raise InputError("the peer ended before its last round; its log says why")
        return self.stop.code
