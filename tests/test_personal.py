from pathlib import Path

import pytest
import safetensors.torch
import torch

from coterie import personal
from coterie.personal import write_models

from .world import World


def test_nodes_that_hold_one_model_share_a_file(tmp_path: Path) -> None:
    nodes = World(n=4).nodes()
    params = nodes.initial_params()[[0, 0, 1, 1]]
    for _ in range(2):  # the second time the files are there
        write_models([(nodes, params)], lambda key: tmp_path / f"{key % 2}" / f"{key}.safetensors")
    paths = [tmp_path / f"{key % 2}" / f"{key}.safetensors" for key in range(4)]
    assert [path.stat().st_nlink for path in paths] == [2] * 4
    for path, row in zip(paths, params, strict=True):
        named = safetensors.torch.load_file(path)
        assert torch.equal(nodes.layout.flatten(named), row)


def test_where_there_are_no_links_every_node_has_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(personal, "_linked", lambda path, twin: False)
    nodes = World(n=3).nodes()
    params = nodes.initial_params()[[0, 0, 0]]
    write_models([(nodes, params)], lambda key: tmp_path / f"{key}.safetensors")
    assert [path.stat().st_nlink for path in tmp_path.iterdir()] == [1] * 3


def test_a_link_that_fails_is_no_error(tmp_path: Path) -> None:
    assert not personal._linked(tmp_path / "a", tmp_path / "missing")
