"""The same words from Python: objects and functions where a file has tables and names."""

from __future__ import annotations

import dataclasses
import functools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import coterie
from tests.contract.command import ROOT, tiny

SCRIPT = """
import numpy as np
import coterie
from torch import nn

def load():
    x = np.random.default_rng(0).normal(size=(80, 3))
    return x[10:], (x[10:, 0] > 0).astype(int), x[:10], (x[:10, 0] > 0).astype(int)

def build(shape):
    return nn.Linear(3, shape.outputs)

config = coterie.Config(
    experiment={"seeds": 1, "rounds": 1},
    data={"source": load, "clusters": [{"name": "all", "nodes": 4}]},
    model={"name": build},
    algorithm=[coterie.Local()],
)
coterie.run(config, "out")
"""


def load(rows: int = 60):
    x = np.random.default_rng(0).normal(size=(rows, 3))
    y = (x[:, 0] > 0).astype(int)
    return x[10:], y[10:], x[:10], y[:10]


def build(shape, width: int = 4):
    return nn.Sequential(nn.Linear(*shape.sample, width), nn.Linear(width, shape.outputs))


def test_a_wrong_key_gets_a_suggestion():
    with pytest.raises(coterie.InputError, match=r"'trian'; did you mean 'train'\?"):
        coterie.Config(trian={})
    with pytest.raises(coterie.InputError, match=r"train.lr: expected a number greater than 0"):
        coterie.Config(train={"lr": -1})


def test_algorithms_may_be_objects():
    config = coterie.Config(algorithm=[coterie.Facade(heads=3), {"name": "local", "label": "x"}])
    facade, local = config.algorithm
    assert (facade.name, facade.options) == ("facade", {"heads": 3})
    assert (local.name, local.label) == ("local", "x")


def test_an_object_of_no_algorithm_is_refused():
    @dataclasses.dataclass
    class Mine:
        degree: int = 3

    with pytest.raises(coterie.InputError, match="Mine is not a registered algorithm"):
        coterie.Config(algorithm=[Mine()])
    with pytest.raises(coterie.InputError, match=r"Facade .*give an object"):
        coterie.Config(algorithm=[coterie.Facade])


def test_data_and_model_may_be_functions(here):
    config = coterie.Config(
        **tiny(
            data={"source": {"name": load, "rows": 70}, "clusters": [{"name": "all", "nodes": 4}]},
            model={"name": build, "width": 3},
        )
    )
    assert config.model.name == f"{__name__}:build"
    assert config.data.source == {"name": f"{__name__}:load", "rows": 70}
    assert coterie.run(config, here / "out", device="cpu")["results"][0]["nodes"] == 4


@pytest.mark.parametrize(
    "function", [lambda: None, functools.partial(load)], ids=["lambda", "partial"]
)
def test_a_function_without_an_import_path_is_refused(function):
    with pytest.raises(coterie.InputError, match=r"data.source: .*at the top of a module"):
        coterie.Config(data={"source": function})
    with pytest.raises(coterie.InputError, match=r"model.name: .*at the top of a module"):
        coterie.Config(model={"name": function})


def test_a_script_may_define_them(here):
    (here / "mine.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-W", "error", "mine.py"],
        cwd=here,
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert '"__main__:load"' in (here / "out" / "config.toml").read_text()


def test_the_folder_is_a_new_one_unless_given(here):
    config = coterie.Config(**tiny())
    for _ in range(2):
        coterie.run(config, device="cpu")
    coterie.run(config, "mine", device="cpu")
    assert sorted(path.name for path in Path("runs").iterdir()) == ["tiny", "tiny-2"]
    assert (here / "mine" / "summary.json").exists()


def test_results_are_a_frame_with_a_row_a_seed(here):
    summary = coterie.run(
        coterie.Config(**tiny(experiment__seeds=[4, 7], data__ratios=["4:2", "6:0"])),
        device="cpu",
    )
    frame = coterie.results(summary)
    rows = list(zip(frame["label"], frame["scenario"], frame["seed"], strict=True))
    assert sorted(rows) == [("epidemic", s, seed) for s in ("4:2", "6:0") for seed in (4, 7)]
    assert frame["accuracy:upright"].notna().all()
    assert frame["accuracy:turned"].isna().sum() == 2
    assert frame.groupby("scenario")["fair_accuracy"].mean().between(0, 100).all()
