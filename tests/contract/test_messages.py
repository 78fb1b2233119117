"""Bad input is one message on stderr, exit code 2, and never a traceback."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from tests.contract.command import begin, refused, tiny, write

USER_MODEL = """
from torch import nn

def headless(shape):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, shape.outputs))

def too_wide(shape):
    return nn.Sequential(nn.Flatten(), nn.Linear(99, shape.outputs))

def nothing():
    return None

def broken(shape):
    raise ValueError("no such width")

def dropping(shape):
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, shape.outputs))
"""
USER_DATA = """
import numpy as np

def ragged():
    return np.zeros((5, 3)), np.zeros(4, dtype=int), np.zeros((5, 3)), np.zeros(5, dtype=int)

def two():
    return np.zeros((5, 3)), np.zeros(5, dtype=int)

def broken():
    raise ValueError("the server is down")
"""


def clusters(*counts: int) -> list[dict]:
    return [{"name": f"c{number}", "nodes": count} for number, count in enumerate(counts)]


def shifted(shift: object) -> list[dict]:
    return [{"name": "a", "nodes": 6, "shifts": [shift]}]


FACADE = [{"name": "facade", "degree": 2, "warmup": 0}]
BAD_TABLES = {  # what is wrong -> the tables, and what the message has to say
    "unknown algorithm": (
        tiny(algorithm=[{"name": "facad"}]),
        [
            "algorithm.facad",
            "unknown algorithm 'facad'",
            "did you mean 'facade'?",
            "coterie list algorithms",
        ],
    ),
    "unknown option": (
        tiny(algorithm=[{"name": "epidemic", "degre": 2}]),
        ["'degre'", "did you mean 'degree'?", "epidemic"],
    ),
    "unknown section": (tiny(trian={}), ["'trian'", "did you mean 'train'?", "bad.toml"]),
    "unknown key": (tiny(train__stepz=2), ["'train.stepz'", "did you mean 'train.steps'?"]),
    "unknown key of a cluster": (
        tiny(data__clusters=[{"name": "a", "nodes": 2, "shift": []}]),
        ["shift", "did you mean", "shifts"],
    ),
    "unknown key of an algorithm's train": (
        tiny(algorithm=[{"name": "local", "train": {"stepz": 2}}]),
        ["stepz", "did you mean", "steps", "local"],
    ),
    "wrong type": (
        tiny(experiment__rounds="many"),
        ["experiment.rounds", "whole number", "'many'"],
    ),
    "wrong type of an option": (
        tiny(algorithm=[{"name": "epidemic", "degree": "four"}]),
        ["epidemic", "degree", "whole number", "'four'"],
    ),
    "wrong choice of an option": (
        tiny(algorithm=[{"name": "epidemic", "variant": "rumour"}]),
        ["epidemic", "variant", "'oracle' or 'local'", "'rumour'"],
    ),
    "wrong choice": (tiny(train__precision="half"), ["train.precision", "float64", "'half'"]),
    "negative rate": (tiny(train__lr=-1.0), ["train.lr", "greater than 0", "-1"]),
    "no rounds": (tiny(experiment__rounds=0), ["experiment.rounds", "0"]),
    "no seeds": (tiny(experiment__seeds=[]), ["experiment.seeds", "[]"]),
    "a seed twice": (tiny(experiment__seeds=[1, 1]), ["seeds", "different"]),
    "steps and epochs": (tiny(train__epochs=1.0), ["train", "`steps` or `epochs`"]),
    "degree as large as the population": (
        tiny(algorithm=[{"name": "epidemic", "degree": 6}]),
        ["epidemic", "degree 6", "6 nodes", "use 0 to 5"],
    ),
    "odd nodes times odd degree": (
        tiny(data__clusters=clusters(5), algorithm=[{"name": "epidemic", "degree": 3}]),
        ["5 nodes", "degree 3", "use degree 2 or 4"],
    ),
    "more nodes than samples": (
        tiny(data__clusters=clusters(2000)),
        ["2000 nodes", "1437", "use fewer nodes"],
    ),
    "more samples asked than there are": (
        tiny(data__partition={"name": "dirichlet", "min_samples": 1000}),
        ["samples", "min_samples"],
    ),
    "no nodes": (tiny(data__clusters=clusters(0)), ["no nodes", "ratios"]),
    "no clusters": (tiny(data__clusters=[]), ["data.clusters", "at least 1"]),
    "a bad ratio": (tiny(data__ratios=["4:2:1"]), ["'4:2:1'", "2 clusters", "'8:8'"]),
    "a ratio twice": (tiny(data__ratios=["4:2", "4:2"]), ["ratios", "different", "'4:2'"]),
    "a name that is missing": (tiny(data__clusters=[{"nodes": 2}]), ["data.clusters.0.name"]),
    "a table that is a word": (tiny(train="fast"), ["train: expected a table", "'fast'"]),
    "a shift without a name": (
        tiny(data__clusters=shifted({"degrees": 9})),
        ["data.clusters.0.shifts.0", "a table with a name", "{'degrees': 9}"],
    ),
    "a source that is a number": (tiny(data__source=3), ["data.source", "a name", "got 3"]),
    "two clusters of one name": (
        tiny(data__clusters=[{"name": "a", "nodes": 2}, {"name": "a", "nodes": 4}]),
        ["different names"],
    ),
    "two algorithms of one label": (
        tiny(algorithm=[{"name": "local"}, {"name": "local"}]),
        ["'local'", "`label`"],
    ),
    "a label that is a path": (
        tiny(algorithm=[{"name": "local", "label": "../up"}]),
        ["'../up'", "label"],
    ),
    "missing data set": (
        tiny(data__source="cifar10", model__name="lenet"),
        ["cifar10", "coterie data get cifar10", "looked in", "COTERIE_DATA"],
    ),
    "unknown data set": (tiny(data__source="digit"), ["'digit'", "did you mean 'digits'?"]),
    "corrupt data file": (tiny(data__source="corrupt.npz"), ["corrupt.npz", "cannot read"]),
    "no data file": (tiny(data__source="absent.csv"), ["absent.csv", "no file"]),
    "a table with words": (tiny(data__source="words.csv"), ["words.csv", "not numbers", "colour"]),
    "unknown shift": (
        tiny(data__clusters=shifted("rotatoin")),
        ["data.clusters.a.shifts", "unknown shift 'rotatoin'", "did you mean 'rotation'?"],
    ),
    "a shift of images on a table": (
        tiny(data__source="synthetic", data__clusters=shifted("rotation")),
        ["rotation", "images"],
    ),
    "unknown option of a shift": (
        tiny(data__clusters=shifted({"name": "rotation", "angle": 90})),
        ["'angle'", "rotation", "degrees"],
    ),
    "unknown partition": (
        tiny(data__partition="idd"),
        ["data.partition", "'idd'", "did you mean 'iid'?"],
    ),
    "a partition by users of data without users": (
        tiny(data__partition="natural"),
        ["natural", "who made each sample"],
    ),
    "unknown graph": (
        tiny(algorithm=[{"name": "dpsgd", "graph": "rings"}]),
        ["algorithm.dpsgd", "unknown graph 'rings'", "did you mean 'ring'?"],
    ),
    "impossible graph": (
        tiny(algorithm=[{"name": "dpsgd", "graph": {"name": "regular", "degree": 9}}]),
        ["dpsgd", "degree 9", "6 nodes"],
    ),
    "unknown model": (tiny(model__name="logistics"), ["'logistics'", "did you mean 'logistic'?"]),
    "unknown model that no algorithm trains": (
        tiny(
            model__name="logistics",
            algorithm=[{"name": "local", "model": {"name": "logistic"}}],
        ),
        ["'logistics'", "did you mean 'logistic'?"],
    ),
    "a model of images on a table": (
        tiny(data__source="synthetic", data__clusters=clusters(6), model__name="lenet"),
        ["lenet", "'mlp'"],
    ),
    "a head that the model does not have": (
        tiny(model__head=["fc9"], algorithm=FACADE),
        ["'fc9'", "it has: fc"],
    ),
    "a user model without head": (
        tiny(model__name="nets:headless", algorithm=FACADE),
        ["facade", "no head", "model.head"],
    ),
    "a user model of another width": (
        tiny(model__name="nets:too_wide"),
        ["does not accept samples of shape (1, 8, 8)"],
    ),
    "a user model that is none": (tiny(model__name="nets:nothing"), ["nets:nothing", "NoneType"]),
    "a user model that cannot be built": (
        tiny(model__name="nets:broken"),
        ["nets:broken", "no such width"],
    ),
    "a user model with dropout": (tiny(model__name="nets:dropping"), ["dropout", "p=0.5"]),
    "a user model that is not there": (tiny(model__name="nets:abs"), ["nets", "'abs'"]),
    "a user model without module": (tiny(model__name="absent:build"), ["'absent'", "PYTHONPATH"]),
    "a user model in a file without its ending": (
        tiny(model__name="./nets:build"),
        ["folder/file.py:function"],
    ),
    "user data that do not fit": (
        tiny(data__source="sets:ragged", data__clusters=clusters(2)),
        ["sets:ragged", "5 inputs but 4 targets"],
    ),
    "user data that are incomplete": (
        tiny(data__source="sets:two", data__clusters=clusters(2)),
        ["sets:two", "(x_train, y_train, x_test, y_test)"],
    ),
    "user data that cannot be had": (
        tiny(data__source="sets:broken", data__clusters=clusters(2)),
        ["sets:broken", "the server is down"],
    ),
    "a regression of classes": (
        tiny(train__objective="regression"),
        ["regression", "digits", "class"],
    ),
    "a target of a regression": (
        tiny(train__objective="reconstruction", evaluate__target=90.0, model__name="autoencoder"),
        ["evaluate.target", "got 90", "'reconstruction' has a mean squared error"],
    ),
    "user data that cannot be imported": (
        tiny(data__source="torn:load"),
        ["torn:load", "SyntaxError", "torn.py"],
    ),
    "no edge file": (
        tiny(algorithm=[{"name": "dpsgd", "graph": {"name": "file", "path": "absent.txt"}}]),
        ["algorithm.dpsgd", "edge file 'absent.txt'", "No such file"],
    ),
    "unknown optimizer": (
        tiny(train__optimizer="sdg"),
        ["error: train.optimizer", "'sdg'", "did you mean 'sgd'?"],
    ),
    "unknown optimizer of an algorithm": (
        tiny(algorithm=[{"name": "local", "train": {"optimizer": "sdg"}}]),
        ["error: algorithm.local.train.optimizer", "'sdg'"],
    ),
    "momentum in steps that are read as gradients": (
        tiny(
            train__optimizer={"name": "sgd", "momentum": 0.9},
            algorithm=[{"name": "fedavg"}, {"name": "scaffold"}],
        ),
        ["error: train.optimizer", "'scaffold'", "0.9", "without momentum"],
    ),
    "Adam of an algorithm that reads gradients off steps": (
        tiny(algorithm=[{"name": "fedsgd", "train": {"optimizer": "adam"}}]),
        ["error: algorithm.fedsgd.train.optimizer", "'fedsgd'", "'adam'"],
    ),
    "Adam for a part of a model that learns at a rate of its own": (
        tiny(model={"name": "fedcg", "base": "small-cnn"}, train__optimizer="adam"),
        ["error: train.optimizer", "model 'fedcg'", "'adam'", "use 'sgd'"],
    ),
    "a misspelt model of an algorithm": (
        tiny(algorithm=[{"name": "local", "model": {"name": "small-cn"}}]),
        ["error: algorithm.local.model", "did you mean 'small-cnn'?"],
    ),
    "a model of an algorithm without a table": (
        tiny(algorithm=[{"name": "local", "model": "small-cnn"}]),
        ["algorithm.0.model", "expected a table"],
    ),
    "no heads": (
        tiny(algorithm=[{"name": "facade", "heads": 0, "degree": 2}]),
        ["facade", "heads", "0"],
    ),
    "more heads than nodes": (
        tiny(algorithm=[{"name": "facade", "heads": 10**9, "degree": 2}]),
        ["facade", "heads", "1000000000", "use 1 to 16"],
    ),
    "more models than nodes": (
        tiny(algorithm=[{"name": "ifca", "models": 17}]),
        ["ifca", "models", "17", "use 1 to 16"],
    ),
    "negative warm-up": (
        tiny(algorithm=[{"name": "facade", "warmup": -1, "degree": 2}]),
        ["facade", "warmup", "-1"],
    ),
    "nothing to compare heads on": (
        tiny(algorithm=[{"name": "facade", "samples": 0, "degree": 2}]),
        ["facade", "samples", "0"],
    ),
    "an option that is no number": (
        tiny(algorithm=[{"name": "epidemic", "degree": float("nan")}]),
        ["algorithm.epidemic", "degree", "expected a number, got nan"],
    ),
    "an impossible model": (
        tiny(model={"name": "mlp", "hidden": [-1]}),
        ["model: ", "'mlp' cannot be built with {'hidden': [-1]}"],
    ),
    "a source that no file can be": (
        tiny(data__source="x" * 5000),
        ["data.source", "unknown data set", "known: "],
    ),
    "a file that is no archive": (
        tiny(data__source="torn.npz"),
        ["data.source", "cannot read torn.npz", "no .npz file"],
    ),
}
for number, name in enumerate(["", "a/b", "../a", ".hidden", "a\0"]):
    BAD_TABLES[f"a name that is no folder {number}"] = (
        tiny(experiment__name=name),
        ["experiment.name", "run folder", repr(name)],
    )


@pytest.fixture
def files(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a user's own files; no data set is on this machine."""
    (here / "nets.py").write_text(USER_MODEL)
    (here / "sets.py").write_text(USER_DATA)
    (here / "torn.py").write_text("def load(:")
    (here / "torn.npz").write_text("no archive")
    (here / "corrupt.npz").write_bytes(b"PK\x03\x04 and then nothing")
    (here / "words.csv").write_text("colour,label\nred,1\nblue,0\n")
    monkeypatch.setenv("COTERIE_DATA", str(here / "none"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(here / "none"))
    for module in ("nets", "sets", "torn"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return here


@pytest.mark.parametrize("table, fragments", BAD_TABLES.values(), ids=list(BAD_TABLES))
def test_a_bad_configuration_is_refused_before_the_first_round(table, fragments, coterie, files):
    refused(coterie("run", write(files / "bad.toml", table), "--out", "out"), *fragments)
    assert not (files / "out").exists()


BAD_CHANGES = {  # a --set -> what the message has to say
    "train.lr": ["key=value", "'train.lr'"],
    "=3": ["key=value", "'=3'"],
    "train.lr.x=3": ["--set train.lr.x=3", "train.lr", "{'x': 3}"],
    "train.lr=-1": ["error: --set train.lr=-1: train.lr: ", "greater than 0", "-1"],
    "train.rl=3": ["'train.rl'", "did you mean 'train.lr'?"],
    "algorithm.facade.heads=3": ["unknown algorithm 'facade'", "epidemic"],
    "data.clusters.turned.shifts.blur.radius=3": ["unknown shift 'blur'", "rotation"],
    "data.clusters.turned.shifts.0.degrees=3": ["data.clusters.turned.shifts.0", "not a table"],
    "algorithm=3": ["algorithm", "list"],
    "experiment=3": ["experiment", "3"],
    "data.clusters.turned.shifts=['x']": ["unknown shift 'x'", "known: "],
    "algorithm.epidemic.label=a/b": ["'a/b'"],
    "experiment.seeds=1000000000000000000000": ["experiment.seeds", "at most 100000"],
}


@pytest.mark.parametrize("change", BAD_CHANGES)
def test_a_bad_change_is_refused(change, coterie, here):
    file = write(here / "good.toml", tiny())
    outcome = coterie("run", file, "--set", change, "--out", "out")
    refused(outcome, *BAD_CHANGES[change])
    assert "good.toml" not in outcome.err, "the file is not to blame"


def test_the_change_that_broke_the_configuration_is_blamed(coterie, here):
    file = write(here / "good.toml", tiny())
    words = ["--set", "train.batch=4", "--set", "train.lr=x", "--set", "train.steps=3"]
    refused(coterie("run", file, *words), "--set train.lr=x: train.lr: expected a number, got 'x'")
    bad = write(here / "bad.toml", tiny(train__lr="x"))
    refused(coterie("run", bad, "--set", "train.batch=4"), f"error: {bad}: train.lr")


def test_a_missing_file_is_named(coterie):
    refused(coterie("run", "absent.toml"), "no file 'absent.toml'")


@pytest.mark.parametrize(
    "text", ["[experiment", "a = ", b"\xff\xfe"], ids=["open", "empty", "binary"]
)
def test_a_file_that_is_not_toml_is_named(text, coterie, here):
    (here / "bad.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(coterie("run", "bad.toml"), "bad.toml")


def test_a_folder_is_not_a_configuration(coterie, here):
    outcome = coterie("run", here)
    refused(outcome, "cannot read", "directory")
    assert outcome.err.count(str(here)) == 1


def test_an_unknown_kind_of_names_is_refused_with_the_known_ones(coterie):
    refused(coterie("list", "nonsense"), "'nonsense'", "algorithms", "partitions")
    refused(coterie("list", "algorithm"), "did you mean 'algorithms'?")


def test_an_unknown_data_set_to_fetch_is_refused(coterie):
    refused(coterie("data", "get", "cifar"), "'cifar'", "did you mean 'cifar10'?")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_is_not_there_is_refused(coterie, here):
    file = write(here / "good.toml", tiny())
    refused(coterie("run", file, "--device", "cuda"), "CUDA", "--device cpu")
    refused(coterie("run", file, "--device", "tpu"), "'tpu'", "cpu or cuda")


def test_the_unknown_algorithm_of_a_comparison_is_refused(coterie, here):
    file = write(here / "good.toml", tiny())
    refused(coterie("compare", file, "--algorithms", "epidemic,locl"), "did you mean 'local'?")


@pytest.mark.parametrize("names", ["", ",", "local,,dpsgd", "local,local"])
def test_a_bad_list_of_algorithms_is_refused(names, coterie, here):
    file = write(here / "good.toml", tiny())
    refused(coterie("compare", file, "--algorithms", names), "--algorithms", "commas", repr(names))


def test_a_negative_number_of_seeds_is_refused(coterie, here):
    outcome = coterie("compare", write(here / "good.toml", tiny()), "--seeds", "-1")
    assert outcome.code == 2 and "seeds" in outcome.err


def test_a_message_of_the_real_command_is_one_line(here):
    process = begin("run", "absent-" * 20, cwd=here)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2 and not out
    assert err.startswith("error: ") and len(err.splitlines()) == 1
