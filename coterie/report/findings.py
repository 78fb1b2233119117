"""What a run shows, in a sentence for each scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coterie.report.records import Study
from coterie.report.summarize import aggregate, diverged, settled_at_once
from coterie.report.tables import ORACLE, in_order, shown

NAMED = 4  # more labels than this are told as the best and the worst
TOLD = 6  # scenarios told in words
STORIES = 3  # seeds of a scenario of which it is told why they did not settle


def findings(study: Study) -> list[str]:
    """A few plain sentences for each of the first scenarios."""
    names = list(dict.fromkeys(result["scenario"] for result in study.results))
    told = [_tell(study, scenario, several=len(names) > 1) for scenario in names[:TOLD]]
    lost = diverged(study.results)
    told = [lost, *told] if lost else told
    rest = len(names) - TOLD
    return [*told, f"{rest} more scenarios are in the table."] if rest > 0 else told


def cluster_sizes(study: Study, scenario: str) -> dict[str, int]:
    """How many nodes each cluster of a scenario has, largest first."""
    frame = study.frames["cluster"]
    nodes = frame[frame["scenario"] == scenario].groupby("cluster")["nodes"].max().dropna()
    sizes = {str(name): int(size) for name, size in nodes.items()}
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def _tell(study: Study, scenario: str, several: bool) -> str:
    results = [result for result in study.results if result["scenario"] == scenario]
    names = {
        r["label"]: shown(r) for (_, _), group in in_order(results, study.order) for r in group
    }
    spreads = {label: found[scenario] for label, found in aggregate(results).items()}
    spreads = {label: spreads[label] for label in names}
    start = f"{scenario}: " if several else ""
    lengths = sorted({result["rounds"] for result in results})
    if len(lengths) > 1:
        rounds = " and ".join(map(str, lengths))
        beside = f"{start}Runs of {rounds} rounds stand side by side"
        if all(result.get("rounds_to_target") is not None for result in results):
            return f"{beside}; all reached the target: compare their rounds, not their accuracies."
        return f"{beside}; they cannot be compared."
    metric = results[0]["metric"]
    lost = {result["label"] for result in results if result.get("diverged")}
    fair = {
        label: s
        for label, s in spreads.items()
        if not names[label].endswith(ORACLE) and label not in lost
    }
    parts = [_served(study, scenario, metric, names, spreads), _best(names, fair, metric)]
    parts += [_gap(names, spreads, results), _settled(results)]
    return start + " ".join(part for part in parts if part)


def _served(
    study: Study,
    scenario: str,
    metric: str,
    names: Mapping[str, str],
    spreads: Mapping[str, Mapping[str, Any]],
) -> str:
    who, key = _whom(cluster_sizes(study, scenario), metric)
    means = {names[label]: found.get(key, {}).get("mean") for label, found in spreads.items()}
    known = {name: value for name, value in means.items() if value is not None}
    if not known:
        return ""
    verb = "gets" if metric == "accuracy" else "has a mean squared error of"
    values = [f"{_write(value, metric)} under {name}" for name, value in known.items()]
    if len(values) > NAMED:
        ranked = sorted(known, key=lambda name: known[name])
        low, high = (values[list(known).index(name)] for name in (ranked[0], ranked[-1]))
        return f"{who} {verb} from {low} to {high}."
    return f"{who} {verb} {_list(values)}."


def _whom(sizes: Mapping[str, int], metric: str) -> tuple[str, str]:
    """The minority where there is one, else the average node."""
    if len(set(sizes.values())) < 2:
        return "The average node", f"{metric}_all"
    name, size = list(sizes.items())[-1]
    called = "The minority" if name == "minority" else f"The minority, {name}"
    return f"{called} ({size} of {sum(sizes.values())} nodes)", f"{metric}:{name}"


def _best(names: Mapping[str, str], spreads: Mapping[str, Mapping[str, Any]], metric: str) -> str:
    """The best label, and whether its lead is larger than the uncertainty over seeds."""
    key, better = ("fair_accuracy", 1) if metric == "accuracy" else ("mse_all", -1)
    known = {label: s[key] for label, s in spreads.items() if s[key]["mean"] is not None}
    if len(known) < 2:
        return ""
    first, second, *_ = sorted(known, key=lambda label: -better * known[label]["mean"])
    title = "fair accuracy" if metric == "accuracy" else "mean squared error"
    value = _write(known[first]["mean"], metric)
    doubt = _doubt(known[first]["ci95"], known[second]["ci95"])
    return f"Best {title}: {names[first]} ({value}{doubt})."


def _gap(
    names: Mapping[str, str],
    spreads: Mapping[str, Mapping[str, Any]],
    results: Sequence[Mapping[str, Any]],
) -> str:
    """Where there are more than two clusters: how far the best and the worst of them are apart."""
    means = {names[label]: s["gap"]["mean"] for label, s in spreads.items()}
    known = {name: value for name, value in means.items() if value is not None}
    metric = results[0]["metric"]
    if not known or len(results[0][metric] or {}) < 3:
        return ""
    unit = "points" if metric == "accuracy" else "in mean squared error"
    digits = ".1f" if metric == "accuracy" else ".4g"
    values = [f"{value:{digits}} under {name}" for name, value in known.items()]
    return f"Best and worst cluster are apart, {unit}: {_list(values)}."


def _doubt(first: Sequence[float] | None, second: Sequence[float] | None) -> str:
    if not first or not second:
        return ", from too few seeds to be sure"
    apart = first[0] > second[1] or second[0] > first[1]
    return "" if apart else ", though the 95% intervals of the best two overlap"


def _settled(results: Sequence[Mapping[str, Any]]) -> str:
    counts: dict[str, list[bool]] = {}
    for result in results:
        if (flag := settled_at_once(result)) is not None:
            counts.setdefault(shown(result), []).append(flag)
    told = [f"{name} in {sum(flags)} of {len(flags)} seeds" for name, flags in counts.items()]
    return f"Settled: {_list(told)}.{_restarts(results)}{_stories(results)}" if told else ""


def _restarts(results: Sequence[Mapping[str, Any]]) -> str:
    """Who was started again, because the true clusters said that it had not settled."""
    again = [result for result in results if result.get("restarts")]
    if not again:
        return ""
    names = [
        f"{shown(r)}, seed {r['seed']} ({r['restarts']} x, then {'' if r['settled'] else 'not '}"
        "settled)"
        for r in again
    ]
    after = again[0]["abandoned"][0]["round"]
    return f" Started again with another seed, not settled after round {after}: {_list(names)}."


def _stories(results: Sequence[Mapping[str, Any]]) -> str:
    """When and why the first seeds that did not settle did not."""
    lost = [
        f" {shown(r)}, seed {r['seed']}: {r['settlement']}."
        for r in results
        if r["settled"] is False and r.get("settlement")
    ]
    rest = f" ({len(lost) - STORIES} more below.)" if len(lost) > STORIES else ""
    return "".join(lost[:STORIES]) + rest


def _list(parts: Sequence[str]) -> str:
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last


def _write(value: float, metric: str) -> str:
    return f"{value:.1f}%" if metric == "accuracy" else f"{value:.4g}"
