import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor

from coterie.algorithms import EpidemicLearning
from coterie.core import replica_field
from coterie.errors import InputError
from coterie.runtimes.checkpoint import load, read_note, save, write_atomically
from coterie.runtimes.lockstep import DirectExchange
from coterie.runtimes.simulate import Simulation

from ..world import PATHS, World, split_into


@dataclass(frozen=True)
class Mixed:
    """A state with both kinds of fields."""

    params: Tensor  # [m, P]
    choice: Tensor  # [m]
    models: Tensor = replica_field()


def states(*sizes: int) -> list[Mixed]:
    random = torch.Generator().manual_seed(0)
    models = torch.randn(2, 3, 4, generator=random)
    rows = [(torch.randn(m, 4, generator=random), torch.arange(m) + 10 * m) for m in sizes]
    return [Mixed(params, choice, models) for params, choice in rows]


def blank(*sizes: int) -> list[Mixed]:
    models = torch.zeros(2, 3, 4)
    return [Mixed(torch.zeros(m, 4), torch.zeros(m).long(), models) for m in sizes]


SENT = torch.arange(6)
NOTE = {"round": 7, "metrics": {"a": [1.5, None]}, "plan": "stacked"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "part.safetensors"


@pytest.mark.parametrize("sizes", [(6,), (1, 3, 2), (0, 6), (1,) * 6])
def test_what_was_saved_is_loaded_again(path: Path, sizes: tuple[int, ...]) -> None:
    before = states(*sizes)
    save(path, before, SENT, NOTE)
    after, sent = load(path, blank(*sizes))
    assert torch.equal(sent, SENT)
    assert read_note(path) == NOTE
    assert len(after) == len(before)
    for mine, theirs in zip(after, before, strict=True):
        assert torch.equal(mine.params, theirs.params)
        assert torch.equal(mine.choice, theirs.choice)
        assert torch.equal(mine.models, theirs.models)


def test_a_checkpoint_may_be_split_into_other_blocks(path: Path) -> None:
    (one,) = states(6)
    save(path, [one], SENT, NOTE)
    after, _ = load(path, blank(1, 3, 2))
    assert [len(state.params) for state in after] == [1, 3, 2]
    assert torch.equal(torch.cat([state.params for state in after]), one.params)
    assert all(torch.equal(state.models, one.models) for state in after)


def test_an_expanded_field_can_be_saved(path: Path) -> None:
    state = Mixed(torch.ones(1, 4).expand(6, -1), torch.arange(6), torch.zeros(2, 3, 4))
    save(path, [state], SENT, NOTE)
    assert torch.equal(load(path, blank(6))[0][0].params, torch.ones(6, 4))


def test_two_fields_may_hold_the_same_tensor(path: Path) -> None:
    @dataclass(frozen=True)
    class Best:
        params: Tensor
        best: Tensor

    rows = torch.randn(6, 4)
    save(path, [Best(rows, rows)], SENT, NOTE)
    assert torch.equal(load(path, [Best(rows, rows)])[0][0].best, rows)


def test_two_replica_fields_may_hold_the_same_tensor(path: Path) -> None:
    @dataclass(frozen=True)
    class Twins:
        old: Tensor = replica_field()
        new: Tensor = replica_field()

    models = torch.randn(2, 4)
    save(path, [Twins(models, models)], SENT, NOTE)
    assert torch.equal(load(path, [Twins(models, models)])[0][0].new, models)


@pytest.mark.parametrize("engine", PATHS)
def test_a_run_that_stopped_goes_on_as_if_it_had_not(path: Path, engine: str) -> None:
    def simulation() -> Simulation:
        nodes = World(n=6, path=engine).nodes()
        made = Simulation(EpidemicLearning(2), split_into(nodes, 3), DirectExchange(6))
        made.start()
        return made

    whole, first, second = simulation(), simulation(), simulation()
    for t in range(4):
        whole.round(t)
    for t in range(2):
        first.round(t)
    save(path, first.states, first.exchange.sent, {})
    second.states, second.exchange.sent = load(path, second.states)
    for t in range(2, 4):
        second.round(t)
    for mine, theirs in zip(second.states, whole.states, strict=True):
        assert torch.equal(mine.params, theirs.params)
    assert torch.equal(second.exchange.sent, whole.exchange.sent)


def test_a_missing_checkpoint_is_named(path: Path) -> None:
    with pytest.raises(InputError, match=r"part\.safetensors cannot be read"):
        load(path, blank(6))
    with pytest.raises(InputError, match=r"part\.safetensors cannot be read"):
        read_note(path)


@pytest.mark.parametrize("content", [b"", b"garbage", bytes(100), b"\xff" * 100])
def test_garbage_is_no_checkpoint(path: Path, content: bytes) -> None:
    write_atomically(path, content)
    with pytest.raises(InputError, match="cannot be read"):
        load(path, blank(6))
    with pytest.raises(InputError, match="cannot be read"):
        read_note(path)


def test_a_checkpoint_cut_short_anywhere_is_refused(path: Path) -> None:
    save(path, states(6), SENT, NOTE)
    data = path.read_bytes()
    for size in range(0, len(data), 7):
        path.write_bytes(data[:size])
        with pytest.raises(InputError):
            load(path, blank(6))
        with pytest.raises(InputError):
            read_note(path)


def test_a_checkpoint_of_another_model_is_refused(path: Path) -> None:
    save(path, states(6), SENT, NOTE)
    other = Mixed(torch.zeros(6, 5), torch.zeros(6).long(), torch.zeros(2, 3, 5))
    with pytest.raises(InputError, match="belongs to another configuration"):
        load(path, [other])


def test_a_checkpoint_of_another_algorithm_is_refused(path: Path) -> None:
    @dataclass(frozen=True)
    class Other:
        velocity: Tensor

    save(path, states(6), SENT, NOTE)
    with pytest.raises(InputError, match="belongs to another configuration"):
        load(path, [Other(torch.zeros(6, 4))])


@pytest.mark.parametrize("sizes", [(4,), (8,), (3, 4)])
def test_a_checkpoint_of_another_number_of_nodes_is_refused(
    path: Path, sizes: tuple[int, ...]
) -> None:
    save(path, states(6), SENT, NOTE)
    with pytest.raises(InputError):
        load(path, blank(*sizes))


def test_a_checkpoint_without_its_traffic_is_refused(tmp_path: Path) -> None:
    (state,) = states(6)
    path = tmp_path / "part.safetensors"
    fields = {f"state.{name}": value for name, value in vars(state).items()}
    path.write_bytes(safetensors.torch.save(fields))
    with pytest.raises(InputError):
        load(path, blank(6))


def test_a_checkpoint_without_a_note_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "part.safetensors"
    path.write_bytes(safetensors.torch.save({"x": torch.zeros(1)}, {"other": "text"}))
    with pytest.raises(InputError, match="cannot be read"):
        read_note(path)


def test_a_file_without_any_metadata_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "part.safetensors"
    path.write_bytes(safetensors.torch.save({"x": torch.zeros(1)}))
    with pytest.raises(InputError):
        read_note(path)


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file of this process may grow beyond `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    with full_disk(1000), pytest.raises(OSError, match="too large"):
        write_atomically(path, bytes(100_000))
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_rename_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    (path / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="file"):
        write_atomically(path, b"new")
    assert (path / "inside").is_dir()
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_write_replaces_the_whole_file_and_makes_its_folder(path: Path) -> None:
    write_atomically(path, b"a long first content")
    write_atomically(path, b"short")
    assert path.read_bytes() == b"short"
    assert [file.name for file in path.parent.iterdir()] == [path.name]
