"""The way to and from one peer through a broker that may lose, repeat or replay what it carries.

Frames to the peer are numbered and held until the peer says that they were handled; at most a
window of them is on the way. From the peer, a frame is taken only when it is the next one (or the
oldest that the peer still holds), so that order survives every loss. After a loss both ends compare
notes with a hello, and what is missing goes out again.

No clock and no socket in here: the link asks for the next note, and hands in what arrived.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from coterie.links.notes import NOBODY, Note

_FIRST_HELLO = 1.0  # seconds until a hello without answer is repeated, doubled every time
_LAST_HELLO = 30.0
_SESSIONS = 1024  # how many earlier sessions of a peer are remembered


@dataclass(frozen=True)
class Parcel:
    """A frame on its way: in here when small, else in the store."""

    digest: bytes
    size: int
    url: str = ""
    body: bytes = b""


class Outbox:
    """Frames for one peer, from the oldest that it has not handled on."""

    def __init__(self, capacity: int, window: int) -> None:
        self.held: deque[Parcel] = deque()
        self.base = 1  # the number of the first held
        self.sent = 0  # the last number that is on the way
        self.reached = 0  # the last number that ever was
        self._capacity = capacity
        self._window = window

    @property
    def full(self) -> bool:
        """Whether another frame would push out the oldest."""
        return len(self.held) >= self._capacity

    @property
    def waiting(self) -> bool:
        """Whether frames are on the way."""
        return self.sent >= self.base

    def put(self, parcel: Parcel) -> bool:
        """Hold another frame; returns whether the oldest had to go."""
        dropped = self.full
        if dropped:
            self.handled(self.base)
        self.held.append(parcel)
        return dropped

    def next(self) -> tuple[int, Parcel] | None:
        """The number of the frame to send next, and the frame, if the window has room."""
        number = self.sent + 1
        if number - self.base >= min(len(self.held), self._window):
            return None
        return number, self.held[number - self.base]

    def advance(self, number: int) -> None:
        """The frame with this number is on the way."""
        self.sent = number
        self.reached = max(self.reached, number)

    def handled(self, number: int) -> None:
        """Let go of the frames up to this number."""
        while self.held and self.base <= number:
            self.held.popleft()
            self.base += 1
        self.sent = max(self.sent, self.base - 1)

    def rewind(self, arrived: int) -> None:
        """Send again what has not arrived."""
        self.sent = max(self.base - 1, min(self.sent, arrived))


class Intake:
    """Frames from one peer, in order, each once."""

    def __init__(self, capacity: int) -> None:
        self.waiting: deque[tuple[bytes, Note]] = deque()  # session, frame
        self.arrived = 0
        self.handled = 0
        self._capacity = capacity

    def take(self, note: Note) -> bool:
        """Take the frame if it is the next one; returns whether it was."""
        expected = max(self.arrived + 1, note.base)
        if note.sequence != expected or len(self.waiting) >= self._capacity:
            return False
        self.arrived = note.sequence
        self.waiting.append((note.session, note))
        return True

    def restart(self) -> None:
        """Begin to count anew: the peer has a new session."""
        self.arrived = self.handled = 0


@dataclass
class Lane:
    """Both directions of one peer."""

    own: bytes  # the session of this peer
    outbox: Outbox
    intake: Intake
    session: bytes = NOBODY  # of the other
    past: deque[bytes] = field(default_factory=lambda: deque(maxlen=_SESSIONS))
    heard: float = 0.0  # the last sign of life
    asked: float | None = 0.0  # since when a sign of life is awaited, None if none is
    greeted: float = 0.0  # when it was last asked for one
    pause: float = _FIRST_HELLO
    left: bool = False  # it said bye
    _answer: bytes | None = None  # a hello is due, to this session
    _ask: bool = False
    _ack: bool = False

    @property
    def met(self) -> bool:
        """Whether the other is known to be there, or to have been until a moment ago."""
        return self.session != NOBODY

    def greet(self, now: float) -> None:
        """Say hello and ask for an answer."""
        self._answer, self._ask = self.session, True
        self.greeted = now

    def remind(self, now: float) -> bool:
        """Say hello again where an answer is due; returns whether it was."""
        missing = not self.met or self.outbox.waiting
        if not missing or now - max(self.greeted, self.heard, self.asked or 0.0) < self.pause:
            return False
        self.pause = min(2 * self.pause, _LAST_HELLO)
        self.greet(now)
        return True

    def reconnected(self, now: float) -> None:
        """After a new connection to the broker: what was on the way may be lost."""
        self.outbox.rewind(0)
        self.pause = _FIRST_HELLO
        self.asked = now  # nobody could answer before
        self.greet(now)

    def reachable(self, now: float, patience: float) -> bool:
        """Whether to wait for the peer: it did not leave, and no answer is overdue."""
        overdue = self.asked is not None and now - self.asked > patience
        return not self.left and not overdue

    def next(self, now: float) -> Note | None:
        """The note to send next."""
        if self._answer is not None:
            return self._hello(self._answer)
        if not self.met:
            return None
        if self._ack:
            self._ack = False
            return self._note("ack", self.intake.arrived, self.intake.handled)
        return self._frame(now)

    def bye(self) -> Note | None:
        """The note that says that this peer leaves."""
        if not self.met:
            return None
        return self._note("bye", self.intake.arrived, self.intake.handled)

    def take(self, note: Note, now: float) -> bool:
        """Take in a note that was signed by the peer; returns whether it counts."""
        if note.session in self.past:
            return False
        bound = note.toward == self.own
        if note.kind == "hello":
            return self._greeted(note, now) if bound else self._approached(note)
        if not bound or note.session != self.session:
            return False
        counts = self._told(note)
        self._alive(now)
        return counts

    def done(self, session: bytes, number: int) -> None:
        """Say that a frame was handled."""
        if session == self.session:
            self.intake.handled = max(self.intake.handled, number)
            self._ack = True

    def _note(self, kind: str, sequence: int, base: int) -> Note:
        return Note(kind, self.own, self.session, sequence, base)

    def _hello(self, toward: bytes) -> Note:
        known = toward == self.session != NOBODY
        arrived, handled = (self.intake.arrived, self.intake.handled) if known else (0, 0)
        asked = self._ask or not known
        self._answer, self._ask = None, False
        return Note("hello", self.own, toward, arrived, handled, asked)

    def _frame(self, now: float) -> Note | None:
        due = self.outbox.next()
        if due is None:
            return None
        number, parcel = due
        if self.asked is None:
            self.asked = now
        self.outbox.advance(number)
        return Note(
            *("frame", self.own, self.session, number, self.outbox.base, False),
            *(parcel.digest, parcel.size, parcel.url, parcel.body),
        )

    def _approached(self, note: Note) -> bool:
        """Who does not know our session may be an echo of the past: ask it to say it again."""
        self._answer = note.session
        return True

    def _greeted(self, note: Note, now: float) -> bool:
        """Only a hello that names our session proves that its sender is there now."""
        if note.session != self.session:
            self._forget()
            self.session = note.session
        self.left = False
        self.outbox.handled(min(note.base, self.outbox.reached))
        self.outbox.rewind(note.sequence)
        self._alive(now)
        if note.reply:
            self._answer = note.session
        return True

    def _alive(self, now: float) -> None:
        """A sign of life: patience begins anew for what is still on the way."""
        self.heard = now
        self.pause = _FIRST_HELLO
        self.asked = now if self.outbox.waiting else None

    def _told(self, note: Note) -> bool:
        if note.kind == "frame":
            return self.intake.take(note)
        if note.kind == "ack":
            self.outbox.handled(min(note.base, self.outbox.reached))
            return True
        self._forget()
        self.left = True
        return True

    def _forget(self) -> None:
        """The session of the other is over; what it did not get goes to the next one."""
        if self.met:
            self.past.append(self.session)
        self.session = NOBODY
        self.intake.restart()
        self.outbox.rewind(0)
