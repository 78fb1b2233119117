"""One real run out of a configuration: one algorithm, one seed, one population."""

from __future__ import annotations

from typing import Any

from coterie import config as configuration
from coterie.config import Config
from coterie.errors import InputError, unknown
from coterie.tables import PeerTable

SERVER = -1  # the id of a federated run's server
REFUSED = {  # of [evaluate]: why there is none of it here
    "unseen_clients": "real peers all take part",
    "everywhere": "real peers do not have the test samples of others",
    "stop": "real peers do not know the accuracy of all",
    "by_tests": "real peers pick by their train samples",
}


def choose(config: Config, algorithm: str = "", seed: int | None = None) -> Config:
    """The configuration of one real run; without a seed it is the first of the file."""
    for name, why in REFUSED.items():
        if value := getattr(config.evaluate, name):
            raise InputError(
                f"evaluate.{name}: {why}, got {str(value).lower()}; leave it out, or use the "
                "simulation"
            )
    table = config.model_dump(exclude_none=True)
    table["algorithm"] = [_algorithm(config, algorithm)]
    table["experiment"]["seeds"] = [config.experiment.seeds[0] if seed is None else seed]
    table["runtime"] |= {"engine": "peer", "link": _link(config)}
    if config.data.own:
        table["data"] |= {"clusters": _clusters(config.peers), "ratios": []}
    elif len(config.data.scenarios()) > 1:
        raise InputError(
            f"real peers are one population; data.ratios has {', '.join(config.data.ratios)}: "
            f"choose one with --set 'data.ratios=[\"{config.data.ratios[0]}\"]'"
        )
    return configuration.parse(table)


def _algorithm(config: Config, name: str) -> dict[str, Any]:
    labels = [config.label(table) for table in config.algorithm]
    if not name and len(labels) > 1:
        raise InputError(
            f"real peers run one algorithm, and the configuration has {', '.join(labels)}; "
            f"choose one with --algorithm {labels[0]}"
        )
    for table in config.algorithm:
        if name in ("", config.label(table), table.name):
            return table.model_dump(exclude_none=True)
    raise unknown("algorithm", name, labels, "of this configuration")


def _link(config: Config) -> str:
    link = config.runtime.link
    if link == "memory":
        raise InputError(
            "runtime.link: 'memory' stays within one process; real peers use 'grpc' or 'mqtt'"
        )
    return "grpc" if link == "direct" else link


def _clusters(peers: list[PeerTable]) -> list[dict[str, Any]]:
    """The clusters of peers with samples of their own, as the list of peers names them."""
    names = [peer.cluster for peer in peers if peer.id != SERVER]
    if not names:
        raise no_peers()
    return [{"name": name, "nodes": names.count(name)} for name in dict.fromkeys(names)]


def no_peers() -> InputError:
    """What to say where the list of peers is empty."""
    return InputError(
        "the configuration has no [[peers]]; list the id and address of every peer there "
        "(docs/real-peers.md), or start all of them on this machine with: coterie launch"
    )


def nodes_of(config: Config) -> int:
    """How many nodes the one population has."""
    (counts,) = config.data.scenarios().values()
    return sum(counts)


def check_peers(config: Config, me: int, federated: bool) -> None:
    """Raise InputError unless the list names every node, and this one, exactly as needed."""
    ids = sorted(peer.id for peer in config.peers)
    if not ids:
        raise no_peers()
    if me == SERVER and not federated:
        raise InputError(
            f"{config.algorithm[0].name!r} needs no server; start each peer with --id, "
            "none with --server"
        )
    nodes = nodes_of(config)
    wanted = [*([SERVER] if federated else []), *range(nodes)]
    if ids != wanted:
        raise InputError(_misfit(ids, wanted, config))
    if me not in ids:
        raise InputError(f"no peer {me} in [[peers]]; known: {', '.join(map(str, ids))}")


def _misfit(ids: list[int], wanted: list[int], config: Config) -> str:
    (scenario,) = config.data.scenarios()
    server = "the server (id = -1) and " if SERVER in wanted else ""
    return (
        f"the configuration has {nodes_of(config)} nodes ({scenario}), so [[peers]] must list "
        f"{server}the ids 0 to {nodes_of(config) - 1}; got {', '.join(map(str, ids))}"
    )
