import math
from pathlib import Path

import pytest

from coterie.runtimes.journal import Journal

NODE, CLUSTER = {"kind": "node", "round": 1, "x": 0.5}, {"kind": "cluster", "name": "ü"}


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "deep" / "records.jsonl")


def test_records_are_read_by_kind_in_the_order_they_were_added(journal: Journal) -> None:
    journal.append([NODE, CLUSTER])
    journal.append([{**NODE, "round": 2}])
    assert journal.read("node") == [NODE, {**NODE, "round": 2}]
    assert journal.read("cluster") == [CLUSTER]
    assert journal.read("other") == []


def test_a_record_that_only_speaks_of_a_kind_is_none_of_it(journal: Journal) -> None:
    journal.append([{"kind": "node", "note": {"kind": "cluster"}}, CLUSTER])
    assert journal.read("cluster") == [CLUSTER]


def test_a_journal_that_was_never_written_is_empty(journal: Journal) -> None:
    assert journal.size() == 0
    assert journal.sync() == 0
    assert journal.read("node") == []
    journal.cut(10)
    assert not journal.path.exists()


def test_cutting_back_to_a_checkpoint_drops_what_came_after(journal: Journal) -> None:
    journal.append([NODE])
    size = journal.sync()
    journal.append([CLUSTER])
    journal.cut(size)
    assert journal.size() == size
    assert journal.read("cluster") == []
    journal.append([CLUSTER])
    assert journal.read("node") == [NODE]
    assert journal.read("cluster") == [CLUSTER]


def test_cutting_drops_half_a_line_that_a_crash_left(journal: Journal) -> None:
    journal.append([NODE])
    size = journal.sync()
    with journal.path.open("a") as file:
        file.write('{"kind": "no')
    journal.cut(size)
    assert journal.read("node") == [NODE]


def test_cutting_beyond_the_end_changes_nothing(journal: Journal) -> None:
    journal.append([NODE])
    journal.cut(10_000)
    assert journal.read("node") == [NODE]


def test_a_size_is_the_number_of_bytes_on_disk(journal: Journal) -> None:
    journal.append([CLUSTER])
    assert journal.size() == journal.sync() == len(journal.path.read_bytes())


def test_what_is_no_json_is_refused_and_nothing_is_written(journal: Journal) -> None:
    with pytest.raises(ValueError, match="JSON"):
        journal.append([NODE, {"kind": "node", "x": math.nan}])
    assert journal.size() == 0


def test_adding_no_records_adds_nothing(journal: Journal) -> None:
    journal.append([])
    assert journal.size() == 0
