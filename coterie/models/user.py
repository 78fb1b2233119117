"""A model from the configuration: a registered name, or a user's own function by import path."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from coterie.core.registry import called, imported
from coterie.core.samples import Pool
from coterie.errors import InputError
from coterie.models.registry import Model, Shape, models


def build_model(spec: Mapping[str, Any], shape: Shape) -> Callable[[], nn.Module]:
    """A function that makes a freshly initialised module for samples of this shape."""
    name = str(spec.get("name", ""))
    options = {key: value for key, value in spec.items() if key not in ("name", "head")}
    if ":" in name:
        return _user_model(name, options, shape)
    make = functools.partial(models.build({"name": name, **options}).build, shape)
    _try(make, f"model {name!r} cannot be built with {options}")
    return make


def _try(make: Callable[[], nn.Module], problem: str) -> None:
    """Build once, so that options that cannot be are told before the first round."""
    try:
        make()
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{problem}: {error}") from error


def check_model(spec: Mapping[str, Any]) -> Model | None:
    """The registered model of a name and options; None: an own function, which is seen later."""
    options = {key: value for key, value in spec.items() if key != "head"}
    return None if ":" in str(spec.get("name", "")) else models.build(options)


def check_samples(spec: Mapping[str, Any], *pools: Pool) -> None:
    """Refuse samples that fit a model's shape and are none for it all the same."""
    model = check_model(spec)
    for problem in filter(None, map(model.problem, pools) if model else ()):
        raise InputError(f"model {spec['name']!r} {problem}")


def _user_model(path: str, options: Mapping[str, Any], shape: Shape) -> Callable[[], nn.Module]:
    """`package.module:function`; the function may take `shape`, and gets the table's options."""
    build = imported(path, "model")
    signature = inspect.signature(build)
    extra = {"shape": shape} if "shape" in signature.parameters else {}
    try:
        signature.bind(**extra, **options)
    except TypeError as error:
        raise InputError(f"model {path!r} cannot take its options: {error}") from None
    make = functools.partial(build, **extra, **options)
    module = called(make, path, "model")
    if not isinstance(module, nn.Module):
        raise InputError(
            f"model {path!r} must return a torch.nn.Module, got {type(module).__name__}"
        )
    return make
