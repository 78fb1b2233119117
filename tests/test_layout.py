"""The shape of the package: who imports whom, what never occurs, what everything public has."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import coterie

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "coterie"
FILES = sorted(PACKAGE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text()) for path in FILES}
ALLOWED = {  # a part of the package -> the parts that it may import
    "errors": set(),
    "core": {"core", "errors"},
    "algorithms": {"algorithms", "core", "errors"},
    "training": {"training", "core", "errors"},
    "links": {"links", "core", "errors"},
    "metrics": {"metrics", "errors"},
    "models": {"models", "core", "errors"},
    "data": {"data", "core", "errors"},
    "runtimes": {"runtimes", "core", "links", "errors"},
    "report": {"report", "metrics", "errors"},
    "tracking": {"tracking", "config", "errors"},
    "reproduce": {
        *("reproduce", "report", "metrics", "runtimes", "data", "errors"),
        *("run", "part", "stacking", "config", "tables", "changes", "display"),
    },
}
UNSAFE_MODULES = {"pickle", "cPickle", "dill", "marshal", "shelve", "joblib", "cloudpickle"}
UNSAFE_CALLS = {"eval", "exec", "torch.load", "yaml.load", "yaml.unsafe_load", "os.system"}
OPTIONAL = ["ray", "grpc", "triton", "mlflow", "plotly", "aiomqtt", "matplotlib"]


def imports(tree: ast.Module) -> set[str]:
    """The modules that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            if node.module == "coterie":
                found |= {f"coterie.{alias.name}" for alias in node.names}
    return found


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("part", ALLOWED)
def test_imports_point_one_way(part):
    for path, tree in TREES.items():
        if part_of(path) == part:
            used = {name.split(".")[1] for name in imports(tree) if name.startswith("coterie.")}
            assert used <= ALLOWED[part], path


@pytest.mark.parametrize("part", ["algorithms", "core"])
def test_algorithms_and_core_know_no_clock_socket_or_global_generator(part):
    for path, tree in TREES.items():
        if part_of(path) == part:
            assert not imports(tree) & {"os", "time", "socket", "random", "threading", "asyncio"}, (
                path
            )


def test_core_reads_no_files():
    core = {path.name: tree for path, tree in TREES.items() if part_of(path) == "core"}
    assert not [name for name, tree in core.items() if "pathlib" in imports(tree)]


def calls(tree: ast.Module) -> set[str]:
    """The names that a file calls, such as `torch.load`; methods of values are left out."""
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_is_unpickled_or_evaluated(path):
    assert not imports(TREES[path]) & UNSAFE_MODULES
    assert not calls(TREES[path]) & UNSAFE_CALLS
    assert "allow_pickle=True" not in path.read_text()


@pytest.mark.parametrize(
    "use, absent",
    [
        ("coterie.run", OPTIONAL),
        ("coterie.Config()", ["torch", "pandas", "sklearn"]),
        ("coterie.cli.app", ["torch", "pandas", "sklearn"]),
        (
            "import coterie.reproduce.library as known; known.titles(), known.data_sets()",
            ["torch", "pandas", "sklearn"],
        ),
    ],
)
def test_only_what_is_needed_is_imported(use, absent):
    code = (
        f"import sys, coterie, coterie.cli; {use}; print([m for m in {absent} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_all_public_names_are_in_all():
    assert all(getattr(coterie, name) for name in coterie.__all__)
    public = {
        name
        for name, value in vars(coterie).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public == set(coterie.__all__)


def test_type_checkers_see_the_public_names():
    tree = TREES[PACKAGE / "__init__.py"]
    seen = [
        alias.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for alias in n.names
    ]
    assert sorted(seen) == sorted(coterie.__all__)


def test_a_submodule_does_not_hide_the_public_name_that_it_shares():
    import coterie.algorithms
    import coterie.run

    assert coterie.run.__name__ == "run" and callable(coterie.run)
    assert "facade" in coterie.algorithms.entries


def bare(path: Path) -> list[str]:
    """The public classes and functions of a file that have no docstring."""
    missing = [] if ast.get_docstring(TREES[path]) or not path.read_text().strip() else ["the file"]
    for node in TREES[path].body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            missing += [] if ast.get_docstring(node) else [node.name]
    return missing


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_everything_public_has_a_docstring(path):
    assert not bare(path)


@pytest.mark.parametrize("name", coterie.__all__)
def test_public_methods_explain_themselves(name):
    value = getattr(coterie, name)
    if inspect.isclass(value):
        own = {k: v for k, v in vars(value).items() if inspect.isfunction(v) and k[0] != "_"}
        assert not [k for k in own if not inspect.getdoc(getattr(value, k))]


def test_every_algorithm_has_a_literal_reference():
    files = {path.stem for path in (ROOT / "tests/algorithms/reference").glob("*.py")}
    modules = {
        entry.build.__module__.rsplit(".", 1)[1]
        for entry in coterie.algorithms.entries.values()
        if entry.build.__module__.startswith("coterie.")
    }
    assert modules <= files


def test_every_algorithm_has_a_page_about_its_paper():
    pages = {path.stem for path in (ROOT / "docs" / "papers").glob("*.md")}
    files = {
        entry.build.__module__.rsplit(".", 1)[1] for entry in coterie.algorithms.entries.values()
    }
    assert files <= pages


def test_files_can_be_read_in_one_sitting():
    assert not [path.name for path in FILES if len(path.read_text().splitlines()) > 400]
