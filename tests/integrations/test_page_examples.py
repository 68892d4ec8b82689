"""The first example of each page in docs/frameworks runs as written, and prints what the page shows."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.frameworks.choosing import APART, is_apart
from support.readme import ROOT, blocks

from toolgate_integrations._registry import INTEGRATIONS

#: pages of frameworks whose agent is a program of its own, which needs an account
WITHOUT = {"claude-agent-sdk"}
PAGES = sorted(each.stem for each in (ROOT / "docs" / "frameworks").glob("*.md"))
HERE = [each for each in PAGES if (each.replace("-", "_") in APART) == is_apart() and each not in WITHOUT]


def test_there_is_a_page_for_every_framework() -> None:
    """FastMCP is on the page of MCP."""
    assert {each.replace("_", "-") for each in INTEGRATIONS} == {*PAGES, "fastmcp"}


@pytest.mark.parametrize("page", HERE)
def test_the_first_example_runs(page: str, tmp_path: Path) -> None:
    path = f"docs/frameworks/{page}.md"
    script = tmp_path / "example_of_the_page.py"
    script.write_text(blocks(path, "python")[0])
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.strip()] == blocks(path, "text")[0].splitlines()
    assert f"pip install 'toolgate[{page}]'" in (ROOT / path).read_text()
