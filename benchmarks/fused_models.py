"""Which registered models train through the kernels on a GPU, and why not the others? Needs no GPU.

python benchmarks/fused_models.py
"""

from __future__ import annotations

from coterie.errors import InputError
from coterie.models import Shape, build_model, models
from coterie.training.chain import Unknown, chain_of

SHAPES = [(1, 28, 28), (3, 32, 32), (3, 84, 84), (80,)]


def verdict(name: str, shape: tuple[int, ...]) -> str:
    """The links of a model, or why there is no chain."""
    try:
        module = build_model({"name": name}, Shape(shape, 10))()
        links = chain_of(module, shape, images=name == "autoencoder")
    except InputError:
        return ""
    except Unknown as reason:
        return f"not fused: {reason}"
    return "fused: " + ", ".join(type(link).__name__ for link in links)


def main() -> None:
    for name in sorted(models.entries):
        for shape in SHAPES:
            said = verdict(name, shape)
            if said:
                print(f"{name:<18}{shape!s:<14}{said}")


if __name__ == "__main__":
    main()
