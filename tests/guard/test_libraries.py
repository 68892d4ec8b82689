"""Which libraries the SDK and the command line import, and that they use only public names of HTTP libraries."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from support.lower_bounds import EXTRAS, PROJECT
from support.readme import ROOT

GUARD = ROOT / "guard"
FILES = sorted(GUARD.rglob("*.py"))
ACCESSORS = {"getattr", "setattr", "hasattr", "delattr"}
HTTP_LIBRARIES = ("httpx", "httpcore", "h11", "uvicorn")
PACKAGES = packages_distributions()
#: extras that may be imported besides the dependencies, by folder
OPTIONAL = {"toolgate": ["otel"], "toolgate_cli": ["cli", "demo"]}


@cache
def distributions_of(module: str) -> frozenset[str]:
    return frozenset(map(normalize, PACKAGES.get(module, [module])))


def normalize(name: str) -> str:
    """Return the name of a distribution in the form in which names are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def distributions(requirements: list[str]) -> set[str]:
    return {normalize(re.split(r"[\[<>=!;]", each, maxsplit=1)[0]) for each in requirements}


def imported(tree: ast.Module) -> Iterator[str]:
    """Yield the modules that a file imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            name = node.args[0]
            if isinstance(name, ast.Constant):
                yield str(name.value)


def is_private(name: str) -> bool:
    # Names like `_value_` are those of enums.
    return name.startswith("_") and not name.endswith("_")


def subclasses(tree: ast.Module) -> Iterator[ast.ClassDef]:
    """Yield the subclasses of classes of HTTP libraries."""
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            origin = node.module if isinstance(node, ast.ImportFrom) else None
            names |= {
                (alias.asname or alias.name).partition(".")[0]
                for alias in node.names
                if (origin or alias.name).partition(".")[0] in HTTP_LIBRARIES
            }
    for node in ast.walk(tree):
        bases = node.bases if isinstance(node, ast.ClassDef) else []
        if any(ast.unparse(base).partition(".")[0] in names for base in bases):
            assert isinstance(node, ast.ClassDef)
            yield node


def accessed(tree: ast.Module) -> Iterator[str]:
    """Yield the private attributes of other objects than `self`, and of `self` in subclasses of HTTP libraries."""
    for subclass in subclasses(tree):
        for node in ast.walk(subclass):
            if isinstance(node, ast.Attribute) and is_private(node.attr):
                yield node.attr
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and is_private(node.name):
                yield node.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            if ast.unparse(node.value) not in {"self", "cls"}:
                yield node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ACCESSORS:
            name = node.args[1]
            if isinstance(name, ast.Constant) and is_private(str(name.value)):
                yield str(name.value)


@cache
def private_names_of_libraries() -> frozenset[str]:
    """Return all private names of functions, classes, attributes and modules in the HTTP libraries."""
    found: set[str] = set()
    for library in HTTP_LIBRARIES:
        spec = importlib.util.find_spec(library)
        assert spec is not None
        assert spec.origin is not None
        for path in Path(spec.origin).parent.rglob("*.py"):
            found.add(path.stem)
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute):
                    found.add(node.attr)
                elif isinstance(node, ast.Name):
                    found.add(node.id)
                elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                    found.add(node.name)
    return frozenset(filter(is_private, found))


def violations(tree: ast.Module) -> list[str]:
    """Return the private names of HTTP libraries that a file uses."""
    modules = [
        module
        for module in imported(tree)
        if module.partition(".")[0] in HTTP_LIBRARIES and any(map(is_private, module.split(".")))
    ]
    return modules + [name for name in accessed(tree) if name in private_names_of_libraries()]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(GUARD)))
def test_file_uses_no_private_name_of_an_http_library(path: Path) -> None:
    assert violations(ast.parse(path.read_text())) == []


@pytest.mark.parametrize(
    "code",
    [
        "client._transport",
        "client._transport._pool.connections",
        "getattr(transport, '_pool')",
        "from httpx._client import Client",
        "from httpcore import _sync",
        "import uvicorn.protocols._impl",
        "import_module('httpx._main')",
        "import httpx\nclass Own(httpx.HTTPTransport):\n  def __init__(self): self._pool = 1",
        "from uvicorn import Server as S\nclass Own(S):\n  def f(self): self._captured_signals",
        "from uvicorn import Server\nclass Own(Server):\n  def _serve(self): pass",
    ],
)
def test_private_name_is_found(code: str) -> None:
    assert violations(ast.parse(code))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(GUARD)))
def test_file_imports_only_declared_distributions(path: Path) -> None:
    package = path.relative_to(GUARD).parts[0]
    requirements = list(PROJECT["dependencies"])
    requirements += [each for extra in OPTIONAL[package] for each in EXTRAS[extra]]
    if path.is_relative_to(GUARD / "toolgate" / "testing"):
        # The plugin of pytest, which loads it.
        requirements.append("pytest")
    # The extra `demo` installs the package for agents through that of another one.
    declared = distributions(requirements) | ({"langchain"} if package == "toolgate_cli" else set())
    for module in imported(ast.parse(path.read_text())):
        top = module.partition(".")[0]
        if top in sys.stdlib_module_names or top.startswith("toolgate"):
            continue
        assert distributions_of(top) & declared, f"{module} is not declared"
