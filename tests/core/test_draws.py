import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coterie.core.draws import (
    WORD,
    below,
    draw,
    draw_on_host,
    philox,
    pick_lowest,
    shuffle,
    uniform,
)

NODES = torch.arange(6)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [  # the known answers of Random123
        ((0,) * 4, (0,) * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((WORD - 1,) * 4, (WORD - 1,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_gives_the_published_answers(counter: tuple, key: tuple, words: str) -> None:
    given = [torch.tensor([number]) for number in (*counter, *key)]
    assert " ".join(f"{int(word):08x}" for word in philox(*given)) == words


def test_draws_follow_the_node_and_not_the_row() -> None:
    order = torch.tensor([4, 1, 1, 5])
    assert torch.equal(draw(7, "p", 3, NODES, 9)[order], draw(7, "p", 3, order, 9))


def test_draws_follow_the_seed_of_each_row() -> None:
    seeds = torch.tensor([7, 8, 7])
    both = draw(seeds, "p", 3, torch.tensor([2, 2, 2]), 5)
    assert torch.equal(both[0], both[2])
    assert torch.equal(both[1], draw(8, "p", 3, 2, 5))


def test_a_longer_draw_starts_with_the_shorter_one() -> None:
    assert torch.equal(draw(7, "p", 3, NODES, 9)[:, :3], draw(7, "p", 3, NODES, 3))


def test_every_part_of_the_key_changes_all_words() -> None:
    here = draw(7, "p", 3, 2, 40)
    for other in (
        draw(8, "p", 3, 2, 40),
        draw(7 + WORD, "p", 3, 2, 40),
        draw(7, "q", 3, 2, 40),
        draw(7, "p", 4, 2, 40),
        draw(7, "p", 3, 3, 40),
    ):
        assert not (here == other).any()
    assert len(here.unique()) == 40


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**32), st.integers(0, 9))
def test_the_host_draws_the_same_words(seed: int, t: int, count: int) -> None:
    host = torch.from_numpy(draw_on_host(seed, "p", t, 6, count))
    assert torch.equal(draw(seed, "p", t, NODES, count), host)


def test_a_draw_for_nobody_or_of_nothing_is_empty() -> None:
    assert draw(1, "p", 0, NODES[:0], 5).shape == (0, 5)
    assert draw(1, "p", 0, NODES, 0).shape == (6, 0)
    assert draw(1, "p", 0, 3, 2).shape == (2,)


def test_the_server_has_draws_of_its_own() -> None:
    words = draw(1, "p", 0, torch.tensor([-1, 0, 1]), 8)
    assert words.min() >= 0
    assert words.max() < WORD
    assert len(words.unique()) == 24


def test_words_are_uniform_over_nodes_and_places() -> None:
    values = uniform(draw(3, "p", 0, torch.arange(400), 100))
    assert (values > 0).all()
    assert (values < 1).all()
    assert abs(values.mean() - 0.5) < 0.005
    assert (values.mean(0) - 0.5).abs().max() < 0.08
    assert (values.mean(1) - 0.5).abs().max() < 0.15
    bins = torch.bincount((values * 16).long().flatten(), minlength=16)
    assert ((bins - 2500) ** 2 / 2500).sum() < 45  # chi-squared, 15 degrees: p = 1e-4


def test_uniform_never_reaches_its_ends() -> None:
    low, high = uniform(torch.tensor([0, WORD - 1])).tolist()
    assert 0 < low < high < 1


@given(st.integers(0, WORD - 1), st.integers(1, 2**31))
def test_below_stays_within_its_bound(word: int, bound: int) -> None:
    assert 0 <= below(torch.tensor(word), bound) < bound


def test_below_reaches_every_value_about_as_often() -> None:
    counts = torch.bincount(below(draw(3, "p", 0, 0, 7000), 7), minlength=7)
    assert (counts - 1000).abs().max() < 150


def test_below_takes_a_bound_for_every_row() -> None:
    values = below(draw(3, "p", 0, NODES, 50), NODES[:, None] + 1)
    assert torch.equal(values.max(1).values, NODES)


def test_a_shuffle_is_a_permutation() -> None:
    orders = shuffle(draw(3, "p", 0, NODES, 20))
    assert torch.equal(orders.sort(1).values, torch.arange(20).expand(6, -1))
    assert len(orders.unique(dim=0)) == 6


def test_a_shuffle_of_equal_words_keeps_the_order() -> None:
    assert torch.equal(shuffle(torch.tensor([5, 1, 5, 1])), torch.tensor([1, 3, 0, 2]))


def test_the_lowest_value_is_picked() -> None:
    values = torch.tensor([[3.0, 1.0, 2.0], [0.0, 1.0, 2.0]])
    assert pick_lowest(values, draw(1, "p", 0, NODES[:2], 3)).tolist() == [1, 0]


def test_ties_are_broken_at_random_by_the_key_of_the_row() -> None:
    many = torch.arange(300)
    values = torch.tensor([1.0, 2.0, 1.0]).expand(300, -1)
    picks = pick_lowest(values, draw(1, "ties", 0, many, 3))
    counts = torch.bincount(picks, minlength=3).tolist()
    assert counts[1] == 0
    assert min(counts[0], counts[2]) > 100
    backwards = pick_lowest(values, draw(1, "ties", 0, many.flip(0), 3))
    assert torch.equal(picks.flip(0), backwards)


def test_nan_is_never_picked_before_a_number() -> None:
    values = torch.tensor([[torch.nan, 5.0], [5.0, torch.nan]])
    assert pick_lowest(values, draw(1, "p", 0, NODES[:2], 2)).tolist() == [1, 0]


def test_a_row_of_nan_picks_any_place() -> None:
    picks = pick_lowest(torch.full((200, 2), torch.nan), draw(1, "p", 0, torch.arange(200), 2))
    assert 60 < picks.sum() < 140
