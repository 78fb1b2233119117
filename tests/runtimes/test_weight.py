"""What a frame may hold follows from what a node holds."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from coterie.core import Algorithm, Nodes, Program, State
from coterie.core.federated import Cohort, Federated, Nothing, server_of
from coterie.runtimes.weight import LEAST, MARGIN, frame_limits, held_by

from ..world import World


def wide() -> nn.Module:
    """About 2 MiB in float64, more than the limits let in anyway after their margin."""
    return nn.Linear(1 << 16, 4)


MODEL = 8 * (4 * (1 << 16) + 4)  # its bytes


@dataclass(frozen=True)
class Keeper(Algorithm):
    """Keeps some models, and says nothing."""

    models: int = 1

    def start(self, nodes: Nodes) -> State:
        return State(nodes.no_params.new_zeros(len(nodes), self.models * nodes.layout.size))

    def round(self, t: int, state: State, nodes: Nodes) -> Program:
        yield from ()
        return state

    def personal(self, state: State, nodes: Nodes) -> Tensor:
        return state.params


@dataclass(frozen=True)
class Served(Federated):
    """A server that keeps three models, of clients that keep nothing."""

    def cohort(self) -> Cohort:
        return Cohort()

    def start_server(self, server: Nodes) -> State:
        return State(server.no_params.new_zeros(1, 3 * server.layout.size))

    def serve(self, t: int, state: State, server: Nodes) -> Program:
        yield from ()
        return state

    def round(self, t: int, state: Nothing, nodes: Nodes) -> Program:
        yield from ()
        return state

    def deliver(self, server: State, state: Nothing, nodes: Nodes) -> State:
        return server

    def personal(self, state: State, nodes: Nodes) -> Tensor:
        return state.params


def one(n: int = 3) -> Nodes:
    world = World(n=n, build=wide, shape=(1 << 16,), classes=4, counts=(1,) * n)
    return world.nodes()[torch.tensor([0])]


@pytest.mark.parametrize("models", [1, 4])
def test_a_node_holds_a_model_and_its_state(models: int) -> None:
    assert held_by(Keeper(models), one()) == (1 + models) * MODEL


def test_clients_hear_the_state_of_their_server() -> None:
    nodes = one()
    assert held_by(Served(), nodes) == held_by(Served(), server_of(nodes)) == (1 + 3) * MODEL


def test_a_frame_may_hold_many_times_what_a_node_does() -> None:
    assert frame_limits(Keeper(), one()).tensor >= 2 * MARGIN * MODEL
    assert frame_limits(Keeper(), one()).frame < 2 * MARGIN * MODEL + (1 << 20) < 1 << 30


def test_a_large_model_is_let_in() -> None:
    nodes = one()
    assert frame_limits(Keeper(1000), nodes).tensor > 1000 * MARGIN * MODEL > 1 << 30


def test_small_models_leave_room_for_what_else_an_algorithm_may_send() -> None:
    assert frame_limits(Keeper(), World().nodes()[torch.tensor([0])]).tensor == LEAST


def test_the_letters_of_a_large_group_fit() -> None:
    nodes = World(n=2000, counts=(1,) * 2000).nodes()[torch.tensor([0])]
    each = 32 + 72 + 2000 * 3  # of the list that every member signs
    assert frame_limits(Keeper(), nodes).tensor > 2000 * each > LEAST // 2


def test_what_is_set_counts() -> None:
    assert frame_limits(Keeper(), one(), largest=3).tensor == 3 << 20
