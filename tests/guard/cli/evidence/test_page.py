"""The commands of the page "Evidence for auditors", in order, do what the page shows."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.command_line import CommandLine
from support.gateway import Owner
from support.readme import ROOT, blocks
from support.verified_log import until_sealed

pytestmark = pytest.mark.sqlite_only("commands speak HTTP: which database is behind it they cannot see")

PAGE = "docs/guides/evidence.md"


def read_steps() -> list[tuple[str, list[str]]]:
    """Return each command of the page with the lines that the page shows."""
    text = "".join(blocks(PAGE, "console"))
    steps = (step.partition("\n") for step in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:])
    return [(command, shown.splitlines()) for command, _, shown in steps]


def test_commands_of_the_page_print_what_the_page_shows(owner: Owner, tmp_path: Path) -> None:
    agent = owner.agent("support-bot")
    owner.permit(agent, "mail.send", requires_approval=True)
    request = owner.check(agent, "mail.send", {"to": "ann@example.com"}).json()["approval_id"]
    owner.http.post(f"/api/approvals/{request}/approve").raise_for_status()
    until_sealed(owner)
    user = CommandLine(tmp_path / "home")
    user.log_in(owner)
    folder = tmp_path
    env = user.env | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "200"}
    steps = read_steps()
    assert len(steps) == 6
    for command, shown in steps:
        if command.startswith("cd "):
            folder /= command.removeprefix("cd ")
            continue
        done = subprocess.run(
            ["sh", "-c", command], cwd=folder, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done
        printed = (done.stdout + done.stderr).splitlines()
        expected = shown[:-1] if shown[-1:] == ["…"] else shown
        assert printed[: len(expected)] == expected, done
        assert len(printed) == len(expected) or expected != shown, done


def test_table_of_the_page_names_the_files_of_an_archive(owner: Owner, tmp_path: Path) -> None:
    owner.agent()
    until_sealed(owner)
    user = CommandLine(tmp_path / "home")
    user.log_in(owner)
    path = tmp_path / "evidence.zip"
    assert user.run("evidence", "--from", "1h", "--output", str(path)).returncode == 0
    with zipfile.ZipFile(path) as archive:
        names = {*archive.namelist()} - {"verify/NOT-INCLUDED.txt"}
    text = (ROOT / PAGE).read_text()
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []
