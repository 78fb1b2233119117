"""Names for things a user can choose: a decorator adds one, the configuration picks it.

shifts = Registry("shift")

@shifts.register("rotation")
@dataclass(frozen=True)
class Rotation:
    '''Turn the image.'''
    degrees: float = 0  # counter-clockwise

shifts.build({"name": "rotation", "degrees": 90})   # Rotation(degrees=90.0)
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from coterie.errors import InputError, unknown

T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True)
class Option:
    """One field of a registered class."""

    name: str
    type: str
    default: Any
    doc: str


@dataclasses.dataclass(frozen=True)
class Entry(Generic[T]):
    """A registered name: the class behind it and the defaults this name changes."""

    name: str
    build: Callable[..., T]
    preset: Mapping[str, Any]
    doc: str
    oracle: bool = False  # may read what others must not know (an algorithm: the true clusters)

    def options(self) -> list[Option]:
        """The fields of the class, with this name's defaults and the comment beside each."""
        docs = field_docs(self.build)
        return [
            Option(f.name, str(f.type), self.preset.get(f.name, _default(f)), docs.get(f.name, ""))
            for f in dataclasses.fields(self.build)  # type: ignore[arg-type]
        ]


class Registry(Generic[T]):
    """The names of one kind of thing."""

    def __init__(self, kind: str, plural: str | None = None) -> None:
        self.kind = kind
        self.plural = plural or kind + "s"
        self.entries: dict[str, Entry[T]] = {}

    def register(
        self, name: str, doc: str = "", oracle: bool = False, **preset: Any
    ) -> Callable[[C], C]:
        """Add a class under a name; `preset` changes defaults of its fields for this name."""

        def add(build: C) -> C:
            text = doc or (inspect.getdoc(build) or "").split("\n\n")[0].replace("\n", " ")
            self.entries[name] = Entry(name, build, preset, text, oracle)
            return build

        return add

    def __getitem__(self, name: str) -> Entry[T]:
        if name not in self.entries:
            raise unknown(self.kind, name, self.entries, f"coterie list {self.plural}")
        return self.entries[name]

    def build(self, spec: str | Mapping[str, Any]) -> T:
        """The object that a name, or a table with a name and options, stands for."""
        options = {"name": spec} if isinstance(spec, str) else dict(spec)
        if "name" not in options:
            raise InputError(f"a {self.kind} needs a name; got {dict(options)!r}")
        entry = self[str(options.pop("name"))]
        fields = {f.name for f in dataclasses.fields(entry.build)}  # type: ignore[arg-type]
        for key in options:
            if key not in fields:
                raise unknown(f"option of {self.kind} {entry.name!r}:", key, fields or {"(none)"})
        try:
            made: T = _adapter(entry.build).validate_python({**entry.preset, **options})
            return made
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            problem = f"{first['msg'].lower()}, got {first['input']!r}"
            raise InputError(f"{self.kind} {entry.name!r}: {where}: {problem}") from None


@cache
def _adapter(build: Any) -> TypeAdapter[Any]:
    return TypeAdapter(build)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


def field_docs(build: Callable[..., Any]) -> dict[str, str]:
    """The comment at the end of each field's line in a dataclass's source."""
    try:
        source = inspect.getsource(build)
    except (OSError, TypeError):
        return {}
    return {m[1]: m[2] for m in re.finditer(r"^    (\w+): [^#\n]*# (.+)$", source, re.MULTILINE)}
