"""What the documentation says is so: its files run, its tables are complete."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coterie.core import Nodes
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
    sys.modules.pop("mine", None)


def test_the_whole_file_of_an_own_algorithm_runs_by_the_commands_below_it(coterie, tmp_path):
    (tmp_path / "mine.py").write_text(block(OWN, "python", "## A whole file"))
    small = ["--set", "experiment.rounds=1", "--seeds", "1"]
    for line in block(OWN, "sh", "## A whole file").splitlines():
        _, *words = shlex.split(line)
        outcome = coterie(*words, *small)
        assert outcome.code == 0 and "mine:Mine 14:2" in outcome.out, outcome


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
