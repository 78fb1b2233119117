"""The file of an experiment, and the experiments that come with the package."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from coterie.errors import InputError
from coterie.reproduce import library
from coterie.reproduce.experiment import Scale, merged, read
from coterie.run import check_names, resolved
from tests.contract.command import write
from tests.reproduce.conftest import tiny

ROOT = Path(__file__).parents[2]
NAMES = library.names()


def broken(change: Any) -> dict[str, Any]:
    """The tiny experiment after a change."""
    table = tiny()
    change(table)
    return table


def test_parts_change_what_all_share(tmp_path):
    made = read(write(tmp_path / "tiny.toml", tiny()), "tiny")
    el, facade = (part.config for part in made.parts)
    assert (el.train.lr, facade.train.lr) == (0.05, 0.01)
    assert el.data == facade.data and el.train.steps == facade.train.steps == 2
    assert not el.runtime.models, "a reproduction keeps no models"
    assert made.labels() == ["EL", "facade"]


def test_tables_are_merged_and_all_else_is_replaced():
    whole = {"train": {"steps": 5, "lr": 1}, "seeds": [1, 2]}
    changes = {"train": {"epochs": 1}, "seeds": [3]}
    assert merged(whole, changes) == {"train": {"lr": 1, "epochs": 1}, "seeds": [3]}


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda t: t.pop("title"), "title: the key is missing"),
        (lambda t: t.update(trian={}), "unknown key 'trian'; did you mean 'train'?"),
        (lambda t: t["part"][0].update(modle={}), "unknown key 'modle'; did you mean 'model'?"),
        (lambda t: t["train"].update(lrr=1), "part 'el': unknown key 'train.lrr'"),
        (lambda t: t["part"][1].update(name="el"), "two parts are named 'el'"),
        (lambda t: t["part"][1].update(name="a/b"), "part.1.name"),
        (lambda t: t["part"][1].update(algorithm=t["part"][0]["algorithm"]), "EL on 4:2"),
        (lambda t: t.update(part=[]), "needs a [[part]]"),
        (lambda t: t["figure"][0].update(kind="pie"), "figure.0.kind"),
        (lambda t: t["figure"][0].update(labels=["El"]), "unknown label at figure.0: 'El'"),
        (lambda t: t["figure"][0].update(scenarios=["4:3"]), "unknown scenario at figure.0"),
        (lambda t: t["paper"]["values"].update(Facade={}), "did you mean 'facade'?"),
        (lambda t: t["paper"]["values"]["EL"].update({"4:2": [1.0]}), "4 keys but 1 values"),
        (lambda t: t["paper"]["keys"].__setitem__(0, "accuracy:uprigth"), "'accuracy:upright'?"),
        (lambda t: t["paper"].update(also=["worst_tent"]), "paper.also: 'worst_tent'; did you"),
        (lambda t: t["paper"].update(tolerance={"accuracy": 1.0}), "unknown key at paper.tol"),
        (lambda t: t["paper"].update(rows={"nobody": "EL"}), "unknown label at paper.rows"),
        (lambda t: t.update(reason=[{"label": "E", "text": "?"}]), "unknown label at reason.0"),
        (lambda t: t.update(uses=["tinny/el"]), "did you mean 'tiny'?"),
        (lambda t: t.update(uses=["tiny/e"]), "unknown part of 'tiny' in `uses`: 'e'"),
        (lambda t: t.update(uses=["tiny/el"]), "two parts are named 'el'"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(change, message, tmp_path):
    path = write(tmp_path / "tiny.toml", broken(change))
    with pytest.raises(InputError) as error:
        read(path, "tiny")
    assert message in str(error.value) and str(error.value).startswith(str(path))


def test_a_file_that_is_no_toml_is_named(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text("title = ")
    with pytest.raises(InputError, match="it is not valid TOML"):
        read(path, "bad")


def test_a_fraction_keeps_the_number_of_evaluations(tmp_path):
    config = read(write(tmp_path / "tiny.toml", tiny()), "tiny").parts[0].config
    table = config.model_dump(exclude_none=True)
    long = type(config)(
        **table | {"experiment": {"rounds": 1200, "seeds": [7, 8]}, "evaluate": {"every": 80}}
    )
    small = Scale(0.1, 3).apply(long)
    assert (small.experiment.rounds, small.evaluate.every) == (120, 8)
    assert small.experiment.seeds == [7, 8, 1]
    assert Scale().apply(long) == long


@pytest.mark.parametrize("name", NAMES)
def test_every_committed_experiment_names_what_exists(name):
    experiment = library.load(name)
    for part in experiment.parts:
        check_names(part.config)
        resolved(part.config)


@pytest.mark.parametrize("name", NAMES)
def test_every_committed_experiment_has_a_sane_size(name):
    for part in library.load(name).parts:
        config = part.config
        assert 3 <= part.rows() <= 4096, part.name
        assert 10 <= config.experiment.rounds <= 5000, part.name
        assert 1 <= len(config.experiment.seeds) <= 32, part.name
        assert config.experiment.rounds % config.evaluate.every == 0, part.name
        for table in resolved(config).algorithm:
            size = min(sum(counts) for counts in config.data.scenarios().values())
            assert table.options.get("degree", 0) < size


RATES = {
    "lecture-fedavg-rates": "lecture-fedavg-mnist",
    "lecture-dpsgd-rates": "lecture-dpsgd-graphs",
    "lecture-dirichlet-rates": "lecture-dirichlet",
    "lecture-fair-rates": "lecture-fair-table",
}


@pytest.mark.parametrize("rates, table", RATES.items())
def test_rates_are_chosen_without_the_tests_and_the_seeds_of_the_table(rates, table):
    tried, run = ([part.config for part in library.load(n).parts] for n in (rates, table))
    assert {part.data.source["name"] for part in tried} == {"held-out"}
    assert {part.data.source["of"] for part in tried} == {part.data.source for part in run}
    seeds = [{seed for part in parts for seed in part.experiment.seeds} for parts in (tried, run)]
    assert not seeds[0] & seeds[1]
    algorithms = [{t.name for part in parts for t in part.algorithm} for parts in (tried, run)]
    assert algorithms[0] == algorithms[1]


@pytest.mark.parametrize("name", NAMES)
def test_papers_percents_and_fractions_are_what_their_keys_say(name):
    paper = library.load(name).file.paper
    for scenarios in paper.values.values() if paper else ():
        for values in scenarios.values():
            for key, value in zip(paper.keys, values, strict=True):
                mean = value[0] if isinstance(value, tuple) else value
                if "accuracy" in key:
                    assert 1 < mean <= 100, (name, key, mean)
                elif key.startswith(("demographic", "equalized")):
                    assert 0 <= mean < 1, (name, key, mean)


def test_experiments_are_installed_with_the_package():
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = setup["tool"]["setuptools"]["data-files"]
    papers = {path.parent.name for path in (ROOT / "experiments").glob("*/*.toml")}
    assert listed == {
        f"share/coterie/experiments/{paper}": [f"experiments/{paper}/*.toml"] for paper in papers
    }


def test_where_no_experiments_are_installed_the_message_says_where_they_should_be(monkeypatch):
    monkeypatch.setattr(library, "places", lambda: [Path("/nowhere/experiments")])
    with pytest.raises(InputError, match="looked in /nowhere/experiments"):
        library.load("facade-table-4.2")


def test_a_scaled_down_experiment_says_so():
    assert Scale().words() == ""
    assert Scale(0.02, 1).words().startswith("Scaled down (0.02 of the rounds, 1 seed)")
    assert Scale(seeds=2).words().startswith("Scaled down (2 seeds)")
