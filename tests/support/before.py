"""The gateway of the version before, from this repository's history: its own code on whatever database."""

import os
import subprocess
import tarfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import pytest

from support.forking import Forked
from support.gateway import LiveGateway
from support.readme import ROOT

#: names the commit of the version before
NAMED = ROOT / "tests" / "service" / "upgrades" / "before.txt"
PACKAGES = ("guard", "integrations", "service")


def unpacked(folder: Path) -> Path:
    """Return a folder with the code of the version before; without this repository's history the test is skipped."""
    commit = NAMED.read_text().split()[0]
    known = _git("cat-file", "-e", f"{commit}^{{commit}}")
    if known is None or known.returncode != 0:
        pytest.skip(f"the version before, commit {commit}, is not here: no git history of this repository")
    packed = _git("archive", "--format=tar", commit, "pyproject.toml", *PACKAGES)
    assert packed is not None
    assert packed.returncode == 0, packed.stderr
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    _say_what_is_installed(folder)
    return folder


class GatewayBefore(LiveGateway):
    """`toolgate serve` of the version before.

    Args:
        code: where `unpacked` put it.
        folder: stands for its data.
        env: settings beside the database and the secret.
    """

    def __init__(self, code: Path, folder: Path, *, env: Mapping[str, str]) -> None:
        path = os.pathsep.join(str(code / name) for name in (*PACKAGES, "installed"))
        super().__init__(folder, env={"PYTHONPATH": path, "PYTHONSAFEPATH": "1", **env}, prefix=())

    def _read_summary(self, process: subprocess.Popen[str] | Forked) -> str:
        # That version prints a single line.
        assert process.stdout is not None
        return process.stdout.readline()


@dataclass(frozen=True, slots=True)
class Versions:
    """The version before and this one, on one database."""

    before: LiveGateway
    now: LiveGateway


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes] | None:
    try:
        return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, check=False)
    except FileNotFoundError:
        return None


def _say_what_is_installed(folder: Path) -> None:
    """Write the metadata of an installation: the entry points are that version's too."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    about = folder / "installed" / f"toolgate-{project['version']}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: toolgate\nVersion: {project['version']}\n")
    groups = project["entry-points"] | {"console_scripts": project["scripts"]}
    lines = [
        line
        for group, names in groups.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in names.items()))
    ]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
