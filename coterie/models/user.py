"""A model from the configuration: a registered name, or a user's own function by import path."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from coterie.errors import InputError
from coterie.models.registry import Shape, models


def build_model(spec: Mapping[str, Any], shape: Shape) -> Callable[[], nn.Module]:
    """A function that makes a freshly initialised module for samples of this shape."""
    name = str(spec.get("name", ""))
    options = {key: value for key, value in spec.items() if key not in ("name", "head")}
    if ":" in name:
        return _user_model(name, options, shape)
    model = models.build({"name": name, **options})
    return functools.partial(model.build, shape)


def _user_model(path: str, options: Mapping[str, Any], shape: Shape) -> Callable[[], nn.Module]:
    """`package.module:function`; the function may take `shape`, and gets the table's options."""
    build = import_path(path, "model")
    names = inspect.signature(build).parameters
    extra = {"shape": shape} if "shape" in names else {}
    make = functools.partial(build, **extra, **options)
    try:
        module = make()
    except TypeError as error:
        raise InputError(f"model {path!r} could not be built: {error}") from None
    if not isinstance(module, nn.Module):
        raise InputError(
            f"model {path!r} must return a torch.nn.Module, got {type(module).__name__}"
        )
    return make


def import_path(path: str, kind: str) -> Callable[..., Any]:
    """The function behind `package.module:function`."""
    module_name, _, attribute = path.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{kind} {path!r}: no module {error.name!r}; is it on PYTHONPATH?"
        ) from None
    except AttributeError:
        raise InputError(f"{kind} {path!r}: {module_name} has no {attribute!r}") from None
    if not callable(found):
        raise InputError(f"{kind} {path!r} is not a function")
    result: Callable[..., Any] = found
    return result
