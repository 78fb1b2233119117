from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coterie.core.graphs import (
    ErdosRenyi,
    Full,
    GraphSpec,
    Pull,
    Push,
    Regular,
    Ring,
    SmallWorld,
    Star,
    Torus,
    connected,
    graphs,
    regular,
    union,
)
from coterie.data.edges import EdgeFile
from coterie.errors import InputError

N = 12
DIRECTED = {"push", "pull"}
FIXED_DEGREE = {"ring": 2, "torus": 4, "full": N - 1, "regular": 4, "fixed-regular": 4}
NEW_EACH_ROUND = {"regular", "push", "pull"}


@pytest.fixture(params=sorted(graphs.entries))
def named(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, GraphSpec]:
    if request.param != "file":
        return request.param, graphs.build(request.param)
    path = tmp_path / "edges.txt"
    path.write_text("# a path\n0 1\n1 2  # and back\n\n2 1\n3 3\n" + "2 3\n3 4\n4 5\n5 6\n6 7\n")
    return "file", graphs.build({"name": "file", "path": str(path)})


def test_a_graph_has_distinct_edges_within_range_and_no_self_loops(
    named: tuple[str, GraphSpec],
) -> None:
    for t in range(5):
        edges = named[1].edges(N, 3, t)
        assert edges.dtype == np.int64
        assert edges.shape[0] == 2
        assert (edges >= 0).all()
        assert (edges < N).all()
        assert (edges[0] != edges[1]).all()
        assert len(set(map(tuple, edges.T.tolist()))) == edges.shape[1]


def test_a_graph_is_undirected_unless_nodes_push_or_pull(named: tuple[str, GraphSpec]) -> None:
    name, spec = named
    pairs = set(map(tuple, spec.edges(N, 3, 1).T.tolist()))
    assert (pairs == {(b, a) for a, b in pairs}) == (name not in DIRECTED)


def test_degrees_are_as_declared(named: tuple[str, GraphSpec]) -> None:
    name, spec = named
    if name in FIXED_DEGREE:
        degrees = np.bincount(spec.edges(N, 3, 1)[0], minlength=N)
        assert (degrees == FIXED_DEGREE[name]).all()


def test_a_graph_changes_from_round_to_round_only_where_it_says_so(
    named: tuple[str, GraphSpec],
) -> None:
    name, spec = named
    first, second = spec.edges(N, 3, 1), spec.edges(N, 3, 2)
    assert spec.changes() == (name in NEW_EACH_ROUND)
    assert np.array_equal(first, second) != spec.changes()


def test_a_graph_is_a_function_of_seed_and_round(named: tuple[str, GraphSpec]) -> None:
    spec = named[1]
    assert np.array_equal(spec.edges(N, 3, 1), spec.edges(N, 3, 1))


RANDOM = ["regular", "fixed-regular", "push", "pull", "erdos-renyi", "small-world"]


@pytest.mark.parametrize("name", RANDOM)
def test_another_seed_gives_another_random_graph(name: str) -> None:
    spec = graphs.build(name)
    assert not np.array_equal(spec.edges(N, 3, 0), spec.edges(N, 4, 0))


@pytest.mark.parametrize("spec", [Ring(), Torus(), Star(), Full(), regular(3, fixed=True)])
@pytest.mark.parametrize("n", [4, 12, 16])
def test_a_fixed_graph_is_connected(spec: GraphSpec, n: int) -> None:
    for seed in range(5):
        assert connected(spec.edges(n, seed, 0), n)


@given(st.integers(2, 20), st.integers(0, 19), st.integers(0, 2**40), st.integers(0, 500))
def test_a_regular_graph_exists_for_every_possible_degree(
    n: int, degree: int, seed: int, t: int
) -> None:
    degree %= n
    if n * degree % 2:
        degree -= 1
    edges = regular(degree).edges(n, seed, t)
    assert (np.bincount(edges[0], minlength=n) == degree).all()
    assert (np.bincount(edges[1], minlength=n) == degree).all()


def test_regular_graphs_meet_every_pair_about_equally_often() -> None:
    met = np.zeros((8, 8))
    for t in range(400):
        source, target = regular(3).edges(8, 0, t)
        met[source, target] += 1
    off = met[~np.eye(8, dtype=bool)]
    assert abs(off - 400 * 3 / 7).max() < 50


def test_every_node_pushes_to_distinct_peers() -> None:
    edges = Push(3).edges(N, 5, 0)
    assert (np.bincount(edges[0], minlength=N) == 3).all()
    assert edges.shape[1] == 3 * N
    assert len(np.unique(edges[0] * N + edges[1])) == 3 * N


def test_every_node_pulls_from_distinct_peers() -> None:
    edges = Pull(3).edges(N, 5, 0)
    assert (np.bincount(edges[1], minlength=N) == 3).all()
    assert len(np.unique(edges[0] * N + edges[1])) == 3 * N
    assert not (np.bincount(edges[0], minlength=N) == 3).all()


def test_a_small_world_that_rewires_nothing_is_a_ring_of_near_neighbors() -> None:
    pairs = set(map(tuple, SmallWorld(4, 0.0).edges(N, 0, 0).T.tolist()))
    near = {(i, (i + d) % N) for i in range(N) for d in (-2, -1, 1, 2)}
    assert pairs == near


def test_an_erdos_renyi_graph_keeps_the_expected_share_of_pairs() -> None:
    assert ErdosRenyi(0.0).edges(N, 0, 0).shape == (2, 0)
    assert ErdosRenyi(1.0).edges(N, 0, 0).shape == (2, N * (N - 1))
    edges = ErdosRenyi(0.2).edges(100, 0, 0).shape[1] / 2
    assert abs(edges / 4950 - 0.2) < 0.03


def test_an_erdos_renyi_graph_may_be_new_each_round() -> None:
    spec = ErdosRenyi(0.5, fixed=False)
    assert spec.changes()
    assert not np.array_equal(spec.edges(N, 0, 0), spec.edges(N, 0, 1))


@pytest.mark.parametrize("spec", [Ring(), Torus(), Star(), Full(), regular(0), Push(0), Pull(0)])
def test_a_lone_node_has_no_edges(spec: GraphSpec) -> None:
    spec.check(1)
    assert spec.edges(1, 0, 0).shape == (2, 0)


def test_two_nodes_on_a_ring_hear_each_other_once() -> None:
    assert Ring().edges(2, 0, 0).T.tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("spec", "n", "words"),
    [
        (Regular(5), 5, "degree 5 is impossible among 5 nodes; use 0 to 4"),
        (Regular(-1), 5, "degree -1 is impossible"),
        (Regular(3), 5, "nodes x degree must be even; use degree 2 or 4"),
        (Push(5), 5, "5 nodes cannot push to 5 peers; use 0 to 4"),
        (Push(-1), 5, "cannot push to -1"),
        (Pull(5), 5, "5 nodes cannot ask 5 peers; use 0 to 4"),
        (SmallWorld(3), 9, "needs an even degree from 2 to 8, got 3"),
        (SmallWorld(4), 4, "even degree from 2 to 3"),
        (ErdosRenyi(1.5), 5, "probability must be within 0 and 1, got 1.5"),
        (ErdosRenyi(-0.1), 5, "within 0 and 1, got -0.1"),
    ],
)
def test_an_impossible_graph_is_refused_with_what_would_do(
    spec: GraphSpec, n: int, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        spec.check(n)


def test_a_small_world_refuses_a_rewire_that_is_no_probability() -> None:
    with pytest.raises(InputError):
        SmallWorld(4, rewire=1.5).check(N)


def test_a_fixed_regular_graph_that_cannot_be_connected_is_refused() -> None:
    with pytest.raises(InputError, match="no connected graph of degree 1 on 4 nodes"):
        regular(1, fixed=True).edges(4, 0, 0)


@pytest.mark.parametrize("line", ["0 9", "0 x", "0 1 2", "7", "-1 0"])
def test_a_bad_line_of_an_edge_file_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "edges.txt"
    path.write_text(f"0 1\n{line}\n")
    with pytest.raises(InputError, match=rf"edges.txt:2: expected two node ids below 5.*'{line}'"):
        EdgeFile(str(path)).check(5)


def test_a_missing_edge_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the edge file"):
        EdgeFile(str(tmp_path / "none.txt")).check(5)


def test_an_edge_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "edges.bin"
    path.write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(InputError):
        EdgeFile(str(path)).check(5)


def test_an_empty_edge_file_is_a_graph_without_edges(tmp_path: Path) -> None:
    path = tmp_path / "edges.txt"
    path.write_text("# nobody\n")
    assert EdgeFile(str(path)).edges(5, 0, 0).shape == (2, 0)


def test_a_union_keeps_replicas_apart_and_sorts_edges_by_target_and_source() -> None:
    graph = union([Ring().edges(4, 0, 0), Full().edges(4, 0, 0)], 4)
    assert torch.equal(graph.source // 4, graph.target // 4)
    keys = graph.target * 8 + graph.source
    assert torch.equal(keys, keys.sort().values)
    assert len(keys) == 8 + 12


SYMMETRIC = st.one_of(
    st.just(Ring()),
    st.just(Star()),
    st.just(Torus()),
    st.just(regular(4)),
    st.builds(ErdosRenyi, st.floats(0, 1)),
    st.just(SmallWorld(4, 0.3)),
)


@given(SYMMETRIC, st.integers(5, 20), st.integers(0, 1000))
def test_metropolis_weights_are_symmetric_and_keep_the_mean(
    spec: GraphSpec, n: int, seed: int
) -> None:
    graph = union([spec.edges(n, seed, 0)], n)
    matrix = torch.zeros(n, n, dtype=torch.float64)
    matrix[graph.target, graph.source] = graph.metropolis()
    own = 1 - matrix.sum(1)
    assert torch.equal(matrix, matrix.T)
    assert (own > 0).all()
    values = torch.randn(n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    mixed = own * values + matrix @ values
    assert abs(mixed.mean() - values.mean()) < 1e-12


def test_metropolis_weights_of_a_star_follow_its_middle() -> None:
    weights = union([Star().edges(4, 0, 0)], 4).metropolis()
    assert torch.equal(weights, torch.full((6,), 0.25, dtype=torch.float64))
