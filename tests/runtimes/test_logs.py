import json
import logging

import pytest

from coterie.runtimes.logs import JsonLines, tell


def test_an_event_is_a_line_of_facts(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "coterie.peer"):
        tell("begins", {"peer": 3, "round": 7})
    (record,) = caplog.records
    assert record.getMessage() == "begins peer=3 round=7"
    line = json.loads(JsonLines().format(record))
    assert line == {
        "time": line["time"],
        "level": "info",
        "event": "begins",
        "peer": 3,
        "round": 7,
    }


def test_any_record_is_one_line_of_json() -> None:
    record = logging.LogRecord("other", logging.ERROR, "", 0, "two\nlines %s", ("x",), None)
    text = JsonLines().format(record)
    assert "\n" not in text
    assert json.loads(text)["event"] == "two\nlines x"
