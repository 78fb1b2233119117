from pathlib import Path

import pytest
import torch

from coterie.core import State
from coterie.runtimes.shelf import Moment, Shelf, first_round


def moment(t: int) -> Moment:
    return Moment(t, State(torch.full((1, 3), float(t))), sent=10 * t, note={"records": t})


BLANK = State(torch.zeros(1, 3))


def test_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "deep", kept=3)
    assert shelf.rounds() == ()
    for t in (2, 4, 6, 8, 9):
        shelf.save(moment(t))
    assert shelf.rounds() == (6, 8, 9)


def test_the_newest_one_not_after_a_round_is_found(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, kept=3)
    for t in (4, 8):
        shelf.save(moment(t))
    for t, expected in ((4, 4), (7, 4), (8, 8), (99, 8)):
        found = shelf.load(t, BLANK)
        assert found is not None
        assert (found.round, found.sent, found.note) == (
            expected,
            10 * expected,
            {"records": expected},
        )
        assert torch.equal(found.state.params, moment(expected).state.params)
    assert shelf.load(3, BLANK) is None


def test_a_broken_checkpoint_is_passed_over(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, kept=3)
    for t in (4, 8):
        shelf.save(moment(t))
    (tmp_path / "round-0000008.safetensors").write_bytes(b"broken")
    (tmp_path / "round-what.safetensors").write_bytes(b"")
    found = shelf.load(8, BLANK)
    assert found is not None and found.round == 4
    assert shelf.load(8, State(torch.zeros(1, 5))) is None  # of another model


def test_without_a_folder_nothing_is_kept() -> None:
    shelf = Shelf(None, kept=3)
    shelf.save(moment(1))
    assert shelf.rounds() == ()
    assert shelf.load(1, BLANK) is None


@pytest.mark.parametrize(
    "mine, theirs, expected",
    [
        ((), [], 0),
        ((), [(), ()], 0),
        ((10,), [(10,), (10,)], 10),
        ((10, 12), [(10, 11), (10, 11, 12)], 10),  # all of us can resume there exactly
        ((), [(10,), (10,)], 10),  # I lost my disk
        ((10,), [(), (10,)], 10),  # another one did
        ((8,), [(8,), (3,)], 8),  # most of us
        ((8,), [(9,), (3,)], 8),  # no two: the middle
    ],
)
def test_peers_that_all_start_resume_where_they_can(
    mine: tuple[int, ...], theirs: list[tuple[int, ...]], expected: int
) -> None:
    assert first_round(mine, theirs, []) == expected


@pytest.mark.parametrize(
    "mine, theirs, running, expected",
    [
        ((10,), [], [50], 50),
        ((), [], [50, 51, 51], 51),
        ((10,), [(10,)], [50, 50], 50),  # another one starts too
        ((50,), [], [50], 50),  # they have not moved on
        ((50,), [], [20], 50),
        ((), [()], [10**6], 0),  # one that claims to be at the end
        ((), [], [3, 10**6], 3),
    ],
)
def test_a_peer_that_starts_alone_begins_where_most_of_the_others_are(
    mine: tuple[int, ...], theirs: list[tuple[int, ...]], running: list[int], expected: int
) -> None:
    assert first_round(mine, theirs, running) == expected
