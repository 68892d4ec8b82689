"""Which tests there are, by their full names.

The run that asks has mostly collected them itself. In other files those without a case are read as they are written: the
frameworks of plugins take long to import, and another part of the tests collects them. Of cases pytest is asked in a
process of its own, and runs none of them; this module is that process's plugin as well: it prints every test, before
those for the other kind of database are left out.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Iterable
from functools import cache

import pytest

from support.readme import ROOT

TESTS = ROOT / "tests"
#: what this run has collected of files that it was to collect whole
_HERE: dict[str, set[str]] = {}


# First: the hook in tests/conftest.py leaves some of them out.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Print the name of every test."""
    sys.stdout.writelines(f"{item.nodeid}\n" for item in items)


def note(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Remember what this run has collected, before anything is left out."""
    if not any("::" in argument for argument in config.args):
        for item in items:
            name = item.nodeid.removeprefix("tests/")
            _HERE.setdefault(name.partition("::")[0], set()).add(name)


def collected(names: Iterable[str]) -> frozenset[str]:
    """Return every test in the files of some tests, each with and without its case.

    Args:
        names: for instance ``service/accounts/test_login.py::test_x[case]``; what is in no file is in no answer.
    """
    asked = [(name.partition("::")[0], "[" in name) for name in names]
    ids = {name for file, _ in asked for name in _HERE.get(file, ())}
    others = [(file, case) for file, case in asked if file not in _HERE and (TESTS / file).is_file()]
    cases = frozenset(file for file, case in others if case)
    ids |= _in_files(cases)
    for file in {file for file, _ in others} - cases:
        ids |= _written(file)
    return frozenset(ids) | {name.partition("[")[0] for name in ids}


def _written(file: str) -> frozenset[str]:
    """Return the tests that stand at the left margin of a file."""
    tree = ast.parse((TESTS / file).read_text())
    functions = [each for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    return frozenset(f"{file}::{each.name}" for each in functions if each.name.startswith("test"))


@cache
def _in_files(files: frozenset[str]) -> frozenset[str]:
    if not files:
        return frozenset()
    plugins = ["-p", "support.collected", "-p", "no:cacheprovider"]
    # Of the behaviour suite one framework that is quickly imported: each is held to the same tests.
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-s", "--framework=recipe", *plugins]
    listed = subprocess.run(
        [*command, *sorted(f"tests/{file}" for file in files)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert listed.returncode == 0, (
        f"the tests that the tables name cannot be collected:\n{listed.stdout[-3000:]}"
    )
    lines = listed.stdout.splitlines()
    return frozenset(line.removeprefix("tests/") for line in lines if line.startswith("tests/"))
