"""Which tests there are, by their full names.

The run that asks has mostly collected them itself. Of other files pytest is asked in a process of its own, and runs
none of them; this module is that process's plugin as well: it prints every test, before those for the other kind of
database are left out.
"""

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
    files = {name.partition("::")[0] for name in names}
    ids = {name for file in files for name in _HERE.get(file, ())}
    ids |= _in_files(frozenset(file for file in files if file not in _HERE and (TESTS / file).is_file()))
    return frozenset(ids) | {name.partition("[")[0] for name in ids}


@cache
def _in_files(files: frozenset[str]) -> frozenset[str]:
    if not files:
        return frozenset()
    plugins = ["-p", "support.collected", "-p", "no:cacheprovider", "-p", "no:schemathesis"]
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
