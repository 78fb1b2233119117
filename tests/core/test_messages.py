from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from coterie.core.graphs import ErdosRenyi, Full, Graph, Push, Regular, Ring, union
from coterie.core.messages import (
    DENSE_DEGREE,
    Fetch,
    Inbox,
    Listen,
    Message,
    Send,
    mix,
)
from coterie.errors import InputError
from coterie.runtimes.lockstep import DirectExchange


def graph_of(*edges: tuple[int, int], n: int) -> Graph:
    return union([torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T.numpy()], n)


def rows_of(n: int, *shape: int) -> Tensor:
    return torch.randn(n, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(n))


def exchange(
    messages: Sequence[Message], keys: Sequence[Tensor], n: int, replicas: int = 1
) -> list[Inbox]:
    return DirectExchange(n, replicas).superstep(0, 0, list(keys), list(messages))


def whole(message: Message, n: int, replicas: int = 1) -> Inbox:
    return exchange([message], [torch.arange(n * replicas)], n, replicas)[0]


def adjacency(graph: Graph, size: int) -> Tensor:
    matrix = torch.zeros(size, size, dtype=torch.float64)
    matrix[graph.target, graph.source] = 1
    return matrix


def test_a_misspelt_name_of_rows_is_no_silence() -> None:
    own = rows_of(2, 3)
    inbox = whole(Send({"params": own}, graph_of((0, 1), n=2)), 2)
    with pytest.raises(ValueError, match="no rows 'parms' were sent; those that were: params"):
        mix(own, inbox, "parms")


def test_a_node_that_heard_nobody_keeps_its_model() -> None:
    own = rows_of(4, 3)
    inbox = whole(Send({"x": own}, graph_of((0, 1), (2, 1), n=4)), 4)
    mixed = mix(own, inbox, "x")
    assert torch.equal(mixed[[0, 2, 3]], own[[0, 2, 3]])
    assert torch.allclose(mixed[1], own[:3].mean(0))


def test_a_lone_node_keeps_its_model() -> None:
    own = rows_of(1, 3)
    inbox = whole(Send({"x": own}, union([Ring().edges(1, 0, 0)], 1)), 1)
    assert torch.equal(mix(own, inbox, "x"), own)
    assert torch.equal(mix(own, inbox, "x", weight=inbox.metropolis), own)


def test_edges_name_the_heard_row_and_the_row_that_heard_it() -> None:
    own = rows_of(4, 2)
    inbox = whole(Send({"x": own}, graph_of((3, 0), (1, 0), (0, 2), n=4)), 4)
    heard = list(zip(inbox.source[inbox.sender].tolist(), inbox.receiver.tolist(), strict=True))
    assert heard == [(1, 0), (3, 0), (0, 2)]
    assert torch.equal(inbox["x"][inbox.sender], own[[1, 3, 0]])


@given(st.integers(2, 12), st.floats(0, 1), st.integers(0, 10**6), st.booleans())
def test_mixing_equal_rows_changes_nothing(
    n: int, probability: float, seed: int, metropolis: bool
) -> None:
    graph = union([ErdosRenyi(probability).edges(n, seed, 0)], n)
    own = torch.tensor([2.5, -1.0, 1e6], dtype=torch.float64).expand(n, -1)
    inbox = whole(Send({"x": own}, graph), n)
    keep = torch.arange(len(inbox.sender)) % 3 > 0
    weight = inbox.metropolis if metropolis else None
    assert torch.allclose(mix(own, inbox, "x", weight=weight), own, rtol=1e-14)
    assert torch.allclose(mix(own, inbox, "x", keep, weight), own, rtol=1e-14)


@given(st.integers(2, 12), st.integers(1, 11), st.integers(0, 10**6))
def test_mixing_is_the_mean_of_own_and_heard_rows(n: int, peers: int, seed: int) -> None:
    graph = union([Push(min(peers, n - 1)).edges(n, seed, 0)], n)
    own = rows_of(n, 2, 3)
    mixed = mix(own, whole(Send({"x": own}, graph), n), "x")
    weights = adjacency(graph, n) + torch.eye(n, dtype=torch.float64)
    weights /= weights.sum(1, keepdim=True)
    assert torch.allclose(mixed, torch.einsum("ij,jkl->ikl", weights, own), atol=1e-13)


def test_metropolis_mixing_keeps_the_mean_of_all_models() -> None:
    graph = union([ErdosRenyi(0.4).edges(9, 1, 0)], 9)
    own = rows_of(9, 4)
    inbox = whole(Send({"x": own}, graph), 9)
    mixed = mix(own, inbox, "x", weight=inbox.metropolis)
    assert not torch.allclose(mixed, own)
    assert torch.allclose(mixed.mean(0), own.mean(0), atol=1e-14)


def test_edges_that_are_not_kept_do_not_count() -> None:
    own = rows_of(5, 3)
    inbox = whole(Send({"x": own}, union([Full().edges(5, 0, 0)], 5)), 5)
    keep = inbox.source[inbox.sender] % 2 == 0
    mixed = mix(own, inbox, "x", keep)
    even = own[[0, 2, 4]]
    assert torch.allclose(mixed[[0, 2, 4]], even.mean(0).expand(3, -1))
    assert torch.allclose(mixed[1], (own[1] + even.sum(0)) / 4)
    assert inbox.count(keep).tolist() == [2, 3, 2, 3, 2]
    assert inbox.count().tolist() == [4] * 5


def test_who_keeps_no_edge_keeps_its_model() -> None:
    own = rows_of(4, 3)
    inbox = whole(Send({"x": own}, union([Ring().edges(4, 0, 0)], 4)), 4)
    nobody = torch.zeros(8, dtype=torch.bool)
    assert torch.equal(mix(own, inbox, "x", nobody), own)
    assert torch.equal(mix(own, inbox, "x", nobody, inbox.metropolis), own)
    assert inbox.count(nobody).tolist() == [0] * 4


@pytest.mark.parametrize("degree", [4, DENSE_DEGREE, DENSE_DEGREE + 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_equal_a_matrix_product_at_any_degree(degree: int, weighted: bool) -> None:
    n = 40
    graph = union([Regular(degree).edges(n, 1, 0)], n)
    own = rows_of(n, 2, 3)
    inbox = whole(Send({"x": own}, graph), n)
    weight = torch.rand(len(graph.source), generator=torch.Generator().manual_seed(0)).double()
    matrix = torch.zeros(n, n, dtype=torch.float64)
    matrix[graph.target, graph.source] = weight if weighted else 1
    reference = torch.einsum("ij,jkl->ikl", matrix, own)
    assert torch.allclose(inbox.sum("x", weight if weighted else None), reference, atol=1e-12)


def test_a_sum_over_ragged_degrees_leaves_empty_slots_out() -> None:
    graph = graph_of((0, 1), (2, 1), (3, 1), (1, 0), n=5)
    own = rows_of(5, 3)
    inbox = whole(Send({"x": own}, graph), 5)
    assert torch.allclose(inbox.sum("x"), adjacency(graph, 5) @ own)
    assert inbox.count().tolist() == [1, 3, 0, 0, 0]


@pytest.mark.parametrize("blocks", [2, 3, 7])
def test_the_inbox_does_not_depend_on_how_nodes_are_split_into_blocks(blocks: int) -> None:
    own, graph = rows_of(7, 3), union([Push(3).edges(7, 2, 0)], 7)
    one = whole(Send({"x": own}, graph), 7)
    parts = torch.arange(7).tensor_split(blocks)
    inboxes = exchange([Send({"x": own[p]}, graph) for p in parts], parts, 7)
    edges = [
        (int(i.source[s]), int(part[r]))
        for i, part in zip(inboxes, parts, strict=True)
        for s, r in zip(i.sender.tolist(), i.receiver.tolist(), strict=True)
    ]
    expected = zip(one.source[one.sender].tolist(), one.receiver.tolist(), strict=True)
    assert edges == list(expected)
    mixed = [mix(own[p], i, "x") for p, i in zip(parts, inboxes, strict=True)]
    assert torch.equal(torch.cat(mixed), mix(own, one, "x"))
    weighted = [
        mix(own[p], i, "x", weight=i.metropolis) for p, i in zip(parts, inboxes, strict=True)
    ]
    assert torch.equal(torch.cat(weighted), mix(own, one, "x", weight=one.metropolis))


def test_the_inbox_does_not_depend_on_the_order_in_which_blocks_come() -> None:
    own, graph = rows_of(6, 3), union([Push(3).edges(6, 2, 0)], 6)
    one = whole(Send({"x": own}, graph), 6)
    parts = [torch.tensor(part) for part in ([1, 4], [3, 5], [0, 2])]
    inboxes = exchange([Send({"x": own[p]}, graph) for p in parts], parts, 6)
    for part, inbox in zip(parts, inboxes, strict=True):
        assert torch.equal(inbox.source, inbox.source.sort().values)
        assert torch.equal(mix(own[part], inbox, "x"), mix(own, one, "x")[part])


def test_a_node_may_send_several_rows_or_none() -> None:
    rows, sender = rows_of(5, 2), torch.tensor([2, 0, 2, 0, 0])
    graph = union([Full().edges(3, 0, 0)], 3)
    inbox = whole(Send({"x": rows}, graph, sender), 3)
    assert inbox.source.tolist() == [0, 0, 0, 2, 2]
    assert torch.equal(inbox["x"], rows[[1, 3, 4, 0, 2]])  # by node, then in the order given
    assert inbox.count().tolist() == [2, 5, 3]
    expected = torch.stack([rows[[0, 2]].sum(0), rows.sum(0), rows[[1, 3, 4]].sum(0)])
    assert torch.allclose(inbox.sum("x"), expected)


def test_several_rows_of_a_node_carry_the_weight_of_their_edge() -> None:
    rows, sender = rows_of(4, 2), torch.tensor([0, 0, 1, 2])
    graph = graph_of((0, 1), (1, 0), (1, 2), (2, 1), n=3)
    inbox = whole(Send({"x": rows}, graph, sender), 3)
    assert inbox.metropolis.tolist() == pytest.approx([1 / 3] * 5)
    assert inbox.receiver.tolist() == [0, 1, 1, 1, 2]


def test_several_rows_a_node_do_not_depend_on_the_split() -> None:
    rows, sender = rows_of(6, 2), torch.tensor([2, 0, 1, 2, 0, 0])
    graph = union([Ring().edges(3, 0, 0)], 3)
    one = whole(Send({"x": rows}, graph, sender), 3)
    parts = list(torch.arange(3).split(1))
    messages = [
        Send({"x": rows[sender == k]}, graph, torch.zeros(int((sender == k).sum()), dtype=int))
        for k in range(3)
    ]
    each = exchange(messages, parts, 3)
    assert torch.equal(torch.cat([inbox.sum("x") for inbox in each]), one.sum("x"))
    assert torch.cat([inbox.count() for inbox in each]).tolist() == one.count().tolist()


def test_a_fetch_brings_the_rows_of_the_peers_asked_in_the_order_of_their_ids() -> None:
    own = rows_of(4, 2)
    of = torch.tensor([[3, 1], [-1, -1], [-1, 0], [0, -1]])
    inbox = whole(Fetch({"x": own}, of), 4)
    heard = list(zip(inbox.source[inbox.sender].tolist(), inbox.receiver.tolist(), strict=True))
    assert heard == [(1, 0), (3, 0), (0, 2), (0, 3)]
    assert torch.allclose(inbox.sum("x")[0], own[1] + own[3])
    assert torch.equal(mix(own, inbox, "x")[1], own[1])


def test_a_peer_asked_twice_is_heard_twice() -> None:
    own = rows_of(3, 2)
    inbox = whole(Fetch({"x": own}, torch.tensor([[2, 2, 1], [-1, -1, -1], [0, 0, 0]])), 3)
    assert inbox.count().tolist() == [3, 0, 3]
    assert torch.allclose(inbox.sum("x")[0], 2 * own[2] + own[1])
    assert torch.allclose(inbox.sum("x")[2], 3 * own[0])


def test_a_peer_asked_twice_among_many_is_heard_twice() -> None:
    n = DENSE_DEGREE + 4
    own = rows_of(n, 2)
    of = torch.full((n, DENSE_DEGREE + 1), -1)
    of[0] = torch.arange(1, DENSE_DEGREE + 2)
    of[0, 1] = 1
    assert torch.allclose(whole(Fetch({"x": own}, of), n).sum("x")[0], own[of[0]].sum(0))


def test_a_fetch_of_nobody_is_an_empty_inbox() -> None:
    own = rows_of(3, 2)
    for of in (torch.full((3, 2), -1), torch.empty(3, 0, dtype=torch.int64)):
        inbox = whole(Fetch({"x": own}, of), 3)
        assert inbox.count().tolist() == [0, 0, 0]
        assert torch.equal(mix(own, inbox, "x"), own)


def test_a_fetch_has_no_metropolis_weights() -> None:
    inbox = whole(Fetch({"x": rows_of(2, 1)}, torch.tensor([[1], [0]])), 2)
    with pytest.raises(ValueError, match="a Fetch has none"):
        _ = inbox.metropolis


def test_a_fetch_stays_within_its_replica() -> None:
    own = rows_of(6, 2)
    of = torch.tensor([[2], [0], [-1], [1], [2], [0]])
    inbox = whole(Fetch({"x": own}, of), 3, replicas=2)
    assert torch.equal(inbox.sum("x")[[0, 1, 3, 4, 5]], own[[2, 0, 4, 5, 3]])
    assert inbox.source[inbox.sender].tolist() == [2, 0, 1, 2, 0]


def test_a_fetch_of_an_id_that_does_not_exist_never_reaches_another_replica() -> None:
    of = torch.tensor([[4], [-1], [-1], [-1], [-1], [-1]])
    try:
        inbox = whole(Fetch({"x": rows_of(6, 2)}, of), 3, replicas=2)
    except (ValueError, IndexError):
        return
    assert inbox.count().tolist() == [0] * 6


def test_own_rows_are_never_fetched() -> None:
    of = torch.tensor([[0], [0]])
    assert whole(Fetch({"x": rows_of(2, 2)}, of), 2).count().tolist() == [0, 1]


def test_an_inbox_holds_only_rows_that_its_block_heard() -> None:
    own, graph = rows_of(3, 2), graph_of((0, 1), n=3)
    parts = list(torch.arange(3).split(1))
    inboxes = exchange([Send({"x": own[p]}, graph) for p in parts], parts, 3)
    assert [inbox.source.tolist() for inbox in inboxes] == [[], [0], []]


def test_blocks_that_send_different_names_in_one_superstep_are_refused() -> None:
    own, graph = rows_of(3, 2), graph_of((0, 2), (1, 2), n=3)
    messages = [Send({"x": own[:1]}, graph), Send({"y": own[1:2]}, graph), Listen(graph)]
    with pytest.raises(InputError, match="different rows are sent in one step: x, y"):
        exchange(messages, list(torch.arange(3).split(1)), 3)


def test_a_listener_hears_without_sending() -> None:
    own, graph = rows_of(3, 2), graph_of((0, 1), (0, 2), (1, 0), n=3)
    keys = [torch.tensor([0]), torch.tensor([1, 2])]
    speaker, listeners = exchange([Send({"x": own[:1]}, graph), Listen(graph)], keys, 3)
    assert torch.equal(listeners["x"][listeners.sender], own[[0, 0]])
    assert speaker.count().tolist() == [0]
    assert torch.equal(mix(own[:1], speaker, "x"), own[:1])


def test_where_all_listen_nobody_hears_anything() -> None:
    own = rows_of(3, 2)
    inbox = whole(Listen(union([Full().edges(3, 0, 0)], 3)), 3)
    assert "x" not in inbox
    assert inbox.count().tolist() == [0, 0, 0]
    assert torch.equal(mix(own, inbox, "x"), own)


def test_an_empty_block_has_an_empty_inbox() -> None:
    own, graph = rows_of(3, 2), union([Full().edges(3, 0, 0)], 3)
    keys = [torch.arange(0), torch.arange(3)]
    for empty in (
        Send({"x": own[:0]}, graph),
        Fetch({"x": own[:0]}, torch.empty(0, 2, dtype=torch.int64)),
        Listen(graph),
    ):
        nobody, all_of_them = exchange([empty, Send({"x": own}, graph)], keys, 3)
        assert nobody.sum("x").shape == (0, 2)
        assert nobody.count().shape == (0,)
        assert mix(own[:0], nobody, "x").shape == (0, 2)
        assert all_of_them.count().tolist() == [2, 2, 2]


def test_a_population_of_empty_blocks_hears_nothing() -> None:
    own, graph = rows_of(0, 2), union([], 3)
    inbox = exchange([Send({"x": own}, graph)], [torch.arange(0)], 3)[0]
    assert inbox["x"].shape == (0, 2)
    assert mix(own, inbox, "x").shape == (0, 2)


def test_a_round_in_which_nobody_arrived_leaves_every_model_alone() -> None:
    own, graph = rows_of(3, 2), graph_of(n=3)
    inbox = whole(Send({"x": own}, graph), 3)
    assert len(inbox.sender) == 0
    assert torch.equal(inbox.sum("x"), torch.zeros(3, 2, dtype=torch.float64))
    assert torch.equal(mix(own, inbox, "x", weight=inbox.metropolis), own)


@pytest.mark.parametrize("degree", [4, DENSE_DEGREE + 2])
def test_replicas_never_mix(degree: int) -> None:
    n = 40
    own = rows_of(2 * n, 3)
    graph = union([Regular(degree).edges(n, seed, 0) for seed in (1, 2)], n)
    both = mix(own, whole(Send({"x": own}, graph), n, replicas=2), "x")
    for replica, seed in enumerate((1, 2)):
        mine = own[replica * n : (replica + 1) * n]
        alone = union([Regular(degree).edges(n, seed, 0)], n)
        mixed = mix(mine, whole(Send({"x": mine}, alone), n), "x")
        assert torch.allclose(both[replica * n : (replica + 1) * n], mixed, atol=1e-14)


def test_a_diverged_model_stays_with_those_who_heard_it() -> None:
    own = rows_of(4, 2)
    own[0] = torch.nan
    graph = graph_of((1, 2), (1, 3), (2, 3), n=4)
    mixed = mix(own, whole(Send({"x": own}, graph), 4), "x")
    assert mixed[1:].isfinite().all()


def test_a_diverged_replica_stays_alone_also_among_many_neighbors() -> None:
    n = DENSE_DEGREE + 4
    own = rows_of(2 * n, 2)
    own[0] = torch.inf
    graph = union([Full().edges(n, 0, 0)] * 2, n)
    mixed = mix(own, whole(Send({"x": own}, graph), n, replicas=2), "x")
    assert mixed[n:].isfinite().all()


def test_a_dropped_edge_brings_nothing_even_if_its_row_diverged() -> None:
    own = rows_of(3, 2)
    own[1] = torch.inf
    inbox = whole(Send({"x": own}, graph_of((1, 0), (2, 0), n=3)), 3)
    mixed = mix(own, inbox, "x", keep=inbox.source[inbox.sender] != 1)
    assert torch.allclose(mixed[0], (own[0] + own[2]) / 2)


def test_integer_rows_can_be_heard_and_summed() -> None:
    choice = torch.tensor([2, 0, 1])
    inbox = whole(Send({"choice": choice}, union([Full().edges(3, 0, 0)], 3)), 3)
    assert inbox.sum("choice").tolist() == [1, 3, 2]
    assert inbox["choice"][inbox.sender].tolist() == [0, 1, 2, 1, 2, 0]


def test_the_peers_that_a_fetch_asks_are_brought_to_the_host_once() -> None:
    fetch = Fetch({"x": torch.zeros(3, 1)}, of=torch.tensor([[1], [2], [-1]]))
    assert fetch.asked is fetch.asked
    assert torch.equal(fetch.asked, fetch.of)
