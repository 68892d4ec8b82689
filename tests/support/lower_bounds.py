"""The direct dependencies of the SDK, the command line and the gateway, and the versions that are their lower bounds."""

import re
import tomllib
from typing import Any

from support.readme import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def own_extras() -> list[str]:
    """Return the extras that `make test-oldest-own` installs."""
    [found] = re.findall(r"^OWN_EXTRAS := (\S+)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    return str(found).split(",")


def own_requirements() -> list[str]:
    """Return the requirements of the project and of these extras, without references to other extras."""
    requirements = {*PROJECT["dependencies"]}.union(*(EXTRAS[extra] for extra in own_extras()))
    return sorted(each for each in requirements if not each.startswith("toolgate["))


def lower_bound(requirement: str) -> tuple[str, str]:
    """Return the name and the lowest version that a requirement allows."""
    match = re.match(r"([\w-]+)(?:\[[\w,]+\])?>=([\d.]+)(?=[,;]|$)", requirement)
    assert match, f"{requirement!r} has no lower bound: write 'name>=version'"
    return match[1], match[2]
