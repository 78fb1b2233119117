"""All peers of a run on this machine: own keys, free ports, one table, one run folder."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coterie import config as configuration
from coterie.config import Config
from coterie.environment import describe_environment
from coterie.errors import InputError
from coterie.links import keys
from coterie.links.ports import reserved_ports
from coterie.peers.children import Child, Children
from coterie.peers.choose import SERVER, choose, nodes_of
from coterie.peers.collect import Story, read_story, write_summary
from coterie.peers.member import is_federated
from coterie.peers.standing import Standing, read
from coterie.peers.stopping import Stop
from coterie.peers.survey import MEMBERS
from coterie.run import check_names, find_device, new_folder, resolved
from coterie.runtimes.checkpoint import write_atomically
from coterie.tracking.choose import tracker_of

LAUNCH = "launch.toml"
TICK = 0.5  # seconds between two looks
Show = Callable[[Sequence[Standing]], None]


@dataclass(frozen=True)
class Order:
    """What was asked for."""

    config: Config
    out: Path | None = None
    peers: int | None = None
    algorithm: str = ""
    seed: int | None = None
    broker: str = ""
    device: str = "cpu"
    resume: bool = False


def ordered(order: Order) -> Config:
    """The configuration that the peers get, but for their addresses; checked as far as possible."""
    table = order.config.model_dump(exclude_none=True)
    if order.config.data.own:
        table["peers"] = _own_peers(order)
    config = choose(configuration.parse(table), order.algorithm, order.seed)
    if order.broker:
        broker = config.runtime.broker.model_copy(update={"url": order.broker})
        runtime = config.runtime.model_copy(update={"broker": broker})
        config = config.model_copy(update={"runtime": runtime})
    check_names(config)
    _check_count(config, order.peers)
    find_device(order.device)
    _check_broker(config)
    return resolved(config)


def _check_broker(config: Config) -> None:
    if config.runtime.link == "mqtt" and config.runtime.broker.url:
        from coterie.links.broker import Broker

        Broker.at(config.runtime.broker.url)


def _own_peers(order: Order) -> list[dict[str, Any]]:
    """The nodes of peers with own samples, with the clusters that the file names."""
    known = {peer.id: peer.cluster for peer in order.config.peers if peer.id != SERVER}
    count = order.peers or len(known)
    if not count:
        raise InputError("data.own says that each peer brings its samples; say --peers N")
    return [{"id": peer, "cluster": known.get(peer, "all")} for peer in range(count)]


def _check_count(config: Config, peers: int | None) -> None:
    nodes = nodes_of(config)
    if peers is None or peers == nodes:
        return
    (scenario,) = config.data.scenarios()
    names = [f"--set data.clusters.{table.name}.nodes=..." for table in config.data.clusters]
    raise InputError(
        f"the configuration has {nodes} nodes ({scenario}), so --peers must be {nodes}, got "
        f"{peers}; or change the nodes: {' '.join(names)}"
    )


def folder_of(order: Order) -> Path:
    """The run folder; refuses to mix two runs in one."""
    if order.out is None:
        if order.resume:
            raise InputError("--resume needs --out, the folder of the peers to go on with")
        return new_folder(order.config.experiment.name)
    if order.resume and not (order.out / LAUNCH).exists():
        raise InputError(f"there is no launch to resume in {str(order.out)!r}")
    if order.out.exists() and not order.out.is_dir():
        raise InputError(f"{str(order.out)!r} is a file; --out takes a folder, choose another")
    if order.out.exists() and any(order.out.iterdir()) and not order.resume:
        raise InputError(f"{str(order.out)!r} is not empty; choose another --out, or --resume it")
    return order.out


class Launch:
    """The peers of one run, from start to end."""

    def __init__(self, config: Config, out: Path, device: str, show: Show, stop: Stop) -> None:
        self.config, self.out, self.device = config, out, device
        self.show, self.stop = show, stop
        server = [SERVER] if is_federated(config) else []
        self.ids = [*server, *range(nodes_of(config))]
        self.children = Children()
        stop.at_once = self.children.kill

    async def run(self) -> dict[str, Any]:
        """Start all, watch them until none is left, collect; returns the summary."""
        tracker = tracker_of(self.config)
        self._make_folder()
        with reserved_ports(len(self.ids)) as ports:
            async with self._broker() as config:
                try:
                    self._write(config, ports)
                    await self._start()
                    await self._watch()
                finally:
                    await asyncio.shield(self.children.end())
        summary = self._collect()
        if tracker:
            tracker.log(self.out)
        return summary

    def _make_folder(self) -> None:
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot write to {str(self.out)!r}: {error.strerror or error}; choose another "
                "--out"
            ) from None

    @contextlib.asynccontextmanager
    async def _broker(self) -> AsyncIterator[Config]:
        """The configuration with a broker, where it needs one: its own, or one in this process."""
        runtime = self.config.runtime
        if runtime.link != "mqtt":
            yield self.config
            return
        update: dict[str, Any] = {"store": runtime.store or (self.out / "store").resolve().as_uri()}
        async with contextlib.AsyncExitStack() as held:
            if not runtime.broker.url:
                from coterie.links.broker import embedded_broker

                port = await held.enter_async_context(embedded_broker())
                found = {"url": f"mqtt://127.0.0.1:{port}", "version": "3.1.1"}
                update["broker"] = runtime.broker.model_copy(update=found)
            yield self.config.model_copy(update={"runtime": runtime.model_copy(update=update)})

    def _write(self, config: Config, ports: list[int]) -> None:
        """The file from which every peer starts, and the keys beside it."""
        folder = self.out / "keys"
        clusters = {peer.id: peer.cluster for peer in config.peers}
        peers = []
        for peer, port in zip(self.ids, ports, strict=True):
            name = "server" if peer == SERVER else f"peer-{peer}"
            if not (folder / f"{name}.key").exists():
                keys.write(keys.make(name), folder, name)
            certificate = folder / f"{name}.crt"
            peers.append(
                {
                    "id": peer,
                    "address": f"127.0.0.1:{port}",
                    "certificate": f"keys/{name}.crt",
                    "fingerprint": keys.fingerprint(certificate.read_bytes()),
                    "cluster": clusters.get(peer, "all"),
                }
            )
        table = config.model_dump(exclude_none=True)
        del table["tracking"]  # the launch tracks them all as one run
        table["runtime"]["keys"] = "keys"
        text = configuration.parse({**table, "peers": peers}).to_toml()
        write_atomically(self.out / LAUNCH, text.encode())
        write_atomically(self.out / "config.toml", self.config.to_toml().encode())
        found = describe_environment(find_device(self.device))
        write_atomically(self.out / "environment.json", json.dumps(found, indent=1).encode())

    async def _start(self) -> None:
        for peer in self.ids:
            who = ("--server",) if peer == SERVER else ("--id", peer)
            words = ("peer", self.out / LAUNCH, *who, "--out", self._home(peer))
            options = ("--device", self.device, "--leash")
            await self.children.start(peer, (*words, *options), self._home(peer, ".log"))

    def _home(self, peer: int, suffix: str = "") -> Path:
        name = "server" if peer == SERVER else str(peer)
        return self.out / MEMBERS / f"{name}{suffix}"

    async def _watch(self) -> None:
        """Until nobody runs, or until the end is asked for, or one finds the input bad."""
        while self.children.running and not self.stop.number:
            self.show(self.standings())
            self._refuse()
            await asyncio.wait(self.children.waits, timeout=TICK, return_when="FIRST_COMPLETED")
            self.children.waits = {wait for wait in self.children.waits if not wait.done()}
        self._refuse()
        if self.stop.number:
            await self.children.end()
        self.show(self.standings())

    def _refuse(self) -> None:
        """Where one peer refuses its input, so would the others: say what it said."""
        for child in self.children.died:
            if child.code == 2 and not self._began():
                said = child.last_words().removeprefix("error: ")
                raise InputError(f"peer {child.id}: {said}")

    def _began(self) -> bool:
        return any(one.round for one in self.standings())

    def standings(self) -> list[Standing]:
        """How all peers stand; who died is marked."""
        dead = {child.id for child in self.children.died if not self._asked(child)}
        found = [(peer, read(self._home(peer))) for peer in self.ids]
        rounds = self.config.experiment.rounds
        known = [one or Standing(peer, rounds=rounds) for peer, one in found]
        return [_marked(one, one.id in dead) for one in known]

    def _asked(self, child: Child) -> bool:
        """Whether it ended because this launch was stopped, perhaps before it had begun."""
        return bool(self.stop.number) and child.code in (-signal.SIGTERM, 128 + signal.SIGTERM)

    def _collect(self) -> dict[str, Any]:
        """One run folder out of those of all peers."""
        found = {peer: read_story(self._home(peer)) for peer in self.ids}
        stories = {peer: story for peer, story in found.items() if story is not None}
        for story in stories.values():
            self._copy_model(story)
        nodes = range(nodes_of(self.config))
        return write_summary(self.out, self.config, list(stories.values()), nodes)

    def _copy_model(self, story: Story) -> None:
        """A peer's personal model, where a simulation would have put it."""
        model = self._home(story.node) / "models" / f"node-{story.node}.safetensors"
        if model.exists():
            scenario = str(story.member["scenario"]).replace(":", "-")
            seed = f"seed-{story.member['seed']}"
            folder = self.out / "models" / str(story.member["label"]) / scenario / seed
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(model, folder / model.name)


def _marked(one: Standing, dead: bool) -> Standing:
    return replace(one, state="failed") if dead and one.state != "stopped" else one
