"""The verifier without the rest of Toolgate."""

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support.transparency import LogBuilder, Signer

from toolgate_cli.log import verification

FOLDER = Path(verification.__file__).parent
EXPORT = LogBuilder(Random(6)).build(30).export(pending=False)


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Run a copy of the verifier in a folder that contains nothing else."""
    shutil.copytree(FOLDER, tmp_path / "verification", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "export.ndjson").write_bytes(b"".join(EXPORT.lines()))

    def run(*arguments: str, code: int = 0) -> str:
        command = [sys.executable, "-E", "-s", "verification", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    return run


def test_only_the_standard_library_and_cryptography_are_imported() -> None:
    modules = set()
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules |= {each.name.partition(".")[0] for each in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level in {0, 1}
                modules |= set() if node.level else {str(node.module).partition(".")[0]}
    assert modules - sys.stdlib_module_names == {"cryptography"}


def test_export_is_verified(run: Any) -> None:
    assert "verified: export" in run("export.ndjson", "--state", "state.json", "--key", EXPORT.signer.vkey)
    assert (
        json.loads(run("export.ndjson", "--state", "state.json", "--json"))["counts"]["earlier checkpoints"]
        == 1
    )


def test_findings_and_gaps_set_the_exit_code(run: Any) -> None:
    assert "1 of the" not in run("export.ndjson", "--fail-on-gaps", code=1)
    other = Signer(EXPORT.origin, bytes(32)).vkey
    assert "NOT VERIFIED" in run("export.ndjson", "--key", other, code=1)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["missing.ndjson"],
        ["export.ndjson", "--key", "x"],
        ["export.ndjson", "--state", "export.ndjson"],
        ["export.ndjson", "--witnesses", "1"],
        ["export.ndjson", "--witness", EXPORT.signer.vkey],
        ["export.ndjson", "--key", Signer(EXPORT.origin, bytes(32), 4).vkey],
    ],
)
def test_wrong_usage_ends_with_2(run: Any, arguments: list[str]) -> None:
    run(*arguments, code=2)
