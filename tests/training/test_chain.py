"""Which modules are chains that the kernels know, and what is said of the others."""

from __future__ import annotations

import pytest
from torch import Tensor, nn

from coterie.models import Shape, build_model, models
from coterie.training.chain import (
    Average,
    Convolution,
    Dense,
    Enlarge,
    Link,
    Stage,
    Transposed,
    Unknown,
    chain_of,
)

KNOWN = [  # registered models, and samples for them
    ("autoencoder", (1, 28, 28)),
    ("cnn", (3, 32, 32)),
    ("leaf-femnist", (1, 28, 28)),
    ("lenet", (3, 32, 32)),
    ("lenet5", (1, 28, 28)),
    ("logistic", (1, 8, 8)),
    ("logistic", (20,)),
    ("mlp", (3, 32, 32)),
    ("mlp", (20,)),
    ("small-cnn", (1, 8, 8)),
]
REFUSED = [
    ("fedcg", (1, 28, 28), "DomainNet is not an nn.Sequential"),
    ("leaf-celeba", (3, 84, 84), r"'norm1' \(BatchNorm2d\)"),
    ("leaf-shakespeare", (80,), "NextCharacter is not an nn.Sequential"),
    ("resnet8", (3, 64, 64), "Network is not an nn.Sequential"),
]


class Doubled(nn.Conv2d):
    """A convolution that does something else."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * nn.Conv2d.forward(self, x)


class Reversed(nn.Sequential):
    """Layers from last to first."""

    def forward(self, x: Tensor) -> Tensor:
        for layer in reversed(list(self)):
            x = layer(x)
        return x


def after(*layers: nn.Module, features: int = 4 * 8 * 8) -> list[Link]:
    """The chain of a convolution, these layers and a linear layer, for images of 8x8."""
    first, last = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(features, 2)
    return chain_of(nn.Sequential(first, *layers, nn.Flatten(), last), (1, 8, 8))


def kinds(links: list[Link]) -> list[type]:
    return [type(link) for link in links]


@pytest.mark.parametrize("name, shape", KNOWN)
def test_registered_models_are_chains(name: str, shape: tuple[int, ...]) -> None:
    module = build_model({"name": name}, Shape(shape, 10))()
    assert chain_of(module, shape, images=name == "autoencoder")


@pytest.mark.parametrize("name, shape, why", REFUSED)
def test_other_registered_models_say_why_not(name: str, shape: tuple[int, ...], why: str) -> None:
    module = build_model({"name": name}, Shape(shape, 10))()
    with pytest.raises(Unknown, match=why):
        chain_of(module, shape)


def test_every_registered_model_is_in_one_of_the_two_lists() -> None:
    assert {name for name, *_ in KNOWN + REFUSED} == set(models.entries)


def test_the_autoencoder_is_a_chain_of_its_layers() -> None:
    module = build_model({"name": "autoencoder", "unit": True}, Shape((1, 28, 28), 0))()
    links = chain_of(module, (1, 28, 28), images=True)
    assert kinds(links) == [
        Convolution, Stage, Convolution, Stage,
        Enlarge, Transposed, Stage, Enlarge, Convolution, Stage,
    ]  # fmt: skip
    passes = [(s.activation, s.pool) for s in links if isinstance(s, Stage)]
    assert passes == [("relu", "max"), ("relu", "max"), ("relu", ""), ("sigmoid", "")]
    assert links[5].names == ("decoder.1.weight", "decoder.1.bias")


@pytest.mark.parametrize(
    "layer",
    [
        *(nn.AvgPool2d(3), nn.AvgPool2d(2, ceil_mode=True), nn.MaxPool2d(2, padding=1)),
        *(nn.Upsample(scale_factor=1.5), nn.Upsample(size=16)),
        *(nn.Upsample(scale_factor=2, mode="bilinear"), nn.AdaptiveAvgPool2d(2)),
        *(nn.Conv2d(4, 4, 3, dilation=2), nn.Conv2d(4, 4, 3, groups=2)),
        *(nn.ConvTranspose2d(4, 4, 3, stride=(1, 2)), nn.Linear(8, 8)),
        *(nn.Flatten(2), nn.GroupNorm(2, 4, affine=False), nn.Dropout(0.1)),
        nn.Unflatten(1, (2, 2)),
    ],
)
def test_options_without_a_kernel_are_refused(layer: nn.Module) -> None:
    with pytest.raises(Unknown, match=rf"'1' \({type(layer).__name__}\) with these options"):
        after(layer)


@pytest.mark.parametrize("layer", [nn.BatchNorm2d(4), nn.Tanh(), Doubled(4, 4, 3)])
def test_layers_without_a_kernel_are_refused(layer: nn.Module) -> None:
    with pytest.raises(Unknown, match=rf"no kernel for layer '1' \({type(layer).__name__}\)$"):
        after(layer)


def test_passes_take_as_much_as_fits_and_a_new_one_follows() -> None:
    layers = [nn.GroupNorm(2, 4), nn.Sigmoid(), nn.AvgPool2d(2), nn.ReLU(), nn.MaxPool2d(2)]
    assert after(*layers, features=16)[1:-1] == [
        Stage("1", layers[0], "sigmoid", "mean"),  # type: ignore[arg-type]
        Stage(activation="relu", pool="max"),
    ]


def test_a_layer_that_is_used_twice_occurs_twice() -> None:
    relu = nn.ReLU()
    links = after(relu, nn.Conv2d(4, 4, 3, padding=1), relu)
    assert kinds(links) == [Convolution, Stage, Convolution, Stage, Dense]


def test_weights_that_are_used_twice_are_refused() -> None:
    again = nn.Conv2d(4, 4, 3, padding=1)
    with pytest.raises(Unknown, match=r"share, or that none has: \['2.bias', '2.weight'\]"):
        after(again, again)


def test_a_sequence_that_runs_otherwise_is_refused() -> None:
    with pytest.raises(Unknown, match=r"Reversed is not an nn\.Sequential"):
        after(Reversed(nn.ReLU()))


def test_a_mean_of_all_pixels_and_a_dropout_of_nothing_are_known() -> None:
    links = after(nn.AdaptiveAvgPool2d(1), nn.Dropout(0.0), features=4)
    assert kinds(links) == [Convolution, Average, Dense]


def test_a_classifier_ends_with_a_linear_layer() -> None:
    convolutions = nn.Sequential(nn.Conv2d(1, 2, 8), nn.Flatten())
    with pytest.raises(Unknown, match="the last layer is not linear"):
        chain_of(convolutions, (1, 8, 8))


def test_reconstructions_have_the_shape_of_the_samples() -> None:
    flat = nn.Sequential(nn.Flatten(), nn.Linear(64, 64))
    with pytest.raises(Unknown, match=r"outputs are \(64,\), not \(1, 8, 8\) as the samples"):
        chain_of(flat, (1, 8, 8), images=True)
    shaped = nn.Sequential(*flat, nn.Unflatten(1, (1, 8, 8)), nn.Sigmoid())
    links = chain_of(shaped, (1, 8, 8), images=True)
    assert [link.activation for link in links if isinstance(link, Dense)] == ["sigmoid"]


def test_samples_are_images_or_rows() -> None:
    with pytest.raises(Unknown, match=r"samples of shape \(4, 6\) are neither images nor rows"):
        chain_of(nn.Linear(6, 2), (4, 6))
