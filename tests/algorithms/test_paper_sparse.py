"""DisPFL against a layer-by-layer transcription, and what its masks promise."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coterie.algorithms import DisPFL
from coterie.algorithms.dispfl import densities, pack, unpack
from coterie.errors import InputError
from tests.algorithms.reference import dispfl
from tests.algorithms.test_paper import NODES, ROUNDS, edges_of, node, played, same
from tests.algorithms.world import N

LAYOUT = NODES.layout
SPARSE = [
    DisPFL(2, density=0.5, horizon=10),
    DisPFL(3, density=0.3, horizon=4, drop=0.9, regrow="random"),
    DisPFL(1, density=0.6, drop=0.0),
    DisPFL(2, density=0.4, lr_decay=0.5, horizon=6),
    DisPFL(2, density=1.0),
]


def layers(row):
    return {name: value.flatten() for name, value in LAYOUT.unflatten(row).items()}


def flat(named):
    return torch.cat([named[column.name] for column in LAYOUT.columns])


def box_of(algorithm: DisPFL) -> dispfl.DisPFL:
    def train(i, w, mask, t):
        slowed = node(i).slowed(algorithm.lr_decay**t)
        return layers(slowed.train(flat(w)[None], t, part=flat(mask)[None])[0])

    def promise(i, w, t):
        if algorithm.regrow == "gradient":
            return layers(node(i).gradient(flat(w)[None], t, "regrow")[0].abs())
        return layers(node(i).draw("regrow", t, LAYOUT.size)[0].double())

    edges = edges_of(algorithm)
    return dispfl.DisPFL(
        algorithm.drop,
        algorithm.horizon,
        train,
        promise,
        lambda i, t: [j for j, target in edges(t) if target == i],
    )


@pytest.mark.parametrize("algorithm", SPARSE, ids=str)
def test_dispfl_averages_where_masks_overlap_and_moves_its_masks(algorithm):
    start = algorithm.start(NODES)
    models, masks = [layers(row) for row in start.params], [layers(row) for row in start.mask]
    models, shared, grown = dispfl.run(box_of(algorithm), models, masks, ROUNDS)
    state = played(algorithm)
    assert [row.tolist() for row in state.mask] == [flat(m).tolist() for m in shared]
    assert [row.tolist() for row in state.grown] == [flat(m).tolist() for m in grown]
    same(state.params, [flat(model) for model in models])


@pytest.mark.parametrize("algorithm", SPARSE, ids=str)
def test_every_node_keeps_as_many_weights_as_it_began_with(algorithm):
    state = played(algorithm)
    assert (state.mask.sum(1) == algorithm.active(LAYOUT)).all()
    assert (state.grown.sum(1) == algorithm.active(LAYOUT)).all()
    assert (state.params[~state.mask] == 0).all()
    trained = LAYOUT.trained()
    share = state.mask[:, trained].double().mean().item()
    assert share == pytest.approx(algorithm.density, abs=0.03)


def test_masks_are_personal_and_move():
    algorithm = SPARSE[0]
    start, state = algorithm.start(NODES).mask, played(algorithm).grown
    assert len({tuple(row) for row in start.tolist()}) == N
    assert (state != start).any(1).all()
    assert not (played(DisPFL(2, drop=0.0)).grown != DisPFL(2).start(NODES).mask).any()


def test_after_the_horizon_masks_stay():
    algorithm = DisPFL(2, horizon=2)
    assert torch.equal(played(algorithm).grown, played(algorithm).mask)


@given(
    st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=1, max_size=6),
    st.floats(0.05, 0.95),
    st.floats(0.2, 2.0),
)
def test_layer_densities_follow_the_kernel_rule(shapes, density, power):
    found = densities([tuple(shape) for shape in shapes], density, power)
    expected = dispfl.erk({str(i): shape for i, shape in enumerate(shapes)}, density, power)
    assert found == pytest.approx(list(expected.values()))
    assert all(0 < share <= 1 for share in found)
    sizes = [math.prod(shape) for shape in shapes]
    kept = sum(share * size for share, size in zip(found, sizes, strict=True))
    assert kept == pytest.approx(density * sum(sizes))


@given(st.integers(1, 40), st.integers(0, 40), st.integers(0, 10**6))
def test_what_travels_can_be_unpacked(columns, active, seed):
    active = min(active, columns)
    random = torch.Generator().manual_seed(seed)
    order = torch.rand(3, columns, generator=random).argsort(1)[:, :active]
    mask = torch.zeros(3, columns, dtype=torch.bool).scatter(1, order, True)
    params = torch.randn(3, columns, generator=random) * mask
    sent = pack(params, mask, active)
    assert sent["values"].shape == (3, active)
    assert sent["mask"].shape == (3, -(-columns // 8)) and sent["mask"].dtype == torch.uint8
    if active:
        found = unpack(sent["values"], sent["mask"], columns)
        assert torch.equal(found[0], params) and torch.equal(found[1], mask)


def test_half_a_model_costs_about_half_the_bytes():
    message = next(DisPFL(2).round(0, DisPFL(2).start(NODES), NODES))
    size = sum(rows[0].numel() * rows.element_size() for rows in message.rows.values())
    assert size < 0.65 * LAYOUT.size * 8


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"density": 1.5}, "density must be from 0 to 1, got 1.5"),
        ({"drop": -0.1}, "drop must be from 0 to 1, got -0.1"),
        ({"horizon": -1}, "horizon must be from 0 to inf, got -1"),
        ({"power": math.inf}, "power must be finite, got inf"),
    ],
)
def test_dispfl_refuses_what_cannot_be(options, words):
    with pytest.raises(InputError, match=words):
        DisPFL(**options)
