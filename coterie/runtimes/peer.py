"""One node as a process of its own: drives the algorithm's generators over a link.

The program runs in a thread of its own, so that the peer keeps answering while it trains.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from coterie.core.algorithm import Algorithm, Program
from coterie.core.engine import Scores
from coterie.core.messages import Inbox, Message
from coterie.core.nodes import Nodes
from coterie.core.turns import Returned
from coterie.links import wire
from coterie.links.ending import end
from coterie.links.link import Link
from coterie.runtimes.conversation import DATA, Bounds, Conversation
from coterie.runtimes.logs import tell
from coterie.runtimes.pace import Pace
from coterie.runtimes.packing import SHARING, advance, unpack
from coterie.runtimes.plan import Outcome, Picked, Plan, Report, Status, Watch, Whereabouts
from coterie.runtimes.post import Post
from coterie.runtimes.roles import role_of
from coterie.runtimes.roll import Roll
from coterie.runtimes.seals import Seals
from coterie.runtimes.shelf import Moment, Shelf
from coterie.runtimes.waiting import Sleep, Stopped, Waiting

if TYPE_CHECKING:
    from coterie.links.letters import Identity

CLOSING = 10.0  # seconds to hand over the last frames
LAST = 5.0  # seconds in which the training at hand may still end, so that there is a model
SERVING = 20.0  # seconds in which who was stopped answers others, at most


class Peer:
    """One node of a run, over a link to all others.

        peer = Peer(algorithm, nodes[row], link, Plan(run, peers=(0, 1, 2), rounds=100))
        outcome = await peer.run()

    `nodes` is a block of one row. `sleep` is the clock. Sealed runs need an `identity`.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        nodes: Nodes,
        link: Link,
        plan: Plan,
        watch: Watch | None = None,
        sleep: Sleep = asyncio.sleep,
        identity: Identity | None = None,
    ) -> None:
        self.nodes = nodes
        self.id = int(nodes.key)  # a block of one row
        self.link = link
        self.plan = plan
        self.watch = watch or Watch()
        self.waiting = Waiting(f"peer {self.id}", sleep)
        self.tick = min(plan.deadline / 4, 5.0)
        others = [peer for peer in plan.peers if peer != self.id]
        self.roll = Roll(others, patience=round(plan.deadline / self.tick) + 1)
        self.post = Post(link, plan.ahead, self.waiting.fail)
        bounds = Bounds(plan.rounds, plan.window, plan.ahead, plan.limits, plan.threshold)
        self.role = role_of(algorithm, nodes)
        self.pace = Pace(self.roll, plan.rounds, plan.window, self.role.leader)
        self.talk = Conversation(nodes, plan.run, self.roll, bounds, self.post.put)
        self.talk.life = secrets.randbits(62) + 1
        self.talk.allow_seals(algorithm, identity)
        self.shelf = Shelf(plan.folder, kept=plan.window + 2)
        self.state: Any = None
        self.done = 0  # rounds
        self.before = 0  # bytes sent before the process started
        self.heard: set[int] = set()  # since the last report
        self.missed: set[int] = set()
        self.resigned = False  # to being alone
        self.recent: deque[Moment] = deque(maxlen=plan.window + 1)  # what another may resume at

    def stop(self) -> None:
        """End soon: the round at hand is given up, a checkpoint is written, the others are told."""
        self.waiting.stop()

    @property
    def sent(self) -> int:
        """Bytes that this peer has sent, counted as the simulation does."""
        return self.before + sum(self.talk.sent[kind] for kind in DATA)

    @property
    def control(self) -> int:
        """What this peer has sent since it started to keep step with the others, in bytes."""
        return sum(self.talk.sent[kind] for kind in wire.KINDS if kind not in DATA)

    def status(self) -> Status:
        """Where this peer is, and what it knows about the others."""
        others = {
            peer: Whereabouts(
                None if entry.place is None else entry.place[0],
                self.roll.present(peer),
                self.talk.rejected[peer],
            )
            for peer, entry in self.roll.entries.items()
        }
        return Status(
            self.id,
            *self.talk.place,
            self.sent,
            self.control,
            self.talk.late,
            self.talk.rejected.total(),
            tuple(sorted(self.talk.missing())),
            others,
        )

    async def run(self) -> Outcome:
        """All rounds, from the last checkpoint where there is one."""
        self.talk.await_start(self.shelf.rounds())
        if not await self._open():
            return Outcome(0, False, None, None, 0, 0)
        try:
            return await self._play()
        finally:
            await self.post.close()
            await self.link.close()
            self.waiting.close()

    async def _open(self) -> bool:
        """Begin to listen; False: somebody asked to stop before that came about."""
        opening = asyncio.create_task(self.link.open(self._receive))
        try:
            await self.waiting.done(opening)
        except Stopped:
            await end([opening], CLOSING)
            await self.link.close()
            return False
        return True

    async def _play(self) -> Outcome:
        finished, beat = True, asyncio.create_task(self._beat())
        self.waiting.mind(beat)
        try:
            await self._gather()
            await self._begin()
            while self.done < self.plan.rounds:
                await self._follow()
                await self._round()
            await self._finish()
            await self._linger()
        except Stopped:
            finished = self.talk.place[0] > self.plan.rounds
            await self.waiting.write(partial(self._save, len(self.recent)))
            await self._serve()
        finally:
            await self._leave()
            await end([beat], CLOSING)
        personal = await self.waiting.spare(self._personal, None if finished else LAST)
        return Outcome(self.done, finished, self.state, personal, self.sent, self.control)

    def _personal(self) -> Tensor | None:
        return None if self.state is None else self.role.personal(self.state)

    # before the first round

    async def _gather(self) -> None:
        """Wait until all others are there; where the run has begun, only a moment."""
        self.state = await self.waiting.work(self.role.start)
        self.talk.hello(self.roll.entries)
        tell("waiting for peers", {"peer": self.id, "peers": len(self.roll.entries)})
        await self.waiting.until(self._unheard_unless_begun, self.plan.patience)
        if self.roll.everyone():
            await self.waiting.until(self.pace.unheard, self.plan.deadline / 2)

    def _unheard_unless_begun(self) -> set[int]:
        return set() if self.roll.everyone() else self.roll.unheard()

    async def _begin(self) -> None:
        """Take the state of the last checkpoint, and the round at which the others are."""
        t = self.pace.first(self.shelf.rounds(), self.talk.theirs)
        found = await self.waiting.work(partial(self.shelf.load, t, self.state))
        found = found or Moment(0, self.state, 0, {})
        self.done, self.state, self.before = t, found.state, found.sent
        self._remember(found.note)
        self.talk.begin(t)
        tell("begins", {"peer": self.id, "round": t, "state": found.round})
        self.watch.begin(t, found.note)

    # rounds

    async def _round(self) -> None:
        """The round at hand, its evaluation and its checkpoint."""
        t = self.done
        program = self.role.round(t, self.state)
        if program is None:
            await self.waiting.until(lambda: self.pace.at_work(t), self.plan.patience)
        else:
            self.state = await self._drive(t, program)
        self.done = t + 1
        evaluated = self.done % self.plan.evaluate_every == 0 or self.done == self.plan.rounds
        if evaluated and (sharing := self.role.share(t, self.state)) is not None:
            self.state = await self._drive(t, sharing, SHARING)
        await self._report("round", evaluated)
        self._remember(self.watch.note())
        if self.done % self.plan.checkpoint_every == 0 or self.done == self.plan.rounds:
            await self.waiting.write(partial(self._save, 1))

    async def _follow(self) -> None:
        """Neither alone, nor far behind the others, nor far ahead of them."""
        self.talk.enter((self.done, 0))  # before any wait, or two might wait for each other
        await self._company()
        if (later := self.pace.jump(self.done)) > self.done:
            tell("skips rounds", {"peer": self.id, "from": self.done, "to": later})
            self.watch.skip(self.done, later)
            self.done = later
            self.talk.enter((later, 0))
        await self._wait_for(lambda: self.pace.behind(self.done), self.plan.deadline)

    async def _company(self) -> None:
        """Whoever is cut off waits, once, instead of running through all rounds alone."""
        if not self.pace.absent():
            self.resigned = False
        elif not self.resigned:
            tell("is alone", {"peer": self.id, "round": self.done})
            self.resigned = bool(await self.waiting.until(self.pace.absent, self.plan.patience))

    async def _drive(self, t: int, program: Program, first: int = 0) -> Any:
        """Run a program to the end, superstep by superstep; returns what it returns."""
        inbox: Inbox | None = None
        for step in itertools.count(first):
            place, run = (t, step), self.plan.run
            said = await self.waiting.work(partial(advance, program, inbox, self.nodes, run, place))
            if isinstance(said, Returned):
                return said.state
            if step:
                self.talk.enter(place)
            self.talk.say(said.message, said.frame)
            inbox = await self._inbox(said.message)

    async def _inbox(self, message: Message) -> Inbox:
        """What came in this superstep until nobody was missing, or until the deadline."""
        follows = self.role.leader is not None  # whoever leads may itself have to wait for others
        bound = self.plan.patience if follows else self.plan.deadline
        await self._wait_for(self.talk.missing, bound)
        if message.sealed and self.talk.seals is not None:
            return await self._sealed_inbox(message, self.talk.seals, bound)
        letters = self.talk.collect()
        limits = self.plan.limits
        inbox, faults = await self.waiting.work(
            partial(unpack, message, self.nodes, letters, limits)
        )
        for sender, why in faults.items():
            self.talk.reject(sender, why)
        self.heard |= letters.keys() - faults.keys()
        return inbox

    async def _sealed_inbox(self, message: Message, seals: Seals, bound: float) -> Inbox:
        """The sum of this superstep, phase by phase; who is late in one has dropped out."""
        while seals.step():
            await self._wait_for(self.talk.missing, bound)
        self.heard |= seals.members
        return seals.inbox(message)

    async def _report(self, phase: str, evaluated: bool) -> None:
        scores = await self.waiting.work(self._scores) if evaluated else None
        choice = getattr(self.state, "choice", None)
        report = Report(
            round=self.done,
            bytes=self.sent,
            control=self.control,
            choice=None if choice is None else int(choice.flatten()[0]),
            heard=len(self.heard),
            missed=tuple(sorted(self.missed)),
            scores=scores,
            phase=phase,
            lineage=self.role.lineage(self.state) if phase == "round" else None,
            picked=Picked.of(self.state) if phase == "round" else None,
            notes=self.role.notes(self.state) if phase == "round" else {},
        )
        for concern in self.role.concerns(self.state):
            facts = {"peer": self.id, "round": self.done, "what": repr(concern)}
            tell("ignored", facts, logging.WARNING)
        facts = {"peer": self.id, "round": self.done, "heard": report.heard, "bytes": self.sent}
        tell("round done", facts, logging.DEBUG)
        self.heard, self.missed = set(), set()
        self.watch.round(report)

    def _scores(self) -> Scores | None:
        personal = self.role.personal(self.state)
        return None if personal is None else self.nodes.test(personal)

    def _remember(self, note: dict[str, Any]) -> None:
        self.recent.append(Moment(self.done, self.state, self.sent, note))

    def _save(self, count: int) -> None:
        """Write the last moments; when all stop, each needs one that all the others have."""
        for moment in list(self.recent)[-count:]:
            self.shelf.save(moment)

    # the end

    async def _finish(self) -> None:
        """The algorithm's last program, where it has one."""
        last = self.role.finish(self.plan.rounds, self.state)
        if last is None:
            return
        await self._follow()
        self.state = await self._drive(self.plan.rounds, last)
        await self._report("final", evaluated=True)

    async def _linger(self) -> None:
        """Keep answering until all others are at the end too, or do not move any more."""
        self.talk.enter((self.plan.rounds + 1, 0))
        while waiting := self.pace.on_the_way():
            before = {peer: self.roll.entries[peer].place for peer in waiting}
            late = await self.waiting.until(self.pace.on_the_way, self.plan.deadline)
            self.roll.give_up(p for p in late if self.roll.entries[p].place == before.get(p))

    async def _serve(self) -> None:
        """Whoever was stopped says so, and still answers those who are behind it."""
        self.waiting.stopping = False
        self.talk.bye()
        await self.waiting.until(self.talk.owing, min(self.plan.deadline, SERVING))

    async def _leave(self) -> None:
        if not self.talk.leaving:
            self.talk.bye()
        await self.post.flush(CLOSING)

    # waiting

    async def _wait_for(self, missing: Callable[[], set[int]], seconds: float) -> None:
        """Until nobody is missing; who still is after this time is given up until it moves."""
        late = await self.waiting.until(missing, seconds)
        self.missed |= late
        self.roll.give_up(late)
        if late:
            facts = {"peer": self.id, "round": self.done, "missed": sorted(late)}
            tell("deadline passed", facts, logging.WARNING)

    async def _receive(self, sender: int, data: bytes) -> None:
        self.talk.hear(sender, data)
        self.waiting.look()

    async def _beat(self) -> None:
        """Say regularly where this peer is, and count for how long others were silent."""
        while True:
            await self.waiting.sleep(self.tick)
            self.roll.tick()
            self.talk.hello(self.roll.unheard())
            if self.talk.begun:
                self.talk.announce(self.roll.expected())
            self.waiting.look()
