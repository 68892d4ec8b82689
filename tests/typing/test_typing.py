from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def mypy(*files: Path) -> dict[str, set[int]]:
    """Lines of files mypy reports as errors in strict mode, by the file's name."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--output", "json", "--no-error-summary", *map(str, files)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.stderr == ""
    lines: dict[str, set[int]] = {file.name: set() for file in files}
    for each in map(json.loads, done.stdout.splitlines()):
        assert ROOT / each["file"] in files, each
        if each["severity"] == "error":
            lines[Path(each["file"]).name].add(each["line"])
    return lines


def pyright(*files: Path) -> dict[str, set[int]]:
    """Lines of files pyright reports as errors in strict mode, by the file's name."""
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", *map(str, files)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == len(files)
    lines: dict[str, set[int]] = {file.name: set() for file in files}
    for each in report["generalDiagnostics"]:
        if each["severity"] == "error":
            lines[Path(each["file"]).name].add(each["range"]["start"]["line"] + 1)
    return lines


@functools.cache
def reported(checker: Callable[..., dict[str, set[int]]]) -> dict[str, set[int]]:
    """What a checker reports of both files: in one go, since most of its time is its start."""
    return checker(HERE / "accepted.py", HERE / "rejected.py")


CHECKERS = pytest.mark.parametrize(
    "checker", [mypy, pytest.param(pyright, marks=pytest.mark.slow)], ids=lambda checker: checker.__name__
)


@CHECKERS
def test_right_code_is_accepted(checker: Callable[..., dict[str, set[int]]]) -> None:
    """Every right use passes strict checking, with the types of the undecorated functions."""
    assert reported(checker)["accepted.py"] == set()


@CHECKERS
def test_wrong_code_is_rejected(checker: Callable[..., dict[str, set[int]]]) -> None:
    """Each wrong use is reported at its own line, and nothing else is."""
    file = HERE / "rejected.py"
    marked = {
        number
        for number, line in enumerate(file.read_text().splitlines(), start=1)
        if line.endswith("# rejected")
    }
    assert reported(checker)["rejected.py"] == marked
    assert len(marked) > 20
