"""`toolgate config check` names the packages without which `toolgate serve` does not start."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.serving import environment

#: runs the command line as if a package and all below it were not installed
_WITHOUT = """
import sys
from toolgate_cli.app import app

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
app(sys.argv[2:])
"""


def run_without(package: str, home: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _WITHOUT, package, *words]
    return subprocess.run(
        command, env=environment(home, variables), capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("package", ["uvicorn", pytest.param("httptools", marks=pytest.mark.slow)])
def test_config_check_fails_where_serve_would(tmp_path: Path, package: str) -> None:
    ended = run_without(package, tmp_path, "config", "check")
    assert ended.returncode == 1
    assert (
        f"No module named '{package}" in ended.stdout + ended.stderr
        or f"'{package}' is missing" in ended.stderr
    )
    assert "toolgate[service]" in ended.stdout + ended.stderr
