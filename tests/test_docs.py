"""What the documentation says is so: its files run, its tables are complete."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from coterie.config import ClusterTable, Config
from coterie.core import Nodes
from coterie.run import resolved
from tests.contract.command import Command

DOCS = Path(__file__).parents[1] / "docs"
OWN = (DOCS / "write-an-algorithm.md").read_text()


def block(text: str, language: str, after: str = "") -> str:
    """The first block of code in a language, after some words."""
    found = re.search(rf"```{language}\n(.*?)```", text[text.index(after) :], re.DOTALL)
    assert found
    return found[1]


@pytest.fixture
def coterie(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Command]:
    monkeypatch.chdir(tmp_path)
    yield Command(capsys, monkeypatch)
    for name in ("mine", "heavy"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("section", "name"), [("## A whole file", "Mine"), ("## With a server", "Heavy")]
)
def test_the_whole_file_of_an_own_algorithm_runs_by_the_commands_below_it(
    coterie, tmp_path, section, name
):
    (tmp_path / f"{name.lower()}.py").write_text(block(OWN, "python", section))
    small = ["--set", "experiment.rounds=1", "--seeds", "1"]
    for line in block(OWN, "sh", section).splitlines():
        _, *words = shlex.split(line)
        outcome = coterie(*words, *small)
        assert outcome.code == 0 and f"{name} 14:2" in outcome.out, outcome


EXAMPLES = {"experiment.name", "data.ratios", "model.head", "algorithm", "peers"}


def flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested tables, by their whole key."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def test_the_page_on_configuration_has_every_key_with_its_default():
    text = (DOCS / "configuration.md").read_text()
    told = [tomllib.loads(found) for found in re.findall(r"```toml\n(.*?)```", text, re.DOTALL)]
    shown = {key: value for table in told for key, value in flat(table)}
    defaults = dict(flat(resolved(Config()).model_dump()))
    clusters = [ClusterTable(**table).model_dump() for table in shown.pop("data.clusters")]
    assert clusters == defaults.pop("data.clusters")
    assert defaults.pop("train.epochs") is None, "it stands beside `steps`"
    assert set(shown) == set(defaults)
    for key in set(defaults) - EXAMPLES:
        close = pytest.approx(defaults[key], abs=1e-4) if key == "evaluate.alpha" else defaults[key]
        assert shown[key] == close, key


def test_the_table_of_what_nodes_offer_is_complete():
    table = block_of_table(OWN, "## What `nodes` offers")
    named = set(re.findall(r"`nodes\.(\w+)", "".join(line.split(" | ")[0] for line in table)))
    fields = set(Nodes.__dataclass_fields__)  # what the runtime puts in
    public = {name for name in vars(Nodes) if not name.startswith("_")} - fields
    assert named == public


def block_of_table(text: str, after: str) -> list[str]:
    """The lines of the first table after some words."""
    lines = text[text.index(after) :].splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("|"))
    table = lines[start:]
    return table[: next((n for n, line in enumerate(table) if not line.startswith("|")), None)]
