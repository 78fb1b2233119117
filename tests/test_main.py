"""The command as a process: how it ends."""

from __future__ import annotations

import contextlib
import os
from typing import NoReturn

import pytest

from coterie import __main__ as process
from coterie import cli


def ending(monkeypatch: pytest.MonkeyPatch, end: BaseException | None) -> int | None:
    """The code with which the process ends at once when its command ends so; None: it does not."""
    codes: list[int] = []

    def leave(code: int) -> NoReturn:
        codes.append(code)
        raise RuntimeError("the process has ended")

    def command() -> None:
        if end is not None:
            raise end

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(cli, "main", command)
    with contextlib.suppress(RuntimeError, SystemExit):
        process.main()
    return codes[0] if codes else None


@pytest.mark.parametrize("code", [1, 2, 130, 143])
def test_who_failed_or_was_stopped_waits_for_no_thread(code, monkeypatch):
    assert ending(monkeypatch, SystemExit(code)) == code


@pytest.mark.parametrize("end", [None, SystemExit(), SystemExit(0)], ids=repr)
def test_who_is_done_ends_as_every_process_does(end, monkeypatch):
    assert ending(monkeypatch, end) is None


def test_a_warning_of_ours_is_a_line_and_others_are_as_ever():
    words = "parts of it stay", UserWarning
    assert process._in_a_line(*words, cli.__file__, 7) == "warning: parts of it stay\n"
    assert "UserWarning: parts of it stay" in process._in_a_line(*words, pytest.__file__, 7)
    assert "DeprecationWarning" in process._in_a_line("old", DeprecationWarning, cli.__file__, 7)


def test_ctrl_c_before_the_command_began_is_no_defect(monkeypatch):
    assert ending(monkeypatch, KeyboardInterrupt()) == 130
