"""A command to call, and a folder to call it in."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.contract.command import Command

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
