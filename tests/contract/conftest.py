"""A command to call, and a folder to call it in."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.contract.command import Command
from tests.contract.results import TABLES, carry_out

torch.set_num_threads(1)  # tests run side by side, and threads that wait for a core cost seconds


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def coterie(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """The command, called in an empty folder."""
    return Command(capsys, monkeypatch)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A run of several labels, ratios and seeds, made once."""
    return carry_out(tmp_path_factory.mktemp("runs") / "made", **TABLES)
