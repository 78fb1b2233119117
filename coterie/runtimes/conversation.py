"""One peer's side of the exchange, without sockets, clocks or threads.

It is told what comes in, posts what has to go out, and knows who is still missing.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coterie.core.algorithm import Algorithm
from coterie.core.messages import Message, Rows
from coterie.core.nodes import Nodes
from coterie.links import wire
from coterie.links.quorum import MAJORITY
from coterie.links.wire import Header, WireError
from coterie.runtimes.greetings import (
    GREETINGS,
    ROUNDS,
    Welcome,
    hello_rows,
    read_hello,
    read_welcome,
    welcome_rows,
)
from coterie.runtimes.logs import tell
from coterie.runtimes.mailbox import SUPERSTEPS, Late, Mailbox
from coterie.runtimes.offers import Offers
from coterie.runtimes.packing import SHARING, asks, check_size, not_sealed, sources, targets
from coterie.runtimes.roll import Place, Roll
from coterie.runtimes.seals import Seals, letter_frame, letter_in

if TYPE_CHECKING:
    from coterie.links.letters import Identity

Post = Callable[[int, bytes], None]  # to whom, and the frame
DATA = ("send", "offer", "ask", "seal")  # kinds that are the algorithm's traffic
CHATTY = 20  # rejected frames of one peer that are all logged; after these, ever fewer


@dataclass(frozen=True)
class Bounds:
    """What a conversation takes and keeps."""

    rounds: int  # of training; the algorithm's last program is one more, the end another
    window: int = 2  # rounds that a peer may be ahead of another
    ahead: int = 1 << 30  # bytes of frames that wait for their superstep
    limits: wire.Limits = field(default_factory=wire.Limits)
    threshold: float = MAJORITY  # share of its members that a secure sum needs


@dataclass
class Saying:
    """What this peer says in one superstep, and what became of it."""

    message: Message
    frame: bytes | None  # its rows
    to: set[int]  # who gets them unasked
    sources: set[int]  # from whom it wants to hear
    asks: bool  # it asks them, and offers its own rows; False: they send unasked
    reached: set[int] = field(default_factory=set)  # to whom it was sent, or who was asked
    gone: set[int] = field(default_factory=set)  # who has no answer


class Conversation:
    """What a peer says and hears, superstep by superstep."""

    def __init__(self, nodes: Nodes, run: bytes, roll: Roll, bounds: Bounds, post: Post) -> None:
        self.nodes = nodes
        self.me = int(nodes.key[0])
        self.run = run
        self.roll = roll
        self.bounds = bounds
        self.post = post
        self.box = Mailbox(len(roll.entries), bounds.window, bounds.ahead)
        self.begun = False
        self.leaving = False
        self.life = 1  # a number that tells this process from earlier ones of the same peer
        self.rounds: tuple[int, ...] = ()  # that can be resumed here
        self.theirs: dict[int, tuple[int, ...]] = {}  # by those who start too
        self.saying: Saying | None = None
        self.offers = Offers()
        self.sent: Counter[str] = Counter()  # bytes by kind
        self.rejected: Counter[int] = Counter()  # frames by sender
        self.late = 0  # frames that came after their superstep
        self.seals: Seals | None = None  # where this peer can take part in secure aggregation
        self._takes = {
            "send": self._take_send,
            "offer": self._take_answer,
            "ask": self._take_ask,
            "seal": self._take_seal,
            "hello": self._take_hello,
            "welcome": self._take_welcome,
            "at": self._take_at,
            "bye": self._take_bye,
            "gone": self._take_answer,
        }

    def allow_seals(self, algorithm: Algorithm, identity: Identity | None) -> None:
        """Take part in secure aggregation under this identity; InputError where it is needed."""
        if identity is not None:
            least = self.bounds.threshold
            self.seals = Seals(self.nodes, self.run, self.roll, identity, self.seal, least)
        elif getattr(algorithm, "sealed", False):
            raise not_sealed()

    @property
    def place(self) -> Place:
        """Where this peer is."""
        return self.box.place

    def await_start(self, rounds: tuple[int, ...]) -> None:
        """Be ready for others; these rounds can be resumed here."""
        self.rounds = rounds[-ROUNDS:]
        self.box.await_start(self.rounds)

    def hello(self, to: Iterable[int]) -> None:
        """Say that this peer is here; whoever hears it says welcome."""
        self._tell("hello", to, hello_rows(self.life))

    def begin(self, t: int) -> None:
        """Begin the run at round t, together with all who said hello."""
        self.begun = True
        self.roll.begin((t, 0))
        self.enter((t, 0))

    def enter(self, place: Place) -> None:
        """Come to a superstep; that a round begins is announced."""
        self.saying = None
        for when, asker in self.box.advance(place):
            self._tell("gone", [asker], where=when)
        self._release()
        if place[1] == 0:
            self.announce(self.roll.everyone())

    def announce(self, to: Iterable[int]) -> None:
        """Tell peers where this peer is."""
        self._tell("at", to)

    def say(self, message: Message, frame: bytes | None) -> None:
        """Say the message of this superstep; `frame` carries its rows, unless it is sealed."""
        if message.sealed:
            self._say_sealed(message)
            return
        check_size(frame, self.bounds.limits)
        known = set(self.roll.entries)
        heard = set(sources(message, self.nodes)) & known
        to = set(targets(message, self.nodes)) & known
        self.saying = Saying(message, frame, to, heard, asks(message, self.place))
        if self.saying.asks and frame is not None:
            self.offers.keep(self.place, frame)
        for peer in self.roll.entries:
            self._reach(peer)
        if self.place[1] > 0:  # at the first superstep of a round, everybody was told already
            self.announce(self.roll.everyone() - self.saying.reached)
        for asker in self.box.take(self.place, "ask"):
            self._answer(asker, self.place)

    def _say_sealed(self, message: Message) -> None:
        """Begin this peer's own sum, and take part in those of others who asked already."""
        if self.seals is None:
            raise not_sealed()
        self.saying = Saying(message, None, set(), set(), asks=False)
        if self.place[1] > 0:
            self.announce(self.roll.everyone())
        self.seals.say(message, self.place)
        for sender, data in self.box.take(self.place, "seal").items():
            self.hear(sender, data)

    def bye(self) -> None:
        """Say goodbye to everybody; whoever asks from now on gets what there is."""
        self.leaving = True
        self._tell("bye", self.roll.entries)
        for (place, kind), askers in list(self.box.frames.items()):
            for asker in askers if kind == "ask" else ():
                self._answer(asker, place)

    def owing(self) -> set[int]:
        """Who may still ask for an offer of this peer."""
        company, newest = self.roll.company(), self.offers.newest
        return {peer for peer in company if self.roll.comes(peer, newest)}

    def missing(self) -> set[int]:
        """From whom something may still come in this superstep."""
        if self.saying is None:
            return set()
        if self.saying.message.sealed:
            return set() if self.seals is None else self.seals.missing()
        if self.saying.asks:
            open_ = self.saying.reached - self.saying.gone - self.box.senders(self.place, "offer")
            return {peer for peer in open_ if self.roll.serves(peer, self.place)}
        open_ = self.saying.sources - self.box.senders(self.place, "send")
        return {peer for peer in open_ if self.roll.comes(peer, self.place)}

    def collect(self) -> dict[int, bytes]:
        """The frames that came in this superstep, by sender, of those who were to be heard."""
        if self.saying is None:
            return {}
        kind = "offer" if self.saying.asks else "send"
        found = self.box.take(self.place, kind)
        return {peer: data for peer, data in found.items() if peer in self.saying.sources}

    def hear(self, sender: int, data: bytes) -> None:
        """Take a frame that a peer proved to have sent; what is no good is dropped and counted."""
        try:
            header = self._checked(sender, data)
            if not self.roll.entries[sender].heard and header.kind not in GREETINGS:
                raise Late  # it was under way before this process started
            self._takes[header.kind](header, data)
        except Late:
            self.late += 1
        except WireError as error:
            self.reject(sender, str(error))

    def reject(self, sender: int, why: str) -> None:
        """Count a frame that was no good, and say so: the first ones, then ever fewer."""
        self.rejected[sender] += 1
        count = self.rejected[sender]
        if count <= CHATTY or count & (count - 1) == 0:
            facts = {"peer": self.me, "sender": sender, "why": repr(why), "count": count}
            tell("frame rejected", facts, logging.WARNING)

    def _tell(
        self, kind: str, to: Iterable[int], rows: Rows | None = None, where: Place | None = None
    ) -> None:
        """Post a frame that carries no rows of the algorithm."""
        frame = wire.Frame(self.run, *(where or self.place), self.me, kind, rows or {})
        data = wire.encode(frame)
        for peer in sorted(to):
            self._post(kind, peer, data, where or self.place)

    def _post(self, kind: str, to: int, data: bytes, where: Place) -> None:
        training = where[0] < self.bounds.rounds and where[1] < SHARING
        self.sent[kind if training or kind not in DATA else "other"] += len(data)
        self.post(to, data)

    def _reach(self, peer: int) -> None:
        """Send a peer that is there what this superstep has for it, or ask it, once."""
        saying = self.saying
        if saying is None or peer in saying.reached:
            return
        if saying.asks:
            if peer in saying.sources and self.roll.serves(peer, self.place):
                saying.reached.add(peer)
                self._tell("ask", [peer])
        elif peer in saying.to and saying.frame is not None and self.roll.present(peer):
            saying.reached.add(peer)
            self._post("send", peer, saying.frame, self.place)

    def _answer(self, asker: int, place: Place) -> None:
        """Give a peer the offer it asked for, once."""
        frame = self.offers.take(asker, place)
        if frame is None:
            self._tell("gone", [asker], where=place)
        else:
            self._post("offer", asker, frame, place)

    def _release(self) -> None:
        """Drop what nobody will ask for any more."""
        oldest = (self.place[0] - self.bounds.window - 1, 0)  # where the slowest may be
        self.offers.release(lambda place: place < oldest or self.roll.passed(place))
        if self.seals is not None:
            self.seals.release(self.place, oldest)

    def _checked(self, sender: int, data: bytes) -> Header:
        """The header of a frame of this run, from whom it says it is."""
        if sender not in self.roll.entries:
            raise WireError("no peer of this run")
        header = wire.peek(data, self.bounds.limits)
        if header.run != self.run:
            raise WireError("a frame of another run")
        if header.sender != sender:
            raise WireError(f"it says it is from {header.sender}")
        if (
            not 0 <= header.round <= self.bounds.rounds + 1
            or not 0 <= header.superstep < SUPERSTEPS
        ):
            raise WireError(f"there is no round {header.round}, superstep {header.superstep}")
        if header.schema and header.kind not in ("send", "offer", "seal", *GREETINGS):
            raise WireError(f"a frame of kind {header.kind!r} has no rows")
        return header

    def _moved(self, header: Header) -> None:
        """A peer is at a place; one that just came gets what the others got."""
        if self.roll.move(header.sender, _place(header)) and self.begun:
            self.announce([header.sender])
            self._reach(header.sender)

    def _keep(self, header: Header, data: bytes) -> None:
        self.box.put(_place(header), header.kind, header.sender, data)

    def _take_at(self, header: Header, data: bytes) -> None:
        self._moved(header)
        self._release()

    def _take_bye(self, header: Header, data: bytes) -> None:
        self.roll.move(header.sender, _place(header))
        self.roll.leave(header.sender)
        if header.round > self.bounds.rounds:  # at the end there is nothing to answer any more
            self.roll.give_up([header.sender])
        self._release()

    def _take_hello(self, header: Header, data: bytes) -> None:
        life = read_hello(header, data, self.bounds.limits)
        fresh = self.roll.greet(header.sender, life)
        answer = Welcome(life, self.begun, self.rounds)
        self._tell("welcome", [header.sender], welcome_rows(answer))
        if fresh:  # once, or two would greet each other for ever
            self.hello([header.sender])

    def _take_welcome(self, header: Header, data: bytes) -> None:
        said = read_welcome(header, data, self.bounds.limits)
        if said.life != self.life:  # an answer to an earlier process
            raise Late
        self.roll.welcome(header.sender, said.begun)
        if said.begun:
            self._moved(header)
        else:  # it starts together with this peer
            self.theirs[header.sender] = said.rounds

    def _take_send(self, header: Header, data: bytes) -> None:
        self._moved(header)
        self._keep(header, data)

    def _take_ask(self, header: Header, data: bytes) -> None:
        self._moved(header)
        place = _place(header)
        over = place < self.place or (place == self.place and self.saying is not None)
        if over or self.leaving:
            self._answer(header.sender, place)
        else:
            self._keep(header, data)

    def _take_seal(self, header: Header, data: bytes) -> None:
        """A letter of secure aggregation: to this peer as a member, or as the requester."""
        self._moved(header)
        if self.seals is None:
            raise WireError("this run has no sealed messages")
        place = _place(header)
        if place > self.place or (place == self.place and self.saying is None):
            self._keep(header, data)
        else:
            self.seals.hear(header.sender, place, letter_in(data, self.bounds.limits))

    def seal(self, to: int, letter: bytes | None, place: Place) -> None:
        """Post a letter of secure aggregation; None: this peer has nothing to add up there."""
        if letter is None:
            self._tell("gone", [to], where=place)
        elif to in self.roll.entries:
            self._post("seal", to, letter_frame(self.run, self.me, place, letter), place)

    def _take_answer(self, header: Header, data: bytes) -> None:
        """An offer, or that there is none; only what was asked for in this superstep is taken."""
        self._moved(header)
        if _place(header) < self.place:
            raise Late
        if _place(header) > self.place:
            raise WireError("an answer before the question")
        saying = self.saying
        if saying is not None and saying.message.sealed and self.seals is not None:
            self.seals.lose(header.sender)
            return
        if saying is None or not saying.asks or header.sender not in saying.reached:
            raise WireError("nobody asked for this")
        if header.kind == "offer":
            self._keep(header, data)
        else:
            saying.gone.add(header.sender)


def _place(header: Header) -> Place:
    return header.round, header.superstep
