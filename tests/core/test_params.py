import pytest
import torch
from torch import nn

from coterie.core.params import flat, layout_of
from coterie.errors import InputError

from ..world import mlp, normed


def test_flattening_what_was_unflattened_gives_the_rows_back() -> None:
    layout = layout_of(normed(), ["3"])
    rows = torch.randn(2, 5, layout.size)
    named = layout.unflatten(rows)
    assert named["0.weight"].shape == (2, 5, 8, 10)
    assert torch.equal(layout.flatten(named), rows)
    assert torch.equal(layout.flatten(layout.unflatten(rows[0, 0])), rows[0, 0])


def test_zero_rows_can_be_named_and_flattened() -> None:
    layout = layout_of(normed())
    named = layout.unflatten(torch.empty(0, layout.size))
    assert named["0.weight"].shape == (0, 8, 10)
    assert layout.flatten(named).shape == (0, layout.size)


def test_a_row_names_the_values_of_its_module() -> None:
    module = normed()
    layout = layout_of(module, ["3"])
    named = layout.unflatten(flat(module, layout))
    state = module.state_dict()
    assert set(named) == set(state) - {"1.num_batches_tracked"}
    assert all(torch.equal(named[name], state[name]) for name in named)


def test_the_core_comes_first_and_the_head_last_wherever_its_layers_stand() -> None:
    layout = layout_of(mlp(), ["0"])  # the first layer as the head
    assert [c.name for c in layout.columns] == ["2.weight", "2.bias", "0.weight", "0.bias"]
    assert layout.core == slice(0, 27)
    assert layout.head == slice(27, 27 + 88)
    assert layout.size == 115


def test_columns_follow_each_other_without_gaps() -> None:
    columns = layout_of(normed(), ["3"]).columns
    assert columns[0].start == 0
    assert [c.stop for c in columns[:-1]] == [c.start for c in columns[1:]]


def test_running_statistics_are_untrained_columns_of_their_layers_part() -> None:
    layout = layout_of(normed(), ["3"])
    buffers = [c for c in layout.columns if not c.trained]
    assert [c.name for c in buffers] == ["1.running_mean", "1.running_var"]
    assert all(c.stop <= layout.core.stop for c in buffers)
    in_head = layout_of(normed(), ["1", "3"])
    assert all(c.start >= in_head.head.start for c in in_head.columns if not c.trained)


def test_the_trained_columns_leave_out_buffers_and_the_other_part() -> None:
    layout = layout_of(normed(), ["3"])
    everything, core, head = (layout.trained(p) for p in (None, layout.core, layout.head))
    assert int(everything.sum()) == layout.size - 16
    assert int(head.sum()) == 27
    assert torch.equal(core | head, everything)
    assert not (core & head).any()


def test_a_model_without_a_head_is_refused_only_when_its_head_is_asked_for() -> None:
    layout = layout_of(mlp())
    assert layout.size == 115
    for part in ("core", "head"):
        with pytest.raises(InputError, match=r"declares no head.*set `model.head`"):
            getattr(layout, part)


def test_an_unknown_layer_in_the_head_is_refused_with_those_there_are() -> None:
    with pytest.raises(InputError, match="no layer 'fc' for its head; it has: 0, 2"):
        layout_of(mlp(), ["fc"])


def test_a_prefix_of_a_name_is_not_a_layer() -> None:
    module = nn.Sequential()
    module.add_module("fc1", nn.Linear(2, 2))
    module.add_module("fc10", nn.Linear(2, 2))
    assert [c.name for c in layout_of(module, ["fc1"]).columns[:2]] == ["fc10.weight", "fc10.bias"]


def test_a_module_declares_its_head_by_names_or_by_a_layer_called_head() -> None:
    named = mlp()
    named.head = ("2",)
    assert layout_of(named).core.stop == 88
    layered = nn.Sequential()
    layered.add_module("body", nn.Linear(3, 4))
    layered.add_module("head", nn.Linear(4, 2))
    assert layout_of(layered).core.stop == 16
    assert layout_of(layered, ["body"]).core.stop == 10


def test_a_single_name_is_a_head_too() -> None:
    module = mlp()
    module.head = "2"
    assert layout_of(module).head == slice(88, 115)


def test_a_module_without_parameters_has_no_columns() -> None:
    layout = layout_of(nn.ReLU())
    assert layout.size == 0
    assert layout.columns == ()
