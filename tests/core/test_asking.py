"""A Fetch of a whole population, answered without looking at whom it asks."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from coterie.core.messages import DENSE_DEGREE, Fetch, Inbox, deliver, mean, mix, outgoing, wanted
from coterie.runtimes.lockstep import DirectExchange
from tests.on_device import HostLooked, OnDevice, elsewhere, hidden, seen


def both(of: Tensor, n: int, full: bool = False) -> tuple[Inbox, Inbox, Tensor]:
    """The inboxes made of a table and of lists, and the rows; their bytes are equal."""
    size = len(of)
    keys = torch.arange(size)
    whole = torch.Generator().manual_seed(size)  # whole numbers add up exactly in any order
    rows = torch.randint(-9, 10, (size, 3), generator=whole).double()
    message = Fetch({"x": rows}, of, full=full)
    blind, looking = DirectExchange(n, size // n), DirectExchange(n, size // n)
    (table,) = blind.superstep(0, 0, [keys], [message])
    heard, edges = outgoing(message, keys), wanted(message, keys, n)
    looking.count(keys, message, heard, edges)
    assert torch.equal(blind.sent, looking.sent)
    return table, deliver(message, keys, heard, n, edges), rows


def same(one: Inbox, other: Inbox, own: Tensor) -> None:
    for keep in (None, one["x"][one.sender][:, 0] > 0):
        assert torch.equal(one.count(keep), other.count(keep))
        assert torch.equal(mix(own, one, "x", keep=keep), mix(own, other, "x", keep=keep))
    assert torch.equal(one.sum("x"), other.sum("x"))
    assert torch.equal(mean(one, "x", own), mean(other, "x", own))
    assert torch.equal(one.receiver, other.receiver)
    assert torch.equal(one.hearers, other.hearers)
    assert torch.equal(one.source[one.sender], other.source[other.sender])
    assert torch.equal(one["x"][one.sender], other["x"][other.sender])
    peers, expected = (i.table(i.source, otherwise=-1) for i in (one, other))
    wider = peers.shape[1] - expected.shape[1]
    assert torch.equal(peers, torch.nn.functional.pad(expected, (0, wider), value=-1))


@given(n=st.integers(1, 6), replicas=st.integers(1, 3), k=st.integers(1, 5), data=st.data())
def test_a_table_made_unseen_says_what_lists_say(n, replicas, k, data) -> None:
    ids = st.integers(-2, n - 1)  # nobody, oneself, the same one twice
    of = torch.tensor([[data.draw(ids) for _ in range(k)] for _ in range(n * replicas)])
    table, lists, own = both(of, n)
    same(table, lists, own)
    weight = own[table.sender, 0]
    assert torch.equal(mix(own, table, "x", weight=weight), mix(own, lists, "x", weight=weight))


def test_a_full_table_says_what_lists_say() -> None:
    n, k = 7, 4
    row = torch.arange(2 * n)[:, None]
    of = (row + 1 + torch.arange(k)) % n
    of[3, 1] = of[3, 0]  # asked twice
    same(*both(of, n, full=True))


def test_many_peers_are_summed_as_a_product_of_matrices() -> None:
    n = DENSE_DEGREE + 8
    of = (torch.arange(n)[:, None] + torch.arange(DENSE_DEGREE + 3)) % n  # the first is oneself
    of[2, 5] = -1
    table, lists, own = both(of, n)
    assert torch.allclose(table.sum("x"), lists.sum("x"), atol=1e-12)
    assert torch.allclose(mix(own, table, "x"), mix(own, lists, "x"), atol=1e-12)


def test_values_of_edges_may_be_a_table() -> None:
    table, lists, own = both(torch.tensor([[1, 2], [2, -1], [0, 1]]), 3)
    for inbox in (table, lists):
        each = inbox["x"][inbox.sender][:, 0]
        slots = inbox.table("x")[:, :, 0]
        assert torch.equal(inbox.sum("x", each), inbox.sum("x", slots))
        assert torch.equal(inbox.count(each > 0), inbox.count(slots > 0))
        assert torch.equal(mix(own, inbox, "x", weight=each), mix(own, inbox, "x", weight=slots))
        assert inbox.table("x")[1, 1].tolist() == [0, 0, 0]


WRONG = {
    "asks node 3, but ids end at 2": ([[1], [3], [0]], False),
    "1 entries of `of` are -1 or the asker": ([[1], [-1], [0]], True),
    "2 entries of `of` are -1 or the asker": ([[1, 2], [0, 1], [2, 0]], True),
}


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("problem", WRONG)
def test_a_wrong_fetch_is_told_at_once_on_a_cpu(problem: str, blocks: int) -> None:
    of, full = WRONG[problem]
    message = [
        Fetch({"x": torch.zeros(len(part), 1)}, part, full=full)
        for part in torch.tensor(of).tensor_split(blocks)
    ]
    keys = list(torch.arange(3).tensor_split(blocks))
    expected = problem if blocks == 1 or not full else "1 entries"  # each block counts its own
    with pytest.raises(ValueError, match=expected):
        DirectExchange(3).superstep(0, 0, keys, message)


@pytest.mark.parametrize("problem", WRONG)
def test_a_wrong_fetch_is_told_with_the_bytes_where_nobody_looked(problem: str) -> None:
    of, full = WRONG[problem]
    exchange = DirectExchange(3)
    message = Fetch({"x": hidden(torch.zeros(3, 1))}, hidden(torch.tensor(of)), full=full)
    with elsewhere():
        (inbox,) = exchange.superstep(0, 0, [torch.arange(3)], [message])
        assert isinstance(mix(message.rows["x"], inbox, "x"), OnDevice)
    with pytest.raises(HostLooked):
        _ = exchange.sent
    tally = exchange.tally
    tally.sent, tally.worst = seen(tally.sent), seen(tally.worst)
    with pytest.raises(ValueError, match=problem):
        _ = exchange.sent


def test_only_lists_of_a_table_with_holes_need_a_look() -> None:
    rows, of = hidden(torch.zeros(3, 1)), hidden(torch.tensor([[1], [2], [0]]))
    for full in (True, False):
        message = Fetch({"x": rows}, of, full=full)
        with elsewhere():
            (inbox,) = DirectExchange(3).superstep(0, 0, [torch.arange(3)], [message])
            assert seen(inbox.sum("x")).tolist() == [[0], [0], [0]]
            if full:
                assert inbox.hearers.tolist() == [0, 1, 2]
                assert seen(inbox.sender).tolist() == [1, 2, 0]
            else:
                with pytest.raises(HostLooked):
                    _ = inbox.sender
