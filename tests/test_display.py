"""What a run shows: a log that is never silent for long, and a table in which no number is cut."""

from __future__ import annotations

from typing import Any

import pytest

from coterie import display

LABELS = ("epidemic", "facade")


def summary(*clusters: str, labels: tuple[str, ...] = LABELS, scenarios: int = 1) -> dict[str, Any]:
    """The results of two seeds, with what the table shows."""
    number = {"mean": 23.456, "std": 1.23, "ci95": 1.0}
    keys = [f"accuracy:{name}" for name in clusters] + ["accuracy_all", "fair_accuracy"]
    values = {key: dict(number) for key in keys} | {
        "equalized_odds": {"mean": 0.297},
        "settled": {"mean": 0.5},
        "bytes_per_node": {"mean": 16_800.0},
    }
    return {
        "results": [
            {"label": label, "seed": s, "oracle": False, "accuracy": {"a": 1}, "settled": True}
            for label in labels
            for s in (1, 2)
        ],
        "clusters": list(clusters),
        "order": list(labels),
        "aggregate": {label: {f"{s}:3:3": values for s in range(scenarios)} for label in labels},
    }


@pytest.fixture
def printed(capsys, monkeypatch):
    """Prints the results in so many columns; the lines that a reader sees."""

    def lines(width: int, made: dict[str, Any]) -> list[str]:
        monkeypatch.setattr(display.console, "_width", width)  # COLUMNS is read once, at import
        display.print_results(made)
        return [line.rstrip() for line in capsys.readouterr().out.splitlines()]

    return lines


def test_two_clusters_fit_eighty_columns_whole(printed):
    lines = printed(80, summary("majority", "minority"))
    assert "odds" in lines[1] and "sent" in lines[1] and "0.297" in lines[2]
    assert not any("no room" in line for line in lines)


@pytest.mark.parametrize("width", [80, 60, 40, 20])
def test_with_three_clusters_no_number_is_cut_at_any_width(width, printed):
    made = summary("upright", "lying on a side", "upsidedown")
    lines = printed(width, made)
    assert not any("…" in line for line in lines)
    assert all("23.5±1.2" in line for line in lines if line.startswith(LABELS))
    assert width < 60 or max(map(len, lines[1:4])) <= width


def test_what_there_is_no_room_for_is_named_the_least_important_first(printed):
    made = summary("upright", "left", "right", "upsidedown")
    lines = printed(80, made)
    assert lines[-1] == "no room here for: odds, sent; the report has all columns"
    assert all(name in lines[1] for name in (*made["clusters"], "all %", "fair %"))


def test_the_largest_and_the_smallest_cluster_stay_when_others_have_to_go(printed):
    made = summary(*(f"cluster-{number}" for number in range(9)))
    lines = printed(80, made)
    assert "cluster-0 %" in lines[1] and "cluster-8 %" in lines[1] and "all %" in lines[1]
    assert "cluster-7 %" in lines[-1]


def test_scenarios_are_told_apart_in_the_narrowest_table(printed):
    lines = printed(30, summary("upright", "left", "upsidedown", scenarios=2))
    assert "nodes" in lines[1] and "1:3:3" in lines[3]


def test_a_label_that_is_wider_than_the_terminal_is_printed_whole(printed):
    label = "x" * 100
    lines = printed(80, summary("majority", "minority", labels=(label,)))
    assert lines[2].startswith(label) and "23.5±1.2" in lines[2]


def test_a_log_hears_how_long_it_takes_soon_and_then_every_minute(monkeypatch, capsys):
    clock = 0.0
    monkeypatch.setattr(display.time, "monotonic", lambda: clock)
    shown = display.Display()
    shown._part("facade", 0, 100)
    for done in range(1, 51):
        clock += 4
        shown._round(done)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "facade: round 3/100  388 s left"
    assert [line.split()[2] for line in lines] == ["3/100", "19/100", "35/100"]
