"""FedCG's layers by hand: branches of every kind of layer, who names domains, what is refused."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import grad, vmap
from torch.testing import assert_close

from coterie.core.samples import Pool
from coterie.errors import InputError
from coterie.models import Shape, check_samples, models
from coterie.models.branches import Branches, DomainLayer, kind_of, projection
from coterie.models.fedcg import DomainNet, FedCGModel, chosen, classifier, modules_of
from coterie.training.engine import TrainingSettings, make_engine
from coterie.training.objectives import Classification
from coterie.training.optimizers import SGD
from coterie.training.stacked import StackedEngine
from tests.world import PATHS, World, mlp

PROJECTIONS = ["none", "filterwise", "filterwise-bottleneck", "full", "bottleneck"]
PLAIN = Branches(2, "none", relu=False)


def routed(layer: nn.Module, options: Branches, weights, adjacency=None) -> DomainLayer:
    made = DomainLayer(layer, options)
    made.route = (weights, torch.eye(options.domains) if adjacency is None else adjacency)
    return made


def put(layer: DomainLayer, rows) -> None:
    with torch.no_grad():
        layer.domains.copy_(torch.tensor(rows))


def test_a_linear_layer_with_two_domains_by_hand():
    weights = torch.tensor([[1.0, 0.0], [0.25, 0.75]])
    near = torch.tensor([[0.5, 0.5], [0.0, 1.0]])
    layer = routed(nn.Linear(2, 1), Branches(2, "full", weight=2.0), weights, near)
    with torch.no_grad():
        layer.shared.weight.copy_(torch.tensor([[1.0, 1.0]]))
        layer.shared.bias.fill_(0.5)
        layer.projection[0].copy_(torch.tensor([[1.0, 0.0], [2.0, 1.0]]))
    put(layer, [[1.0, -2.0], [3.0, 1.0]])
    # A V = [[2, -0.5], [3, 1]]; times W: [[1, -0.5], [5, 1]]; ReLU: [[1, 0], [5, 1]]
    assert_close(layer.parameters_of_domains(near), torch.tensor([[1.0, 0.0], [5.0, 1.0]]))
    z = torch.tensor([[1.0, 2.0], [4.0, 0.0]])
    assert_close(layer(z), torch.tensor([[3.5 + 2 * 1], [4.5 + 2 * (0.25 * 4 + 0.75 * 20)]]))


def test_a_batch_norm_with_two_domains_by_hand():
    weights = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    layer = routed(nn.BatchNorm1d(1, eps=1e-12), replace(PLAIN, weight=3.0), weights)
    put(layer, [[2.0, 1.0], [4.0, -1.0]])  # scale and offset
    z = torch.tensor([[1.0], [5.0]])  # normed: -1 and 1
    assert_close(layer(z), torch.tensor([[-1.0 + 3 * (-2 + 1)], [1.0 + 3 * 3]]))
    assert_close(layer.shared.running_mean, torch.tensor([0.3]), msg="taken once")
    layer.eval()
    normed = (z - 0.3) / (0.9 + 0.1 * 8) ** 0.5
    own = torch.tensor([[2.0, 1.0], [3.0, 0.0]])
    assert_close(layer(z), normed + 3 * (own[:, :1] * normed + own[:, 1:]))


@pytest.mark.parametrize("domains", [2, 9])  # with more than eight, kernels are mixed
@pytest.mark.parametrize("kind", PROJECTIONS)
def test_a_convolution_mixes_its_branches_by_the_weights(kind, domains):
    weights, eye = torch.rand(5, domains), torch.eye(domains)
    options = Branches(domains, kind, relu=False, weight=2.0)
    layer = routed(nn.Conv2d(3, 4, 3, stride=2, padding=1), options, weights)
    z = torch.randn(5, 3, 6, 6)
    made = layer.parameters_of_domains(eye).view(domains, 4, 3, 3, 3)
    branches = [nn.functional.conv2d(z, kernel, None, 2, 1) for kernel in made]
    added = sum(weights[:, d, None, None, None] * branches[d] for d in range(domains))
    assert_close(layer(z), layer.shared(z) + 2 * added)


@pytest.mark.parametrize(
    ("layer", "z"),
    [
        (nn.Linear(4, 3), torch.randn(2, 5, 4)),
        (nn.Conv1d(2, 3, 3), torch.randn(2, 2, 6)),
        (nn.Conv2d(4, 6, 3, groups=2), torch.randn(2, 4, 5, 5)),
        (nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), torch.randn(2, 2, 5, 5)),
        (nn.ConvTranspose2d(3, 2, 2), torch.randn(2, 3, 4, 4)),
        (nn.GroupNorm(2, 4), torch.randn(2, 4, 5)),
        (nn.LayerNorm(4), torch.randn(2, 5, 4)),
        (nn.Embedding(7, 3), torch.tensor([[1, 6], [0, 2]])),
        (nn.BatchNorm2d(3), torch.randn(2, 3, 4, 4)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
@pytest.mark.parametrize("domains", [2, 9])
def test_any_layer_has_branches_of_its_own_kind(layer, z, domains):
    weights = torch.rand(2, domains)
    made = routed(layer, replace(PLAIN, domains=domains), weights)
    rows = made.domains.detach().view(domains, *made.filters)

    def branch(own):
        like = dict(layer.named_parameters())
        if layer.weight.ndim > 1:  # a matrix: the bias is nobody's own
            values = {name: torch.zeros_like(p) for name, p in like.items()} | {"weight": own}
        else:
            values = {"weight": own[:, 0], "bias": own[:, 1]}
        values = {name: value.reshape(like[name].shape) for name, value in values.items()}
        return torch.func.functional_call(layer, values, (z,))

    each = [branch(own) for own in rows]
    added = sum(
        w.view(-1, *[1] * (each[0].ndim - 1)) * e for w, e in zip(weights.T, each, strict=True)
    )
    assert_close(made(z), layer(z) + added)


def test_layers_without_a_shared_part_are_their_branches():
    weights, z = torch.rand(3, 2), torch.randn(3, 4)
    layer = routed(nn.Linear(4, 2), replace(PLAIN, shared=False), weights)
    own = layer.domains.view(2, 2, 4)
    assert_close(layer(z), torch.einsum("bd,doi,bi->bo", weights, own, z))
    assert not hasattr(layer, "scale") and not layer.shared.weight.requires_grad
    norm = routed(nn.BatchNorm1d(4), replace(PLAIN, shared=False), weights)
    mixed = torch.einsum("bd,dcv->bcv", weights, norm.domains.view(2, 4, 2))
    normed = (z - z.mean(0)) / (z.var(0, unbiased=False) + 1e-5).sqrt()
    assert_close(norm(z), mixed[..., 0] * normed + mixed[..., 1])
    assert_close(norm.shared.running_mean, 0.1 * z.mean(0))


def test_projections_have_the_sizes_of_the_paper():
    sizes = {kind: [list(w.shape) for w in projection(32, 9, kind)] for kind in PROJECTIONS}
    assert sizes == {
        "none": [],
        "filterwise": [[9, 9]],
        "filterwise-bottleneck": [[9, 1], [1, 9]],
        "full": [[288, 288]],
        "bottleneck": [[288, 18], [18, 288]],
    }


def net(options: FedCGModel) -> DomainNet:
    return DomainNet(mlp(), classifier(Shape((10,), 3), options.domains), options)


def test_when_judged_the_student_decides_softly_or_hard():
    x = torch.randn(4, 10)
    for by in ("teacher", "clients"):
        for soft in (True, False):
            made = net(FedCGModel(layers=("2",), domains=3, soft=soft, by=by)).eval()
            scores = made.student(x)
            hard = nn.functional.one_hot(scores.argmax(1), 3).float()
            assert_close(made(x), made._through(x, scores.softmax(1) if soft else hard))


def test_scores_are_centred_so_that_no_domain_begins_with_all_samples():
    torch.manual_seed(1)
    x = torch.randn(200, 10)
    made = net(FedCGModel(layers=("2",), domains=3)).train()
    with torch.no_grad():
        made.teacher[2].bias.copy_(torch.tensor([9.0, 0.0, 0.0]))
    made(x)
    assert made.seen.tolist() == [200, 0, 0]
    for _ in range(60):
        made(x)
    assert_close(made.middle, made.teacher(x).mean(0), rtol=0, atol=0.05)
    made.seen.zero_()
    made(x)
    assert made.seen.min() > 20
    made = net(FedCGModel(layers=("2",), domains=3, centred=False)).train()
    made(x)
    assert not made.middle.any()


def test_a_domain_that_is_told_is_the_last_channel_of_an_image():
    options = FedCGModel("leaf-celeba", ("conv4",), domains=4, by="attributes")
    made = options.build(Shape((4, 8, 8), 2)).eval()
    assert made.student is None and made.base.conv1.in_channels == 3
    faces, domains = torch.rand(3, 3, 8, 8), torch.tensor([2, 0, 3])
    told = (domains / 255)[:, None, None, None].expand(-1, 1, 8, 8)
    expected = made._through(faces, torch.eye(4)[domains])
    assert_close(made(torch.cat([faces, told], dim=1)), expected)
    with pytest.raises(InputError, match="takes the last channel of a sample as its domain"):
        replace(options, base="leaf-femnist").build(Shape((1, 28, 28), 62))


def test_samples_that_do_not_tell_their_domain_are_refused():
    options = {"name": "fedcg", "base": "leaf-celeba", "domains": 4, "by": "attributes"}
    faces = torch.randint(4, (5, 4, 8, 8), dtype=torch.uint8, generator=torch.manual_seed(1))
    with pytest.raises(InputError, match="the last channel of every sample is its domain, 0 to 3"):
        check_samples(options, pool(faces))
    faces[:, 3] = torch.arange(5, dtype=torch.uint8)[:, None, None] % 4
    check_samples(options, pool(faces), pool(faces[:0]))
    with pytest.raises(InputError, match="its domain, 0 to 2, and here it is not"):
        check_samples({**options, "domains": 3}, pool(faces))
    check_samples({**options, "by": "teacher", "domains": 3}, pool(faces))
    rows = torch.tensor([[0.5, 1.0], [0.2, 3.0]])
    check_samples(options, pool(rows))
    for wrong in (0.5, -1.0, 4.0, float("nan")):
        rows[0, 1] = wrong
        with pytest.raises(InputError, match="its domain"):
            check_samples(options, pool(rows))


def test_a_domain_that_normalising_makes_unreadable_is_refused():
    options = {"name": "fedcg", "base": "leaf-celeba", "domains": 4, "by": "attributes"}
    faces = torch.full((2, 4, 8, 8), 3, dtype=torch.uint8)
    with pytest.raises(InputError, match="or no longer after a shift or normalising"):
        check_samples(options, replace(pool(faces), mean=(0.5,) * 4, std=(0.5,) * 4))


def pool(inputs: torch.Tensor) -> Pool:
    """Samples that are not normalised."""
    return Pool(inputs, torch.zeros(len(inputs)), (0.0,) * 4, (1.0,) * 4)


def test_layers_are_named_one_by_one_or_by_a_pattern():
    base = models.build("leaf-celeba").build(Shape((3, 8, 8), 2))
    assert chosen(base, ["conv1", "norm*"]) == ["conv1", "norm1", "norm2", "norm3", "norm4"]
    assert len(chosen(base, ["*"])) == 9, "four convolutions and norms, and the last layer"
    assert chosen(base, ["fc", "f*"]) == ["fc"]
    made = FedCGModel("leaf-celeba", ("*",), 2).build(Shape((3, 8, 8), 2))
    assert len(modules_of(made.base)) == 9


def test_a_layer_that_cannot_have_branches_is_refused():
    for layers, message in [
        (("1",), "layer '1' is a ReLU; FedCG's branches are for layers with parameters"),
        (("fc",), "unknown layer of the base model: 'fc'"),
        (("c*",), r"unknown layer of the base model: 'c\*'"),
    ]:
        with pytest.raises(InputError, match=message):
            net(FedCGModel(layers=layers))
    assert kind_of(nn.GRU(3, 4)) is kind_of(nn.LSTM(3, 4)) is None  # they give more than a tensor


def test_options_of_the_base_are_checked_with_those_of_the_model():
    with pytest.raises(InputError, match="option of model 'leaf-femnist'"):
        models.build({"name": "fedcg", "base": {"name": "leaf-femnist", "hiden": 3}})
    with pytest.raises(InputError, match="unknown model 'leaf-femist'"):
        models.build({"name": "fedcg", "base": "leaf-femist"})
    for options, message in [
        ({"domains": 0}, "domains must be at least 1"),
        ({"layers": []}, "no layer has branches; name some"),
        ({"student": -1.0}, "student must be 0 or more, got -1"),
        ({"base": "fedcg"}, "base is 'fedcg' itself"),
    ]:
        with pytest.raises(InputError, match=message):
            models.build({"name": "fedcg"} | options)
    small = models.build({"name": "fedcg", "base": {"name": "leaf-femnist", "hidden": 8}})
    assert small.build(Shape((1, 28, 28), 62)).base.fc1.out_features == 8


def everywhere(domains: int, by: str) -> nn.Module:
    options = FedCGModel("leaf-celeba", ("*",), domains, by=by)
    return options.build(Shape((4 if by == "attributes" else 3, 8, 8), 3))


@pytest.mark.parametrize(("domains", "by"), [(2, "teacher"), (9, "attributes"), (2, "clients")])
def test_branches_everywhere_train_alike_on_both_paths(domains, by):
    shape = (4, 8, 8) if by == "attributes" else (3, 8, 8)
    world = World(
        n=2, build=partial(everywhere, domains, by), shape=shape, counts=(5, 6), classes=3
    )
    nodes = [replace(world, path=path).nodes() for path in PATHS]
    for some in nodes:
        inputs = some.train_data.pool.inputs
        inputs[:, -1] = (torch.arange(len(inputs)) % domains / 255)[:, None, None]
    start = nodes[0].initial_params()
    loop, stacked = (some.train(start, 0) for some in nodes)
    assert_close(loop, stacked, rtol=0, atol=1e-9)
    moved = {name for name, v in nodes[0].layout.unflatten(loop - start).items() if v.any()}
    expected = {"base.conv4.domains", "base.norm1.domains", "base.norm2.scale", "base.fc.scale"}
    assert expected <= moved and (by == "attributes" or "student.0.weight" in moved)
    assert not {name for name in moved if name.startswith("teacher.") or name == "adjacency"}


@pytest.mark.parametrize(("domains", "by"), [(2, "teacher"), (9, "attributes")])
def test_a_step_asks_the_host_for_nothing_so_that_a_gpu_can_capture_it(domains, by):
    channels, cpu = 4 if by == "attributes" else 3, torch.device("cpu")
    settings = TrainingSettings(Classification(), SGD(), 3, 4, cpu, torch.float32)
    build = partial(everywhere, domains, by)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a model that cannot be stacked is warned of
        engine = make_engine(build, (channels, 8, 8), settings, path="stacked")
    assert isinstance(engine, StackedEngine)
    step = vmap(grad(engine.task.batch_loss(engine.learner), has_aux=True))
    with FakeTensorMode():  # tensors without values: whoever looks at one raises
        named = engine.layout.unflatten(torch.zeros(2, engine.layout.size))
        trained = {c.name: named[c.name] for c in engine.layout.columns if c.trained}
        rest = {name: named[name] for name in named if name not in trained}
        x, y = torch.zeros(2, 4, channels, 8, 8), torch.zeros(2, 4, dtype=torch.int64)
        gradients, _ = step(trained, rest, x, y)
    assert gradients.keys() == trained.keys()
