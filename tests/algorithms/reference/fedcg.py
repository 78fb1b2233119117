"""FedCG (Caldarola et al., 2021) on a net whose layers may have branches.

`start` holds every tensor by name; `batches(k, t)` the batches of client k; `rate` is the
student's learning rate over that of the rest. `by` says who tells domains: the teacher; K-means
of the clients' models; or the last value of every sample, its domain.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F


@dataclass
class Setting:
    """What all parts of a run have in common."""

    layers: list  # of the base, in order: (name, linear | norm | relu)
    by: str
    lr: float
    rate: float
    every: int
    beta: float = 0.5
    graph: bool = True
    centred: bool = True


def classify(p, who, x):
    """The logits of the domains, by the student or the teacher."""
    hidden = F.relu(x @ p[f"{who}.0.weight"].T + p[f"{who}.0.bias"])
    return hidden @ p[f"{who}.2.weight"].T + p[f"{who}.2.bias"]


def branch(p, layer, d, out):
    """V'_d = relu((A V)_d W), W applied to every filter: [out, v]."""
    rows = p[f"{layer}.domains"]
    mixed = sum(p["adjacency"][d, j] * rows[j] for j in range(len(rows)))
    filters = mixed.view(out, -1)
    return torch.stack([F.relu(f @ p[f"{layer}.projection.0"]) for f in filters])


def linear(p, name, z, weights):
    """z = f_a(z) + lambda sum_d w_d f_{V'_d}(z), sample by sample."""
    if f"{name}.domains" not in p:
        return z @ p[f"{name}.weight"].T + p[f"{name}.bias"]
    matrix, outputs = p[f"{name}.shared.weight"], []
    for sample, w in zip(z, weights, strict=True):
        added = sum(w[d] * (branch(p, name, d, len(matrix)) @ sample) for d in range(len(w)))
        shared = matrix @ sample + p[f"{name}.shared.bias"]
        outputs.append(shared + p[f"{name}.scale"] * added)
    return torch.stack(outputs)


def norm(p, name, z, weights, statistics):
    """Batch norm: all samples are normed alike, scale and offset are those of the domains too."""
    own = f"{name}.shared" if f"{name}.domains" in p else name
    average, spread = z.mean(0), z.var(0, unbiased=False)
    for what, value in (("mean", average), ("var", z.var(0))):
        before = p[f"{own}.running_{what}"]
        statistics[f"{own}.running_{what}"] = 0.9 * before + 0.1 * value.detach()
    normed = (z - average) / (spread + 1e-5).sqrt()
    shared = normed * p[f"{own}.weight"] + p[f"{own}.bias"]
    if own == name:
        return shared
    outputs = []
    for sample, plain, w in zip(normed, shared, weights, strict=True):
        parts = [branch(p, name, d, len(sample)) for d in range(len(w))]  # [C, 2] each
        added = sum(w[d] * (sample * parts[d][:, 0] + parts[d][:, 1]) for d in range(len(w)))
        outputs.append(plain + p[f"{name}.scale"] * added)
    return torch.stack(outputs)


def predict(p, layers, x, weights):
    """The logits, and the statistics of batch norms after this batch."""
    z, statistics = x, {}
    for name, kind in layers:
        if kind == "linear":
            z = linear(p, name, z, weights)
        elif kind == "norm":
            z = norm(p, name, z, weights, statistics)
        else:
            z = F.relu(z)
    return z, statistics


def told(p, setting, x):
    """The inputs of the net, the domain of every sample, and the running middle of scores."""
    if setting.by == "attributes":
        return x[:, :-1], x[:, -1].round().long(), 0
    if setting.by == "clients":
        return x, p["assigned"].argmax().repeat(len(x)), 0
    scores, middle = classify(p, "teacher", x), p["middle"]
    if setting.centred:
        middle = 0.9 * middle + 0.1 * scores.mean(0)
    return x, (scores - middle).argmax(1), middle


def is_fixed(name):
    """What no client trains."""
    known = name in ("adjacency", "seen", "assigned", "middle") or name.startswith("teacher.")
    return known or "running_" in name


def client(start, batches, setting):
    """What a client makes of everything that it got."""
    p = {name: value.clone() for name, value in start.items()}
    for x, y in batches:
        leaves = {n: v.detach().requires_grad_(not is_fixed(n)) for n, v in p.items()}
        inputs, domain, middle = told(leaves, setting, x)
        weights = torch.eye(len(p["adjacency"]), dtype=x.dtype)[domain]
        p["seen"] = p["seen"] + weights.sum(0)
        logits, statistics = predict(leaves, setting.layers, inputs, weights)
        loss = F.cross_entropy(logits, y)
        guess = 0
        if setting.by != "attributes":
            guess = F.cross_entropy(classify(leaves, "student", x) - middle, domain)
        for name, leaf in leaves.items():
            if is_fixed(name):
                continue
            student = name.startswith("student.")
            target, pace = (guess, setting.rate) if student else (loss, 1)
            (gradient,) = torch.autograd.grad(target, leaf, retain_graph=True)
            p[name] = (leaf - pace * setting.lr * gradient).detach()
        p |= statistics | ({"middle": middle} if "middle" in p else {})
    return p


def join(rows, beta):
    """A from the distances of the domains' parameters."""
    count = len(rows)
    made = torch.zeros(count, count, dtype=rows.dtype)
    for i in range(count):
        near = {j: 1 / (rows[i] - rows[j]).norm() for j in range(count) if j != i}
        for j in near:
            made[i, j] = (1 - beta) * near[j] / sum(near.values())
        made[i, i] = beta
    return made


def change_of(before, after):
    """How a client changed what all domains share, as one vector."""
    own = (".domains", ".projection.0", ".scale")
    names = [n for n in before if n.startswith("base.") and not n.endswith(own)]
    names = [n for n in names if "running_" not in n]
    return torch.cat([(after[n] - before[n]).flatten() for n in names])


def move_centers(centers, changes, domains, count):
    """A step of K-means; the first centers are the first clients, in the order of their ids."""
    if centers is None:
        return {d: changes[k] for d, k in enumerate(sorted(changes)) if d < count}
    moved = dict(centers)
    for d in range(count):
        mine = [changes[k] for k in changes if domains[k] == d]
        if mine:
            moved[d] = torch.stack(mine).mean(0)
    return moved


def assign(clients, changes, centers, domains):
    """Every client of the round is in the domain of the nearest center."""
    for k in clients if centers is not None else []:
        far = {d: (centers[d] - changes[k]).norm() for d in centers}
        domains[k] = min(far, key=lambda d: far[d])


def average(p, trained, samples):
    """FedAvg of everything but what belongs to one client."""
    total = sum(samples[k] for k in trained)
    kept = {name: p[name] for name in p if name in ("seen", "assigned")}
    mean = {name: sum(samples[k] / total * trained[k][name] for k in trained) for name in p}
    return mean | kept


def follow(p, done, setting):
    """Every T rounds the teacher becomes the student; from then on A is that of V."""
    teacher = [name for name in p if name.startswith("teacher.")]
    for name in teacher if done % setting.every == 0 else []:
        p[name] = p["student." + name.removeprefix("teacher.")].clone()
    if done >= setting.every and setting.graph:
        rows = [value for name, value in p.items() if name.endswith(".domains")]
        p["adjacency"] = join(torch.cat(rows, dim=1), setting.beta)


def run(start, rounds, cohort, samples, batches, setting, domains: Any = None):
    """The server's tensors after all rounds, and how many samples each domain had in each."""
    p, centers, history, count = start, None, [], len(start["adjacency"])
    eye = torch.eye(count, dtype=start["adjacency"].dtype)
    domains = dict(domains or {})  # the clients', where K-means tells them
    for t in range(rounds):
        own = {k: {"assigned": eye[domains[k]]} if domains else {} for k in cohort(t)}
        trained = {k: client({**p, **own[k]}, batches(k, t), setting) for k in own}
        history.append(sum(trained[k]["seen"] for k in trained))
        if domains:
            changes = {k: change_of(p, trained[k]) for k in trained}
            assign(own, changes, centers, domains)
            centers = move_centers(centers, changes, domains, count)
        p = average(p, trained, samples)
        follow(p, t + 1, setting)
    return p, history
