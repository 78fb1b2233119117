"""Every command once, as a user would call it."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from coterie import __version__, display
from coterie import config as configuration
from coterie.errors import InputError
from tests.contract.command import begin, refused, summary, tiny, write

LISTED = {
    "algorithms": ["dpsgd", "epidemic", "facade", "idca", "local", "degree = 4", "heads = 2"],
    "datasets": ["digits", "cifar10", "npz", "table", "images", "built in"],
    "models": ["lenet", "mlp", "logistic", "hidden = (200,)"],
    "graphs": ["ring", "fixed-regular", "push", "peers = 4"],
    "shifts": ["rotation", "swap", "degrees = 180"],
    "partitions": ["iid", "dirichlet", "natural", "alpha"],
    "optimizers": ["sgd", "adam", "momentum = 0.0"],
    "objectives": ["classification", "regression", "reconstruction"],
    "rules": ["divergence", "norm", "validation"],
}
OWN = """
import numpy as np
from torch import nn

def build(shape, width=4):
    module = nn.Sequential(nn.Linear(*shape.sample, width), nn.Linear(width, shape.outputs))
    module.head = ("1",)
    return module

def load(rows=80):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 3))
    y = (x[:, 0] > 0).astype(int)
    return x[10:], y[10:], x[:10], y[:10]
"""


def test_run_prints_a_table_and_writes_a_report(coterie, here):
    outcome = coterie("run", write(here / "tiny.toml", tiny()), "--out", "out")
    assert outcome.code == 0 and not outcome.err
    for word in ("epidemic", "4:2", "upright %", "turned %", "fair %", "report: out/report.html"):
        assert word in outcome.out
    assert (here / "out" / "report.html").stat().st_size > 1000


def test_run_without_out_makes_a_new_folder_each_time(coterie, here):
    file = write(here / "tiny.toml", tiny())
    assert coterie("run", file).code == coterie("run", file).code == 0
    assert sorted(path.name for path in (here / "runs").iterdir()) == ["tiny", "tiny-2"]


def test_run_without_a_file_is_the_demo(coterie, here):
    quick = ["experiment.rounds=1", "experiment.seeds=1", "model.name=logistic", "train.steps=1"]
    words = [word for change in quick for word in ("--set", change)]
    outcome = coterie("run", *words, "--out", "out")
    assert outcome.code == 0
    peers = ["local", "dpsgd", "epidemic", "gossip", "random", "dac", "deprl", "dispfl"]
    assert summary(here / "out")["order"] == [*peers, "ifca", "facade", "oracle"]
    assert "oracle* 14:2" in outcome.out and "* (knows the clusters)" in outcome.out


def test_a_change_reaches_the_run(coterie, here):
    file = write(here / "tiny.toml", tiny())
    changes = ["algorithm.epidemic.degree=4", "data.clusters.turned.nodes=3", "experiment.seeds=2"]
    changes += ["data.clusters.0.nodes=5", "train.lr=0.3", "experiment.name=other name"]
    words = [word for change in changes for word in ("--set", change)]
    assert coterie("run", file, *words, "--out", "out").code == 0
    found = summary(here / "out")
    assert found["name"] == "other name"
    assert [(r["scenario"], r["seed"]) for r in found["results"]] == [("5:3", 1), ("5:3", 2)]
    assert "degree = 4" in (here / "out" / "config.toml").read_text()


def test_a_log_says_how_long_it_takes_before_the_first_evaluation(coterie, here, monkeypatch):
    file = write(here / "tiny.toml", tiny(evaluate__every=2))
    monkeypatch.setattr(display, "FIRST", math.inf)
    assert "round 1/2" not in coterie("run", file).out
    monkeypatch.setattr(display, "FIRST", -1.0)
    out = coterie("run", file).out
    assert "epidemic: round 1/2 " in out and " s left epidemic: round 2/2 turned" in out


def test_compare_puts_algorithms_and_seeds_in_one_table(coterie, here):
    file = write(here / "tiny.toml", tiny(algorithm=[{"name": "epidemic", "degree": 2}]))
    words = ["compare", file, "--algorithms", "local, epidemic,dpsgd", "--seeds", "2"]
    outcome = coterie(*words, "--out", "out")
    assert outcome.code == 0
    found = summary(here / "out")
    assert found["order"] == ["local", "epidemic", "dpsgd"]
    assert len(found["results"]) == 6
    assert "2 seeds" in outcome.out
    assert "degree = 2" in (here / "out" / "config.toml").read_text(), "the file's options are kept"


def test_compare_picks_algorithms_by_their_label(coterie, here):
    algorithms = [{"name": "epidemic", "degree": d, "label": f"d{d}"} for d in (2, 3, 4)]
    file = write(here / "tiny.toml", tiny(algorithm=algorithms))
    assert coterie("compare", file, "--algorithms", "d2,d4", "--out", "out").code == 0
    assert summary(here / "out")["order"] == ["d2", "d4"]


def test_compare_changes_what_it_picked_also_where_the_file_has_it_not(coterie, here):
    file = write(here / "tiny.toml", tiny(algorithm=[{"name": "local", "label": "lr0.1"}]))
    changes = ["algorithm.epidemic.degree=3", "algorithm.lr0.1.train.lr=0.1"]
    words = [word for change in changes for word in ("--set", change)]
    words += ["--algorithms", "lr0.1,epidemic", "--out", "out"]
    assert coterie("compare", file, *words).code == 0
    local, epidemic = configuration.load(here / "out" / "config.toml").algorithm
    assert (local.train, epidemic.options["degree"]) == ({"lr": 0.1}, 3)


def test_report_reads_only_the_folder(coterie, here):
    file = write(here / "tiny.toml", tiny())
    assert coterie("run", file, "--out", "a").code == coterie("run", file, "--out", "b").code == 0
    (here / "a" / "report.html").unlink()
    file.unlink()
    assert coterie("report", "a").code == 0
    assert (here / "a" / "report.html").exists()
    assert {path.suffix for path in (here / "a" / "tables").iterdir()} == {".md", ".csv", ".tex"}
    assert coterie("report", "a", "b", "--out", "both").code == 0
    assert "epidemic [b]" in (here / "both" / "report.html").read_text()


@pytest.mark.parametrize("kind", LISTED)
def test_list_names_what_a_configuration_can_say(kind, coterie):
    outcome = coterie("list", kind)
    assert outcome.code == 0
    for word in LISTED[kind]:
        assert word in outcome.out


def test_list_tells_of_one_name(coterie):
    outcome = coterie("list", "algorithms", "facade")
    assert outcome.code == 0 and "warmup = 10" in outcome.out and "epidemic" not in outcome.out
    refused(coterie("list", "algorithms", "facada"), "did you mean 'facade'?")


def test_the_version_is_told(coterie):
    assert coterie("--version").out.strip() == f"coterie {__version__}"


def test_list_without_a_kind_names_everything(coterie):
    outcome = coterie("list")
    assert outcome.code == 0 and all(kind in outcome.out for kind in LISTED)


def test_a_misspelt_name_is_answered_with_a_command_that_lists_the_right_ones():
    from coterie.cli import _registries

    for kind, registry in _registries().items():
        with pytest.raises(InputError, match=rf"\(coterie list {kind}\)"):
            registry.build("nothing-like-it")


def test_every_listed_name_and_option_has_a_line_of_text():
    from coterie.cli import _registries

    for registry in _registries().values():
        for entry in registry.entries.values():
            assert entry.doc, entry.name
            assert not [o.name for o in entry.options() if not o.doc and o.name != "changes_labels"]


def test_data_list_says_what_is_here_and_how_to_get_the_rest(coterie, here, monkeypatch):
    monkeypatch.setenv("COTERIE_DATA", str(here / "none"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(here / "none"))
    outcome = coterie("data", "list")
    assert outcome.code == 0
    assert "digits yes built in" in outcome.out
    assert "cifar10 no" in outcome.out and "coterie data get cifar10" in outcome.out


def test_what_most_people_need_comes_first_in_the_help(coterie):
    said = coterie("--help").out
    places = [said.index(f"│ {name} ") for name in ("run", "reproduce", "list", "peer", "launch")]
    assert places == sorted(places)


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["compare", "--help"]], ids=str)
def test_help_is_help(words, coterie):
    outcome = coterie(*words)
    assert outcome.code == 0 and "Usage" in outcome.out


@pytest.fixture
def own(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (here / "own.py").write_text(OWN)
    monkeypatch.delitem(sys.modules, "own", raising=False)
    return here


def test_a_model_and_data_of_ones_own_are_found_in_the_current_folder(coterie, own):
    table = tiny(
        data={"source": "own:load", "clusters": [{"name": "all", "nodes": 4}]},
        model={"name": "own:build", "width": 3},
        algorithm=[{"name": "facade", "degree": 2, "warmup": 0}],
    )
    assert coterie("run", write(own / "own.toml", table), "--out", "out").code == 0
    assert summary(own / "out")["results"][0]["nodes"] == 4


def test_the_installed_command_finds_them_too(own):
    source = {"name": "own:load", "rows": 60}
    table = tiny(data={"source": source, "clusters": [{"name": "all", "nodes": 4}]})
    write(own / "own.toml", {**table, "model": {"name": "own:build"}})
    process = begin("run", "own.toml", "--out", "out", cwd=own)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    assert not err


@pytest.mark.parametrize(
    "algorithm", [{"name": "local"}, {"name": "epidemic", "degree": 0}], ids=str
)
def test_a_lone_node_trains_alone(algorithm, coterie, here):
    table = tiny(data__clusters=[{"name": "one", "nodes": 1}], algorithm=[algorithm])
    assert coterie("run", write(here / "one.toml", table), "--out", "out").code == 0
    (result,) = summary(here / "out")["results"]
    assert result["nodes"] == 1 and result["bytes_per_node"] == 0


@pytest.mark.parametrize("name", ["facade", "idca", "dpsgd"])
def test_a_lone_node_can_use_any_algorithm(name, coterie, here):
    options = {"graph": "ring"} if name == "dpsgd" else {"degree": 0, "warmup": 0}
    table = tiny(
        data__clusters=[{"name": "one", "nodes": 1}], algorithm=[{"name": name, **options}]
    )
    assert coterie("run", write(here / "one.toml", table), "--out", "out").code == 0


def test_a_cluster_may_be_empty_in_one_ratio(coterie, here):
    table = tiny(data__ratios=["4:2", "6:0", "2:2"])
    assert coterie("run", write(here / "r.toml", table), "--out", "out").code == 0
    accuracy = {r["scenario"]: set(r["accuracy"]) for r in summary(here / "out")["results"]}
    assert accuracy["6:0"] == {"upright"} and accuracy["4:2"] == {"upright", "turned"}


def test_a_run_may_leave_the_models_out(coterie, here):
    table = tiny(runtime={"models": False})
    assert coterie("run", write(here / "t.toml", table), "--out", "out").code == 0
    assert not (here / "out" / "models").exists()


def test_runs_that_stopped_at_their_target_are_compared_by_rounds(coterie, here):
    both = [{"name": "epidemic", "degree": 2}, {"name": "local"}]
    table = tiny(experiment__rounds=60, algorithm=both, evaluate__target=60.0, evaluate__stop=True)
    outcome = coterie("run", write(here / "race.toml", table), "--out", "race")
    rounds = {r["rounds"] for r in summary(here / "race")["results"]}
    assert outcome.code == 0 and "all % rounds" in outcome.out
    assert "rounds to target" in (here / "race" / "tables" / "results.md").read_text()
    page = (here / "race" / "report.html").read_text()
    assert len(rounds) == 2 and "compare their rounds, not their accuracies" in page


def test_the_written_configuration_has_every_option(coterie, here):
    file = write(here / "tiny.toml", tiny(algorithm=[{"name": "epidemic", "degree": 2}]))
    assert coterie("run", file, "--out", "out").code == 0
    text = (here / "out" / "config.toml").read_text()
    assert 'variant = "oracle"' in text and "all_reduce = false" in text


def test_epochs_on_the_command_line_replace_the_files_steps(coterie, here):
    file = write(here / "tiny.toml", tiny(train={"steps": 2, "batch": 4}))
    assert coterie("run", file, "--set", "train.epochs=1", "--out", "out").code == 0
    text = (here / "out" / "config.toml").read_text()
    assert "epochs = 1" in text and "steps" not in text


def test_an_algorithm_may_have_a_model_of_its_own(coterie, here):
    both = [{"name": "local"}, {"name": "local", "label": "wide", "model": {"name": "mlp"}}]
    file = write(here / "tiny.toml", tiny(algorithm=both, model={"name": "logistic"}))
    assert (
        coterie("run", file, "--set", "algorithm.wide.model.hidden=[7]", "--out", "out").code == 0
    )
    models = {label: shapes_of(here / "out", label) for label in ("local", "wide")}
    assert models["local"] != models["wide"] and (7, 64) in models["wide"]
    assert "hidden" in (here / "out" / "config.toml").read_text()


def shapes_of(folder: Path, label: str) -> list[tuple[int, ...]]:
    """The shapes of a personal model."""
    (first, *_) = sorted((folder / "models" / label).rglob("*.safetensors"))
    return [tuple(tensor.shape) for tensor in load_file(first).values()]


def test_a_model_for_one_algorithm_is_told_under_another(coterie, here):
    model = {"name": "fedcg", "base": "small-cnn", "layers": ["conv2"]}
    file = write(here / "tiny.toml", tiny(model=model, algorithm=[{"name": "fedavg"}]))
    with pytest.warns(UserWarning, match="fedavg trains the model 'fedcg', parts of which only"):
        assert coterie("run", file, "--out", "out").code == 0


def test_an_algorithm_that_is_made_for_another_model_is_told(coterie, here):
    file = write(here / "tiny.toml", tiny(algorithm=[{"name": "fedcg"}]))
    with pytest.warns(UserWarning, match="fedcg is made for the model 'fedcg', and does less with"):
        assert coterie("run", file, "--out", "out").code == 0


@pytest.mark.parametrize(
    "chooser",
    [
        {"name": "facade", "degree": 2, "warmup": 1, "explore": 1},
        {"name": "ifca", "pretrain": 1, "scattered": 1},
    ],
)
def test_a_run_that_ends_before_anybody_chooses_is_told_so(coterie, here, chooser):
    file = write(here / "tiny.toml", tiny(algorithm=[chooser]))
    with pytest.warns(UserWarning, match="nodes first choose in round 3, and there are 2"):
        assert coterie("run", file, "--out", "out").code == 0
    early = coterie("run", file, "--set", "experiment.rounds=9", "--set", "evaluate.restart=2")
    refused(early, "evaluate.restart: expected a round after", "first choice, 3 or later, got 2")


def test_the_kernels_are_left_alone_without_a_gpu(coterie, here):
    file = write(here / "tiny.toml", tiny())
    with pytest.warns(UserWarning, match="the fast kernels are not used: they need a GPU"):
        outcome = coterie("run", file, "--set", "runtime.path=fused", "--out", "out")
    assert outcome.code == 0


def test_runs_of_different_lengths_are_not_ranked(coterie, here):
    file = write(here / "tiny.toml", tiny())
    for rounds in (2, 3):
        words = ("--set", f"experiment.rounds={rounds}", "--out", f"out{rounds}")
        assert coterie("run", file, *words).code == 0
    assert coterie("report", "out2", "out3", "--out", "both").code == 0
    assert "they cannot be compared" in (here / "both" / "report.html").read_text()
