"""Which tests there are, by their full names: pytest is asked, in a process of its own, and runs none of them.

This module is that process's plugin as well: it prints every test, before those for the other kind of database are
left out.
"""

import os
import subprocess
import sys
from collections.abc import Iterable
from functools import cache

import pytest

from support.readme import ROOT

TESTS = ROOT / "tests"


# First: the hook in tests/conftest.py leaves some of them out.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Print the name of every test."""
    sys.stdout.writelines(f"{item.nodeid}\n" for item in items)


def collected(names: Iterable[str]) -> frozenset[str]:
    """Return every test in the files of some tests, each with and without its case.

    Args:
        names: for instance ``service/accounts/test_login.py::test_x[case]``; what is in no file is in no answer.
    """
    files = {name.partition("::")[0] for name in names}
    return _in_files(frozenset(file for file in files if (TESTS / file).is_file()))


@cache
def _in_files(files: frozenset[str]) -> frozenset[str]:
    if not files:
        return frozenset()
    plugins = ["-p", "support.collected", "-p", "no:cacheprovider", "-p", "no:schemathesis"]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-s", *plugins]
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
    ids = [line.removeprefix("tests/") for line in listed.stdout.splitlines() if line.startswith("tests/")]
    return frozenset(ids) | {name.partition("[")[0] for name in ids}
