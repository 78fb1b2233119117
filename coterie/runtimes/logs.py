"""What a peer says while it runs: events with facts, one line each."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

log = logging.getLogger("coterie.peer")


def tell(event: str, facts: Mapping[str, Any], level: int = logging.INFO) -> None:
    """Log an event; the facts follow it as key=value, and are the record's `facts`."""
    line = " ".join([event, *(f"{key}={value}" for key, value in facts.items())])
    log.log(level, "%s", line, extra={"event": event, "facts": dict(facts)})


class JsonLines(logging.Formatter):
    """Events as lines of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as one line."""
        line = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", record.getMessage()),
            **getattr(record, "facts", {}),
        }
        return json.dumps(line, default=str)
