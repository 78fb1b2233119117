"""FedCG (Caldarola et al., 2021) on a net of two linear layers, the second with branches.

`start` holds every tensor by name; `batches(k, t)` the batches of client k; `rate` is the
student's learning rate over that of the rest.
"""

import torch
import torch.nn.functional as F


def classify(p, who, x):
    """The logits of the domains, by the student or the teacher."""
    hidden = F.relu(x @ p[f"{who}.0.weight"].T + p[f"{who}.0.bias"])
    return hidden @ p[f"{who}.2.weight"].T + p[f"{who}.2.bias"]


def branch(p, d):
    """V'_d = relu((A V)_d W), W applied to every filter: [out, in]."""
    rows = p["base.2.domains"]
    mixed = sum(p["adjacency"][d, j] * rows[j] for j in range(len(rows)))
    filters = mixed.view(p["base.2.shared.weight"].shape)
    return torch.stack([F.relu(f @ p["base.2.projection.0"]) for f in filters])


def predict(p, x, weights):
    """z = f_a(z) + lambda sum_d w_d f_{V'_d}(z), sample by sample."""
    outputs = []
    for sample, w in zip(x, weights, strict=True):
        z = F.relu(p["base.0.weight"] @ sample + p["base.0.bias"])
        shared = p["base.2.shared.weight"] @ z + p["base.2.shared.bias"]
        added = sum(w[d] * (branch(p, d) @ z) for d in range(len(w)))
        outputs.append(shared + p["base.2.scale"] * added)
    return torch.stack(outputs)


def client(start, batches, lr, rate):
    """What a client makes of everything that it got."""
    p = {name: value.clone() for name, value in start.items()}
    fixed = [name for name in p if name.startswith("teacher.") or name == "adjacency"]
    for x, y in batches:
        leaves = {n: v.detach().requires_grad_(n not in fixed) for n, v in p.items()}
        domain = classify(leaves, "teacher", x).argmax(1)
        weights = torch.eye(len(p["adjacency"]), dtype=x.dtype)[domain]
        loss = F.cross_entropy(predict(leaves, x, weights), y)
        guess = F.cross_entropy(classify(leaves, "student", x), domain)
        for name, leaf in leaves.items():
            if name in fixed:
                continue
            student = name.startswith("student.")
            target, pace = (guess, rate * lr) if student else (loss, lr)
            (gradient,) = torch.autograd.grad(target, leaf, retain_graph=True)
            p[name] = (leaf - pace * gradient).detach()
    return p


def join(rows, beta=0.5):
    """A from the distances of the domains' parameters."""
    count = len(rows)
    made = torch.zeros(count, count, dtype=rows.dtype)
    for i in range(count):
        near = {j: 1 / (rows[i] - rows[j]).norm() for j in range(count) if j != i}
        for j in near:
            made[i, j] = (1 - beta) * near[j] / sum(near.values())
        made[i, i] = beta
    return made


def run(start, rounds, cohort, samples, batches, lr, rate, every):
    """The server's tensors after all rounds."""
    p = start
    for t in range(rounds):
        clients = cohort(t)
        total = sum(samples[k] for k in clients)
        trained = {k: client(p, batches(k, t), lr, rate) for k in clients}
        p = {name: sum(samples[k] / total * trained[k][name] for k in clients) for name in p}
        if (t + 1) % every == 0:
            for name in list(p):
                if name.startswith("teacher."):
                    p[name] = p["student." + name.removeprefix("teacher.")].clone()
        if t + 1 >= every:
            p["adjacency"] = join(p["base.2.domains"])
    return p
