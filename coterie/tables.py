"""The tables of a configuration that say how a run is carried out, and by whom."""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from coterie.links.quorum import MAJORITY, unsafe


class Section(BaseModel):
    """A table of the configuration in which unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class BrokerTable(Section):
    """Where the MQTT broker of a run is, and how to be let in."""

    url: str = ""  # mqtts://user@host:port, or mqtt:// on this machine
    password_file: str = ""  # one line; without it the environment says it
    ca: str = ""  # PEM, of who signed the broker's certificate; empty: the system's
    certificate: str = ""  # PEM, where the broker asks its clients for one
    key: str = ""  # PEM, of that certificate
    version: Literal["5", "3.1.1"] = "5"  # of MQTT; the embedded broker speaks 3.1.1


class Runtime(Section):
    """How the run is carried out."""

    engine: Literal["simulate", "peer"] = "simulate"
    link: Literal["direct", "memory", "grpc", "mqtt"] = "direct"  # memory: one block a node, frames
    path: Literal["auto", "loop", "stacked", "fused"] = "auto"  # how rows train
    models: bool = True  # write every node's personal model
    checkpoint_every: int = Field(default=0, ge=0)  # rounds; 0: at every evaluation
    # what only real peers need
    deadline: float = Field(default=60.0, gt=0)  # seconds a superstep waits for others
    patience: float = Field(default=600.0, ge=0)  # seconds to wait at the start for all peers
    window: int = Field(default=2, ge=1)  # rounds that a peer may be ahead of the slowest
    threshold: float = MAJORITY  # share of its members that a secure sum needs: a majority; 1: all
    largest: int = Field(default=0, ge=0)  # MiB of a message; 0: 16 times what a node holds
    keys: str = ""  # folder of this peer's key and certificate
    listen: str = ""  # host:port, where it differs from the address in the list
    metrics: str = ""  # host:port of /metrics; a port alone: on this machine; empty: none
    store: str = ""  # URL of the folder for large frames (mqtt)
    broker: BrokerTable = BrokerTable()  # (mqtt)

    @field_validator("metrics", mode="before")
    @classmethod
    def _port(cls, value: object) -> object:
        return str(value) if type(value) is int else value

    @field_validator("threshold")
    @classmethod
    def _safe(cls, value: float) -> float:
        if not MAJORITY <= value <= 1:
            raise ValueError(unsafe(value))
        return value


class Tracking(Section):
    """Who else is told what a run gave."""

    mlflow: str = ""  # URI of an MLflow store; sqlite: mlflow.db in the current folder; empty: none
    experiment: str = ""  # its name there; empty: that of the run

    @field_validator("mlflow")
    @classmethod
    def _no_secret(cls, value: str) -> str:
        if urlsplit(value).password:
            raise ValueError(
                "a run folder keeps this URI, so the password must not be in it; give it in the "
                "environment: PGPASSWORD for PostgreSQL, MLFLOW_TRACKING_PASSWORD for a server"
            )
        return value


class PeerTable(Section):
    """One peer of a real run, as all peers know it."""

    id: int = Field(ge=-1)  # from 0; -1: the server
    address: str = ""  # host:port (grpc)
    certificate: str = ""  # file, relative to the configuration's folder
    fingerprint: str = ""  # sha256 of the certificate
    metrics: str = ""  # host:port, for coterie status
    cluster: str = "all"  # its true cluster where samples are its own: for metrics alone

    @model_validator(mode="after")
    def _proven(self) -> PeerTable:
        if self.certificate and not self.fingerprint:
            raise ValueError(
                f"peer {self.id} has a certificate but no fingerprint; coterie keys new prints it"
            )
        return self


def check_ids(peers: list[PeerTable]) -> list[PeerTable]:
    """The list itself, where no two peers have one id."""
    ids = [peer.id for peer in peers]
    for peer in ids:
        if ids.count(peer) > 1:
            raise ValueError(f"two peers have the id {peer}")
    return peers


OF_PEERS = {  # what only real peers need, left out of a written configuration unless it was set
    "data": ("own", "classes", "shape"),
    "runtime": (
        *("deadline", "patience", "window", "threshold", "largest", "keys"),
        *("listen", "metrics", "store", "broker"),
    ),
}


def without_peers(table: dict[str, Any], whole: type[BaseModel]) -> dict[str, Any]:
    """A configuration's table without what it does not say about real peers and trackers."""
    plain = whole().model_dump(exclude_none=True)
    absent = {key for key in ("peers", "tracking") if table[key] == plain[key]}
    shown = {key: value for key, value in table.items() if key not in absent}
    for section, keys in OF_PEERS.items():
        left_out = {key for key in keys if table[section].get(key) == plain[section].get(key)}
        shown[section] = {k: v for k, v in table[section].items() if k not in left_out}
    return shown
