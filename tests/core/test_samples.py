from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from coterie.core.samples import Pool, Samples, _turn_at_once, _turn_by_kind

from ..world import CPU, make_pool, segments

SEED = torch.tensor([7, 7, 7])
NODE = torch.tensor([0, 1, 2])


def samples(*counts: int) -> Samples:
    return segments(make_pool(size=sum(counts) + 1), counts)


def test_a_pass_visits_every_sample_once_and_the_next_pass_again() -> None:
    data = samples(4, 6, 3)
    run = data.shuffled(SEED, NODE, 0, "train", 18)
    for row, (start, count) in enumerate([(0, 4), (4, 6), (10, 3)]):
        mine = set(range(start, start + count))
        for first in range(0, 18 - count + 1, count):
            assert set(run[row, first : first + count].tolist()) == mine


def test_passes_are_shuffled_afresh() -> None:
    run = samples(10, 10, 10).shuffled(SEED, NODE, 0, "train", 20)
    assert not torch.equal(run[:, :10], run[:, 10:])


def test_the_order_does_not_depend_on_the_other_rows() -> None:
    data = samples(4, 9, 2)
    together = data.shuffled(SEED, NODE, 3, "train", 25)
    for row in range(3):
        pick = torch.tensor([row])
        alone = data[pick].shuffled(SEED[pick], NODE[pick], 3, "train", 25)
        assert torch.equal(alone[0], together[row])


def test_a_longer_run_continues_the_shorter_one() -> None:
    data = samples(4, 9, 2)
    long, short = (data.shuffled(SEED, NODE, 0, "train", total) for total in (30, 7))
    assert torch.equal(long[:, :7], short)


def test_groups_own_what_their_rows_own_and_shared_segments_count_once() -> None:
    data = samples(4, 6, 3, 2)[torch.tensor([0, 0, 2, 3, 1])]
    groups = data.together(torch.tensor([1, 1, 1, 0, 0]), 2)
    ids, real = groups.all()
    first, second = (set(row[mine].tolist()) for row, mine in zip(ids, real, strict=True))
    assert groups.count.tolist() == [8, 7]
    assert first == {*range(4, 10), 13, 14} and second == {*range(4), 10, 11, 12}
    nobody = data[torch.arange(0)].together(torch.arange(0), 1)
    assert nobody.count.tolist() == [0]


def test_rows_of_one_node_see_the_same_samples() -> None:
    data = samples(4, 9, 2)
    rows = torch.tensor([1, 1, 0])
    run = data[rows].shuffled(SEED, NODE[rows], 0, "train", 12)
    assert torch.equal(run[0], run[1])


def test_round_stream_and_seed_change_the_order() -> None:
    data = samples(20, 20, 20)
    first = data.shuffled(SEED, NODE, 0, "train", 20)
    assert not torch.equal(first, data.shuffled(SEED, NODE, 1, "train", 20))
    assert not torch.equal(first, data.shuffled(SEED, NODE, 0, "loss", 20))
    assert not torch.equal(first, data.shuffled(SEED + 1, NODE, 0, "train", 20))


def test_rows_without_samples_do_not_disturb_the_others() -> None:
    data = samples(4, 0, 3)
    run = data.shuffled(SEED, NODE, 0, "train", 8)
    assert run.shape == (3, 8)
    assert set(run[0, :4].tolist()) == {0, 1, 2, 3}
    assert set(run[2, :3].tolist()) == {4, 5, 6}
    ids, real = data.all()
    assert real.sum(1).tolist() == [4, 0, 3]
    assert ids[2, :3].tolist() == [4, 5, 6]


@pytest.mark.parametrize("counts", [(4, 3, 0), (0, 0, 0)])
def test_the_last_row_may_be_without_samples(counts: tuple[int, ...]) -> None:
    pool = make_pool(size=max(sum(counts), 1))
    count = torch.tensor(counts)
    data = Samples(pool, torch.arange(sum(counts)), torch.cumsum(count, 0) - count, count)
    assert data.shuffled(SEED, NODE, 0, "train", 5).shape == (3, 5)
    assert data.all()[1].sum(1).tolist() == list(counts)


def test_no_rows_or_no_samples_wanted_give_nothing() -> None:
    data = samples(4, 9, 2)
    none = torch.arange(0)
    assert data[none].shuffled(SEED[none], NODE[none], 0, "train", 5).shape == (0, 5)
    assert data.shuffled(SEED, NODE, 0, "train", 0).shape == (3, 0)
    assert data[none].all()[0].shape == (0, 0)


def test_some_rows_know_how_much_they_own_without_asking_the_device() -> None:
    data = samples(2, 3, 1)
    rows = torch.tensor([2, 0, 2])
    some = data.take(rows, rows)
    assert "owned" in vars(some)
    assert torch.equal(some.owned, data[rows].owned)
    assert torch.equal(some.all()[0], data[rows].all()[0])


def test_all_lists_every_sample_and_says_which_entries_are_real() -> None:
    ids, real = samples(2, 3, 1).all()
    assert [ids[row][real[row]].tolist() for row in range(3)] == [[0, 1], [2, 3, 4], [5]]


def test_rows_may_share_a_segment() -> None:
    data = samples(4, 9, 2)[torch.tensor([1, 1])]
    assert torch.equal(data.all()[0][0], data.all()[0][1])


def test_images_are_read_normalised_by_channel() -> None:
    images = torch.randint(256, (6, 3, 4, 4), dtype=torch.uint8)
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.5)
    pool = Pool(images, torch.zeros(6, dtype=torch.int64), mean, std)
    ids = torch.tensor([[0, 5], [3, 3]])
    centre, spread = (torch.tensor(v, dtype=torch.float64)[:, None, None] for v in (mean, std))
    expected = (images[ids].double() / 255 - centre) / spread
    assert torch.allclose(pool.read(ids, torch.float64), expected, atol=1e-12)
    assert pool.read(ids, torch.float32).dtype == torch.float32
    assert pool.inputs.dtype == torch.uint8


@pytest.mark.parametrize("turned", [_turn_at_once, _turn_by_kind])
def test_turned_samples_show_the_pixels_of_the_stored_image(
    turned: Callable[[Tensor, Tensor, Tensor], Tensor],
) -> None:
    images = torch.randint(256, (5, 2, 3, 4), dtype=torch.uint8)
    turns = torch.stack([torch.arange(12), torch.arange(12).flip(0), torch.randperm(12)])
    turn = torch.tensor([[0, 1, 2], [1, 1, 0]])
    got = turned(images[torch.tensor([[4, 4, 4], [0, 1, 1]])].flatten(-2), turn, turns)
    assert torch.equal(got[0, 0], images[4].flatten(-2))
    assert torch.equal(got[0, 1], images[4].flip(-1, -2).flatten(-2))
    assert torch.equal(got[0, 2], images[4].flatten(-2)[:, turns[2]])
    assert torch.equal(got[1, 2], images[1].flatten(-2))


def test_samples_may_share_a_stored_image() -> None:
    images = torch.arange(24, dtype=torch.uint8).view(2, 1, 3, 4)
    turns = torch.stack([torch.arange(12), torch.arange(12).flip(0)])
    stored, turn = torch.tensor([0, 1, 0]), torch.tensor([0, 0, 1])
    pool = Pool(images, torch.tensor([5, 6, 7]), (0.0,), (1.0,), stored, turn, turns)
    assert torch.equal(pool.show(torch.tensor([2])), images[:1].flip(-1, -2))
    assert torch.equal(pool.show(torch.tensor([1, 0])), images[[1, 0]])
    read = pool.to(CPU, torch.float64).read(torch.tensor([2]), torch.float64)
    assert torch.allclose(read * 255, images[:1].flip(-1, -2).double())
    unturned = replace(pool, turn=None, turns=None)
    assert torch.equal(unturned.show(torch.tensor([[2], [1]])), images[[0, 1]][:, None])


def test_tables_are_read_as_they_are() -> None:
    pool = make_pool(size=5)
    ids = torch.tensor([4, 0])
    assert torch.equal(pool.read(ids, torch.float32), pool.inputs[ids])


def test_a_pool_moves_its_floats_to_the_precision_of_the_engine_and_nothing_else() -> None:
    table = make_pool(classes=0).to(CPU, torch.float64)
    assert (table.inputs.dtype, table.targets.dtype) == (torch.float64, torch.float64)
    images = Pool(torch.zeros(2, 1, 2, 2, dtype=torch.uint8), torch.zeros(2).long(), (0.0,), (1.0,))
    moved = images.to(CPU, torch.float64)
    assert (moved.inputs.dtype, moved.targets.dtype) == (torch.uint8, torch.int64)
