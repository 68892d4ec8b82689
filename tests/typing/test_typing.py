from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def mypy(file: Path) -> set[int]:
    """Lines of `file` mypy reports as errors, in strict mode."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--output", "json", "--no-error-summary", str(file)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.stderr == ""
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert {each["file"] for each in found} <= {str(file.relative_to(ROOT)), str(file)}, found
    return {each["line"] for each in found if each["severity"] == "error"}


def pyright(file: Path) -> set[int]:
    """Lines of `file` pyright reports as errors, in strict mode."""
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", str(file)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == 1
    return {
        each["range"]["start"]["line"] + 1
        for each in report["generalDiagnostics"]
        if each["severity"] == "error"
    }


CHECKERS = pytest.mark.parametrize("checker", [mypy, pyright], ids=lambda checker: checker.__name__)


@CHECKERS
def test_right_code_is_accepted(checker: object) -> None:
    """Every right use passes strict checking, with the types of the undecorated functions."""
    assert checker(HERE / "accepted.py") == set()  # type: ignore[operator]  # one of two functions


@CHECKERS
def test_wrong_code_is_rejected(checker: object) -> None:
    """Each wrong use is reported at its own line, and nothing else is."""
    file = HERE / "rejected.py"
    marked = {
        number
        for number, line in enumerate(file.read_text().splitlines(), start=1)
        if line.endswith("# rejected")
    }
    assert checker(file) == marked  # type: ignore[operator]  # one of two functions
    assert len(marked) > 20
