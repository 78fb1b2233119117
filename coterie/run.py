"""From a configuration to a run folder: data, model, algorithm, runtime, records. Read this first.

A run has one part per algorithm: all its seeds, scenarios and learning rates stacked as replicas of
one block, or several parts where memory is short (`stacking.py`). A finished part is never computed
again; an unfinished one goes on from its checkpoint.
"""

from __future__ import annotations

import dataclasses
import json
import warnings
from pathlib import Path
from typing import Any

import torch

import coterie.algorithms  # noqa: F401  (registers the algorithms)
from coterie import config as configuration
from coterie import data, stacking
from coterie.block import Setup, Stack, keep_unseen, make_nodes, model_place, part_ways
from coterie.config import AlgorithmTable, ClusterTable, Config
from coterie.core.algorithm import Algorithm, algorithms
from coterie.core.federated import Federated, server_of
from coterie.core.nodes import LocalWork, Nodes
from coterie.data.holdings import Cluster, Plan, Replica, deal
from coterie.environment import describe_environment
from coterie.errors import InputError
from coterie.errors import at as _at
from coterie.family import without_family
from coterie.mistakes import mistake
from coterie.models import check_model
from coterie.part import Part, PartRun, Stopped, Watch
from coterie.report.summarize import aggregate
from coterie.restarts import screened
from coterie.runtimes.checkpoint import write_atomically
from coterie.runtimes.journal import Journal
from coterie.runtimes.lock import locked
from coterie.tracking.choose import tracker_of
from coterie.training import optimizers


def run(
    config: Config,
    out: str | Path | None = None,
    device: str = "auto",
    resume: bool = False,
    watch: Watch | None = None,
) -> dict[str, Any]:
    """Carry out a configuration in a run folder; returns the summary that is also written there.

    The folder is by default runs/NAME, or runs/NAME-2 and so on where that exists.
    """
    _check_simulated(config)
    config = resolved(config)
    folder = new_folder(config.experiment.name) if out is None else Path(out)
    check_folder(folder, config, resume)
    setup = prepare(config, device)
    parts = make_parts(setup, stacking.read_plan(folder) if resume else None)
    tracker = tracker_of(config)
    try:
        with locked(folder):
            _open_folder(folder, setup)
            stacking.write_plan(folder, parts)
            summary = _run_parts(setup, parts, folder, watch or Watch())
        if tracker:
            tracker.log(folder)
        return summary
    except torch.cuda.OutOfMemoryError as error:
        said = str(error).partition(" GPU ")[0].rstrip(".")
        raise InputError(
            f"{said}. Leave the GPU to this run, or give it fewer seeds or ratios at a time; what "
            "is done is kept: go on with --resume (coterie reproduce: the same command again)"
        ) from error
    except OSError as error:
        if error.errno is None or mistake(error):  # raised by an algorithm or a model
            raise
        raise _unwritable(folder, error) from None


def _check_simulated(config: Config) -> None:
    """Say what to do with a configuration that only real peers can carry out."""
    if config.runtime.engine == "peer":
        raise InputError(
            "runtime.engine is 'peer': start each peer with coterie peer, or all of them here with "
            "coterie launch; or simulate them with --set runtime.engine=simulate"
        )
    if config.data.own:
        raise InputError(
            "data.own is true: a simulation deals one data set to all nodes, and only real peers "
            "bring their own; use coterie peer or coterie launch"
        )


def resolved(config: Config) -> Config:
    """The configuration with every default of its algorithms and of local work written out."""
    table = config.model_dump(exclude_none=True)
    if not {"steps", "epochs"} & set(table["train"]):
        table["train"]["steps"] = LocalWork.steps
    for entry, own in zip(config.algorithm, table["algorithm"], strict=True):
        made: Any = _algorithm(config, entry)
        for option in dataclasses.fields(made):
            own.setdefault(option.name, getattr(made, option.name))
    return configuration.parse(table)


def new_folder(name: str) -> Path:
    """runs/NAME, or with a number where that exists."""
    folder, number = Path("runs") / name, 2
    while folder.exists():
        folder, number = Path("runs") / f"{name}-{number}", number + 1
    return folder


def _unwritable(out: Path, error: OSError) -> InputError:
    problem = f"cannot write to {str(out)!r}: {error.strerror or error}"
    if not (out / "config.toml").exists():
        return InputError(f"{problem}; choose another --out")
    return InputError(
        f"{problem}; what was saved before is intact: make room, then go on with --resume"
    )


def _run_parts(setup: Setup, parts: list[Part], out: Path, watch: Watch) -> dict[str, Any]:
    results: list[dict[str, Any]] = []
    for part in parts:
        watch.plan(stacking.plan_line(part))
    try:
        for part in parts:
            seeded = screened(setup.config, part, out, watch)
            results += PartRun(setup.config, seeded, out, watch).play()
            part.nodes.population.engine.release()
    except Stopped as stop:
        _close_folder(out, setup, parts, results + stop.args[0])
        raise
    return _close_folder(out, setup, parts, results)


def check_folder(out: Path, config: Config, resume: bool) -> None:
    """Refuse to mix two runs in one folder."""
    written = out / "config.toml"
    if out.exists() and not out.is_dir():
        raise InputError(f"{str(out)!r} is a file; --out takes a folder, choose another")
    if not resume:
        if out.exists() and any(out.iterdir()):
            raise InputError(f"{str(out)!r} is not empty; choose another --out, or --resume it")
        return
    if not written.exists():
        raise InputError(f"there is no run to resume in {str(out)!r} (it has no config.toml)")
    before = resolved(configuration.load(written))
    if _comparable(before) != _comparable(config):
        raise InputError(
            f"{str(out)!r} holds a run of another configuration; only experiment.rounds may change"
        )
    if before.experiment.rounds > config.experiment.rounds:
        raise InputError(
            f"{str(out)!r} was run for {before.experiment.rounds} rounds; resume can only add some"
        )


def _comparable(config: Config) -> dict[str, Any]:
    table = config.model_dump()
    table["experiment"].pop("rounds")
    table.pop("tracking")  # it changes no number
    return table


def _open_folder(out: Path, setup: Setup) -> None:
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "config.toml", setup.config.to_toml().encode())
    environment = describe_environment(setup.device)
    write_atomically(out / "environment.json", json.dumps(environment, indent=1).encode())


def _close_folder(
    out: Path, setup: Setup, parts: list[Part], results: list[dict[str, Any]]
) -> dict[str, Any]:
    """Write the records of all parts and the summary."""
    records = [out / "checkpoints" / f"{part.name}.jsonl" for part in parts]
    entries = (entry for path in records for entry in Journal(path).entries())
    write_atomically(out / "records.jsonl", without_family(out, entries))
    labels = [setup.config.label(table) for table in setup.config.algorithm]
    results = sorted(results, key=lambda result: labels.index(result["label"]))
    summary = {
        "name": setup.config.experiment.name,
        "results": results,
        "aggregate": aggregate(results),
        "order": labels,
        "clusters": setup.clusters_by_size(),
    }
    write_atomically(out / "summary.json", json.dumps(summary, indent=1, allow_nan=False).encode())
    return summary


def prepare(config: Config, device: str = "auto") -> Setup:
    """Load the data set and deal it to the nodes, once all names are known to be right."""
    check_names(config)
    clusters = tuple(_cluster(table) for table in config.data.clusters)
    with _at("data.partition"):
        partition = data.partitions.build(config.data.partition)
    plan = Plan(partition, config.data.holdout, config.evaluate.samples, config.data.test)
    with _at("data.source"):
        dataset = data.load(config.data.source)
    stacks = [
        Stack(sum(group[0].counts), tuple(group), deal(dataset, clusters, group, plan))
        for group in _groups(config)
    ]
    stacks = [keep_unseen(stack, config.evaluate.unseen_clients) for stack in stacks]
    return Setup(config, dataset, clusters, tuple(stacks), find_device(device))


def check_names(config: Config) -> None:
    """Build what needs no data, so that a wrong name or option costs no time."""
    with _at("model"):
        check_model(config.model.spec)
    for table in config.algorithm:
        _check_together(config, table)
    for cluster in config.data.clusters:
        _cluster(cluster)
    with _at("data.partition"):
        data.partitions.build(config.data.partition)
    with _at("data.source"):
        data.source_of(config.data.source)


def _check_together(config: Config, table: AlgorithmTable) -> None:
    """Say what an algorithm, its model and its optimizer cannot do together."""
    algorithm, spec = _algorithm(config, table), config.train_of(table).optimizer
    with _at(model_place(config, table)):
        model = check_model(config.model_of(table).spec)
    own = f"algorithm.{config.label(table)}." if "optimizer" in table.train else ""
    with _at(f"{own}train.optimizer"):
        optimizer = optimizers.build(spec)
        if not optimizer.plain and algorithm.reads_steps:
            raise InputError(
                f"{table.name!r} divides local steps by the learning rate to have gradients, "
                f"got {spec!r}; use 'sgd' without momentum for it"
            )
        if model and model.weighs_losses and not optimizer.proportional:
            raise InputError(
                f"a part of model {config.model_of(table).name!r} learns at a rate of its own, by "
                f"the weight of its loss, and {spec!r} does not notice weights; use 'sgd'"
            )
    _check_choice(config, config.label(table), algorithm.first_choice)
    if model and algorithm.made_for not in ("", config.model_of(table).name):
        warnings.warn(
            f"{config.label(table)} is made for the model {algorithm.made_for!r}, and does less "
            f"with {config.model_of(table).name!r}; give it one of its own "
            "(model = { ... } in [[algorithm]])",
            stacklevel=2,
        )
    if model and model.algorithm and not isinstance(algorithm, _class_of(model.algorithm)):
        warnings.warn(
            f"{config.label(table)} trains the model {config.model_of(table).name!r}, parts of "
            f"which only {model.algorithm!r} makes use of; give each algorithm a model of its own "
            "(model = { ... } in [[algorithm]])",
            stacklevel=2,
        )


def _check_choice(config: Config, label: str, first: int) -> None:
    """Whether nodes choose early enough: within the rounds, and before runs are judged by it."""
    rounds, restart = config.experiment.rounds, config.evaluate.restart
    if restart and restart <= first:
        raise InputError(
            f"evaluate.restart: expected a round after {label}'s first choice, {first + 1} or "
            f"later, got {restart}"
        )
    if first >= rounds:
        warnings.warn(
            f"{label}: nodes first choose in round {first + 1}, and there are {rounds}; "
            "shorten what comes before (warmup, explore, pretrain, scattered) or add rounds",
            stacklevel=2,
        )


def _class_of(name: str) -> type[Algorithm]:
    """What algorithms of this name, and those made of it, are."""
    build = algorithms[name].build
    assert isinstance(build, type)
    return build


def _algorithm(config: Config, table: AlgorithmTable) -> Algorithm:
    with _at(f"algorithm.{config.label(table)}"):
        return algorithms.build({"name": table.name, **table.options})


def _cluster(table: ClusterTable) -> Cluster:
    with _at(f"data.clusters.{table.name}.shifts"):
        return Cluster(table.name, tuple(data.shifts.build(spec) for spec in table.shifts))


def _groups(config: Config) -> list[list[Replica]]:
    """Replicas that can be stacked: populations of equal size; over a link each is alone."""
    replicas = [
        Replica(scenario, seed, counts)
        for scenario, counts in config.data.scenarios().items()
        for seed in config.experiment.seeds
    ]
    if config.runtime.link == "memory":
        return [[replica] for replica in replicas]
    sizes = dict.fromkeys(sum(replica.counts) for replica in replicas)
    return [[r for r in replicas if sum(r.counts) == size] for size in sizes]


def find_device(name: str) -> torch.device:
    """The device of this name; auto: a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.split(":")[0] not in ("cpu", "cuda"):
        raise InputError(f"unknown device {name!r}; use cpu or cuda")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise InputError("there is no CUDA device on this machine; use --device cpu")
    return torch.device(name)


def make_parts(setup: Setup, plan: stacking.Plan | None = None) -> list[Part]:
    """All parts of a run; whatever is wrong with one is found here, before the first round.

    A plan says which replicas go together; without one they do as far as memory allows.
    """
    made = [_parts_of(setup, tables, plan) for tables in stacking.alike(setup.config)]
    return [part for parts in made for part in parts]


def _parts_of(setup: Setup, tables: list[AlgorithmTable], plan: stacking.Plan | None) -> list[Part]:
    """The parts of algorithms that differ in their learning rate alone."""
    config = setup.config
    rates = {config.label(table): config.train_of(table).lr for table in tables}
    parts = []
    for stack in setup.stacks:
        wide = stacking.widened(stack, rates)
        whole = _make_part(setup, tables[0], wide)
        if plan is None:
            cut = stacking.shares(whole, stacking.room(setup.device))
        else:
            cut = stacking.planned_shares(wide.replicas, plan)
        if len(cut) == 1:
            parts.append(whole)
        else:
            pieces = [stacking.some(wide, numbers) for numbers in cut]
            parts += [_make_part(setup, tables[0], piece) for piece in pieces]
    names = stacking.part_names(config, list(rates), len(parts))
    return [dataclasses.replace(part, name=n) for part, n in zip(parts, names, strict=True)]


def _make_part(setup: Setup, table: AlgorithmTable, stack: Stack) -> Part:
    label = setup.config.label(table)
    algorithm = _algorithm(setup.config, table)
    nodes, newcomers = part_ways(make_nodes(setup, stack, table), stack)
    with _at(f"algorithm.{label}"):
        _check(algorithm, nodes)
    return Part(
        name=label,
        label=label,
        algorithm_name=table.name,
        oracle=algorithms[table.name].oracle,
        algorithm=algorithm,
        nodes=nodes,
        replicas=stack.replicas,
        clusters=setup.names(stack, unseen=False),
        parity_reasons=tuple(setup.parity_reason(replica) for replica in stack.replicas),
        newcomers=newcomers,
        newcomer_clusters=setup.names(stack, unseen=True),
    )


def _check(algorithm: Algorithm, nodes: Nodes) -> None:
    """Try what could fail later: the graph, and the state of one node."""
    spec = algorithm.graph_spec()
    if spec is not None:
        spec.check(nodes.n)
    algorithm.start(nodes[torch.arange(1)])
    if isinstance(algorithm, Federated):
        algorithm.start_server(server_of(nodes))
