"""Names for things a user can choose: a decorator adds one, the configuration picks it.

shifts = Registry("shift")

@shifts.register("rotation")
@dataclass(frozen=True)
class Rotation:
    '''Turn the image.'''
    degrees: float = 0  # counter-clockwise

shifts.build({"name": "rotation", "degrees": 90})   # Rotation(degrees=90.0)

A user's own function is named by its import path: `imported("my_package.nets:build", "model")`.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.machinery
import importlib.util
import inspect
import io
import operator
import sys
import textwrap
import tokenize
import traceback
from collections.abc import Callable, Mapping
from functools import cache
from types import ModuleType
from typing import Any, Generic, TypeVar

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from coterie.errors import InputError, unknown

T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., Any])
EXPECTED = {  # a pydantic error -> what was expected, in plain words
    **dict.fromkeys(["int_type", "int_parsing", "int_from_float"], "a whole number"),
    **dict.fromkeys(["float_type", "float_parsing"], "a number"),
    **dict.fromkeys(["bool_type", "bool_parsing"], "true or false"),
    **dict.fromkeys(["list_type", "tuple_type", "set_type"], "a list"),
    **dict.fromkeys(["dict_type", "model_type", "mapping_type", "dataclass_type"], "a table"),
    "finite_number": "a finite number",
    "string_type": "text",
    "too_short": "a list of at least {min_length}",
    "greater_than": "a number greater than {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "literal_error": "{expected}",
}
own_modules: set[str] = set()  # of users, as far as something in them was named


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

    def __init__(self, kind: str, plural: str | None = None, base: type = object) -> None:
        self.kind = kind
        self.plural = plural or kind + "s"
        self.base = base  # what a user's own class has to inherit
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
        if ":" in name:
            return self._imported(name)
        if name not in self.entries:
            raise unknown(self.kind, name, self.entries, f"coterie list {self.plural}")
        return self.entries[name]

    def _imported(self, path: str) -> Entry[T]:
        """The entry of a user's own class, `package.module:Class`, registered or not."""
        build = imported(path, self.kind)
        if not hasattr(build, "__dataclass_fields__"):
            raise InputError(f"{self.kind} {path!r} is not a dataclass")
        inherits = inspect.isclass(build) and issubclass(build, self.base)
        if not inherits:
            name, base = path.rpartition(":")[2], self.base.__name__
            raise InputError(f"{self.kind} {path!r} is no {base}; write `class {name}({base})`")
        oracle = any(entry.oracle for entry in self.entries.values() if entry.build is build)
        return Entry(path, build, {}, (inspect.getdoc(build) or "").split("\n\n")[0], oracle)

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
            if options[key] != options[key]:
                raise InputError(f"{self.kind} {entry.name!r}: {key}: expected a number, got nan")
        try:
            made: T = _adapter(entry.build).validate_python({**entry.preset, **options})
            return made
        except ValidationError as error:
            first = error.errors()[0]
            field, *inside = first["loc"]
            places = [str(place) for place in inside if isinstance(place, int)]
            where = ".".join([str(field), *places])
            raise InputError(f"{self.kind} {entry.name!r}: {where}: {in_words(first)}") from None
        except PydanticUserError as error:
            raise InputError(
                f"{self.kind} {entry.name!r} has a field that no option can fill "
                f"({error.message.partition('. ')[0]}); use int, float, bool, str, "
                "and lists or dicts of them"
            ) from None

    def spec(self, made: object) -> dict[str, Any]:
        """The table that stands for an object: its name, and the options that it changes."""
        entries = [entry for entry in self.entries.values() if entry.build is type(made)]
        if not entries:
            kind = made.__name__ if inspect.isclass(made) else type(made).__name__
            hint = "give an object, such as Class()" if inspect.isclass(made) else "register it"
            raise InputError(f"{kind} is not a registered {self.kind}; {hint}")
        entry = min(entries, key=lambda entry: len(entry.preset))
        values = {option.name: getattr(made, option.name) for option in entry.options()}
        defaults = {option.name: option.default for option in entry.options()}
        changed = {name: value for name, value in values.items() if value != defaults[name]}
        return {"name": entry.name, **changed}


def in_words(error: Mapping[str, Any]) -> str:
    """What pydantic found wrong, in plain words, and what was got."""
    if error["type"] == "missing":
        there = error["input"]
        beside = ", ".join(map(str, there)) if isinstance(there, Mapping) else repr(there)
        return f"the key is missing; add it beside {beside}"
    if error["type"] in EXPECTED:
        expected = "expected " + EXPECTED[error["type"]].format(**error.get("ctx", {}))
    else:
        expected = error["msg"][0].lower() + error["msg"][1:]
    return f"{expected}, got {error['input']!r}"


@cache
def _adapter(build: Any) -> TypeAdapter[Any]:
    return TypeAdapter(build)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


def field_docs(build: Callable[..., Any]) -> dict[str, str]:
    """The comment beside each field of a dataclass, its own and those it has from others."""
    line = reversed(build.__mro__) if isinstance(build, type) else ()
    classes = [base for base in line if "__dataclass_fields__" in vars(base)]
    return {name: doc for base in classes for name, doc in _own_docs(base).items()}


def _own_docs(build: type) -> dict[str, str]:
    """The comment beside each field in a class's source, on whichever of its lines it is."""
    try:
        source = textwrap.dedent(inspect.getsource(build))
        (body,) = ast.parse(source).body
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (OSError, TypeError, ValueError, SyntaxError, tokenize.TokenError):
        return {}
    comments = {t.start[0]: t.string[1:].strip() for t in tokens if t.type == tokenize.COMMENT}
    docs = {}
    for node in body.body if isinstance(body, ast.ClassDef) else []:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            docs[node.target.id] = " ".join(comments[line] for line in lines if line in comments)
    return docs


def imported(path: str, kind: str) -> Callable[..., Any]:
    """The user's function behind `package.module:function` or `folder/file.py:function`."""
    module, _, attribute = path.rpartition(":")
    try:
        home = (
            _module_of_file(module) if module.endswith(".py") else importlib.import_module(module)
        )
    except Exception as error:
        raise InputError(
            f"cannot import {kind} {path!r}: {_told(error)}{_found_nowhere(module, error)}"
        ) from error
    if not home.__name__.startswith("coterie."):
        own_modules.add(home.__name__)
    found = _inside(home, attribute, module)
    if not callable(found):
        raise InputError(f"{kind} {path!r} is a {type(found).__name__}; give a function")
    if missing := sorted(getattr(found, "__abstractmethods__", ())):
        raise InputError(
            f"{kind} {path!r} does not define {', '.join(missing)}; is a method of it misspelt?"
        )
    function: Callable[..., Any] = found
    return function


def _found_nowhere(module: str, error: Exception) -> str:
    """What to do where there is no such module; empty: there is, and it failed by itself."""
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if module[:1] in ("", ".") or (missing and f"{module}.".startswith(f"{missing}.")):
        where = "is it on PYTHONPATH?"
    elif isinstance(error, FileNotFoundError) and error.filename == module:
        where = "relative to this folder"
    else:
        return ""
    return (
        "; give 'folder/file.py:function', or 'package.module:function', importable from here "
        f"({where})"
    )


def _inside(home: ModuleType, attribute: str, module: str) -> Any:
    """What a module calls so, or the closest name of what it defines."""
    try:
        return operator.attrgetter(attribute)(home)
    except AttributeError:
        own = [
            name
            for name, value in vars(home).items()
            if callable(value) and getattr(value, "__module__", "") == home.__name__
        ]
        script = " (run the script that defines it)" if module == "__main__" else ""
        raise unknown(f"name in {module!r}{script}:", attribute, own or ["(none)"]) from None


def _module_of_file(path: str) -> ModuleType:
    """The module in a file, which is run once however many functions of it are named."""
    loader = importlib.machinery.SourceFileLoader("coterie_user_file:" + _absolute(path), path)
    if loader.name in sys.modules:
        return sys.modules[loader.name]
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module  # before it runs: dataclasses in it look themselves up there
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[loader.name]
        raise
    return module


def _absolute(path: str) -> str:
    spec = importlib.util.spec_from_file_location("coterie_user_file", path)
    return spec.origin or path if spec else path


def called(function: Callable[[], T], path: str, kind: str) -> T:
    """What the user's function returns; whatever it raises becomes an InputError that names it."""
    try:
        return function()
    except Exception as error:
        raise InputError(f"{kind} {path!r} failed: {_told(error)}") from error


def _told(error: Exception) -> str:
    """The error of a user's code and the line it came from, in one line."""
    *_, last = traceback.extract_tb(error.__traceback__)
    known = last.filename != __file__ and not last.filename.startswith("<")
    return f"{type(error).__name__}: {error}" + f" ({last.filename}:{last.lineno})" * known
