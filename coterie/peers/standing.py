"""How a peer stands: as a file in its run folder, as Prometheus metrics, as a row of a table."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = "status.json"
STATES = ("starting", "waiting", "running", "ending", "done", "stopped", "failed", "unreachable")


@dataclass(frozen=True)
class Standing:
    """One peer at one moment."""

    id: int
    name: str = ""  # of the run
    state: str = "starting"  # one of STATES
    round: int = 0  # rounds done
    rounds: int = 0  # of the run
    accuracy: float | None = None  # percent, on its own test samples
    loss: float | None = None
    bytes: int = 0  # sent, as the simulation counts
    control: int = 0  # sent to keep step, in bytes
    received: int = 0  # bytes
    alive: int = 0  # peers that were heard lately, this one included
    peers: int = 0
    furthest: int = 0  # the latest round that any peer has announced
    late: int = 0  # frames
    rejected: int = 0  # frames
    time: float = 0.0  # seconds since 1970, when this was so

    @property
    def lag(self) -> int:
        """Rounds behind the furthest peer."""
        return max(self.furthest - self.round, 0)


GAUGE, COUNTER = "gauge", "counter"
METRICS = {  # field -> name, kind, help
    "round": ("coterie_round", GAUGE, "Rounds done."),
    "rounds": ("coterie_rounds", GAUGE, "Rounds of the run."),
    "accuracy": ("coterie_accuracy_percent", GAUGE, "Accuracy on the peer's own test samples."),
    "loss": ("coterie_loss", GAUGE, "Loss on the peer's own test samples."),
    "bytes": ("coterie_sent_bytes_total", COUNTER, "Bytes sent, as the simulation counts them."),
    "control": ("coterie_control_bytes_total", COUNTER, "Bytes sent to keep step."),
    "received": ("coterie_received_bytes_total", COUNTER, "Bytes received."),
    "alive": ("coterie_peers_alive", GAUGE, "Peers heard lately, this one included."),
    "peers": ("coterie_peers", GAUGE, "Peers of the run."),
    "furthest": ("coterie_furthest_round", GAUGE, "The latest round any peer has announced."),
    "lag": ("coterie_lag_rounds", GAUGE, "Rounds behind the furthest peer."),
    "late": ("coterie_late_frames_total", COUNTER, "Frames that came after their superstep."),
    "rejected": ("coterie_rejected_frames_total", COUNTER, "Frames that were no good."),
    "time": ("coterie_updated_seconds", GAUGE, "When these numbers were taken."),
}
_STATE = "coterie_state"
_FIELDS = {field.name: field for field in dataclasses.fields(Standing)}
_LINE = re.compile(r"(coterie_[a-z_]+)\{([^}]*)\} (\S+)")
_LABEL = re.compile(r'([a-z]+)="((?:[^"\\]|\\.)*)"')


def to_metrics(standing: Standing) -> str:
    """The standing in Prometheus's text format."""
    labels = f'id="{standing.id}",run="{_escaped(standing.name)}"'
    lines = []
    for field, (name, kind, text) in METRICS.items():
        value = getattr(standing, field)
        if value is not None:
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
            lines.append(f"{name}{{{labels}}} {value}")
    lines += [f"# HELP {_STATE} What the peer does; 1 for the state it is in."]
    lines += [f"# TYPE {_STATE} {GAUGE}", f'{_STATE}{{{labels},state="{standing.state}"}} 1']
    return "\n".join(lines) + "\n"


def from_metrics(text: str) -> Standing:
    """The standing in a peer's metrics."""
    values: dict[str, Any] = {}
    known = {name: field for field, (name, _, _) in METRICS.items() if field != "lag"}
    for name, labels, value in _LINE.findall(text):
        said = {key: _plain(word) for key, word in _LABEL.findall(labels)}
        values |= {"id": int(said["id"]), "name": said.get("run", "")}
        if name == _STATE:
            values["state"] = said["state"]
        elif name in known:
            kind = float if "float" in str(_FIELDS[known[name]].type) else int
            values[known[name]] = kind(value)
    return Standing(**values)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _plain(text: str) -> str:
    return text.replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")


def write(standing: Standing, folder: Path) -> None:
    """Replace the file in a peer's run folder; readers see the old or the new one, whole."""
    path = folder / FILE
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(dataclasses.asdict(standing), indent=1))
    temporary.replace(path)


def read(folder: Path) -> Standing | None:
    """What a peer last wrote into its run folder; None: nothing that can be read."""
    try:
        found = json.loads((folder / FILE).read_text())
        return Standing(**{key: found[key] for key in _FIELDS if key in found})
    except (OSError, ValueError, TypeError):
        return None
