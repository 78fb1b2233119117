"""What a program may yield and return, and how it is told otherwise."""

from collections.abc import Callable, Generator
from typing import Any

import pytest
import torch

from coterie.core import Fetch, Listen, Program, Ring, Send, State
from coterie.core.turns import Returned, turn
from coterie.errors import InputError

from ..world import World

NODES = World(n=4).nodes()
RING = NODES.graph(Ring(), 0)
ROWS = torch.zeros(4, 2)
WHO = torch.tensor([0, 0, 3])  # the block rows that send three rows


def program(said: Any, returned: Any = None) -> Generator[Any, Any, Any]:
    yield said
    return returned


def told(said: Any) -> str:
    """What a program is told that yields this to a block of four nodes; empty: nothing."""
    try:
        assert turn(program(said), None, 4) is said
    except TypeError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "said",
    [
        Send({"params": ROWS}, RING),
        Send({"params": ROWS[:3], "choice": WHO}, RING, sender=WHO),
        Send({}, RING),
        Fetch({"params": ROWS}, torch.full((4, 1), -1)),
        Listen(RING),
    ],
    ids=lambda said: type(said).__name__,
)
def test_messages_with_a_row_for_every_sender_are_sent(said: Any) -> None:
    assert told(said) == ""


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (None, "yields Send, Fetch or Listen, and here nothing"),
        (ROWS, "and here a Tensor"),
        (Send(ROWS, RING), "a dict of names and tensors, and here a Tensor"),  # type: ignore[arg-type]
        (Send({"loss": 3}, RING), "'loss' of what is sent is an int"),  # type: ignore[dict-item]
        (Send({"loss": ROWS.sum()}, RING), "'loss' of what is sent has no rows"),
        (Send({"params": ROWS[:1]}, RING), "has 1 row, and the block has 4 nodes"),
        (Send({"params": ROWS}, RING, sender=WHO), "has 4 rows, and `sender` names 3"),
        (Fetch({"params": ROWS[:3]}, WHO[:, None]), "has 3 rows, and the block has 4 nodes"),
    ],
)
def test_what_cannot_be_sent_is_told_at_the_line_that_yields_it(said: Any, words: str) -> None:
    assert words in told(said)
    with pytest.raises(TypeError) as caught:
        turn(program(said), None, 4)
    names = [entry.name for entry in caught.traceback]
    assert names[-1] == "program"  # so that a user's own file and line are in the traceback


@pytest.mark.parametrize("sender", [[0, 0, 3], torch.tensor([0, 4, 1]), WHO.float()])
def test_a_sender_that_names_no_rows_of_the_block_is_told(sender: Any) -> None:
    assert "`sender` is a tensor of rows of the block, 0 to 3" in told(
        Send({"params": ROWS[:3]}, RING, sender=sender)
    )


def test_a_mistake_that_a_program_catches_is_told_all_the_same() -> None:
    def stubborn() -> Program:
        try:
            yield None  # type: ignore[misc]
        except TypeError:
            yield Listen(RING)

    with pytest.raises(InputError, match=r"and here nothing \(test_turns.py, line \d+\)"):
        turn(stubborn(), None, 4)


@pytest.mark.parametrize("wrong", [None, ROWS, (ROWS, ROWS), {"params": ROWS}, State])
def test_a_program_that_returns_no_state_is_told_so_by_its_name(wrong: Any) -> None:
    playing = program(Listen(RING), wrong)
    turn(playing, None, 4)
    with pytest.raises(InputError, match=r"returns the next .* here \(test_turns.py, line 2\d"):
        turn(playing, object(), 4)  # type: ignore[arg-type]


def test_a_program_that_returns_its_state_has_ended() -> None:
    state = State(ROWS)
    playing: Program = program(Listen(RING), state)
    turn(playing, None, 4)
    assert turn(playing, object(), 4) == Returned(state)  # type: ignore[arg-type]


def test_a_mistake_of_the_program_itself_passes() -> None:
    def failing() -> Program:
        raise ZeroDivisionError
        yield

    make: Callable[[], Program] = failing
    with pytest.raises(ZeroDivisionError):
        turn(make(), None, 4)


@pytest.mark.parametrize(
    ("params", "shape"), [(ROWS.mean(0), "[2]"), (ROWS[:3], "[3, 2]"), (ROWS.sum(), "[]")]
)
def test_a_state_without_a_row_for_every_node_is_told_where_it_is_made(params, shape) -> None:
    playing = program(Listen(RING), State(params))
    turn(playing, None, 4)
    with pytest.raises(InputError) as told:
        turn(playing, object(), 4)  # type: ignore[arg-type]
    words = f"'params' of the state has the shape {shape}, and the block 4 nodes"
    assert words in str(told.value) and "(test_turns.py, line" in str(told.value)
