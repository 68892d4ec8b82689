"""What pyproject.toml declares about the oldest and newest versions of dependencies."""

import re

import pytest
from support.lower_bounds import EXTRAS, lower_bound, own_extras, own_requirements
from support.readme import ROOT

FRAMEWORKS = {path.stem.replace("_", "-") for path in (ROOT / "tests/integrations/oldest").glob("*.txt")}


def test_every_extra_is_tested_with_its_oldest_versions() -> None:
    """Each is one of `make test-oldest-own` or of a framework, which `make test-oldest` runs by itself."""
    assert {*own_extras(), *FRAMEWORKS, "demo"} == set(EXTRAS)


@pytest.mark.parametrize("requirement", own_requirements())
def test_dependency_has_a_lower_bound(requirement: str) -> None:
    name, bound = lower_bound(requirement)
    assert name
    assert re.fullmatch(r"\d+(\.\d+)*", bound)


@pytest.mark.parametrize("name", ["cel-expr-python", "httpcore", "httptools", "httpx", "uvicorn"])
def test_dependency_whose_private_parts_are_used_has_an_upper_bound(name: str) -> None:
    """The SDK reads pools and transports of httpx; the gateway's connections are subclasses of uvicorn's.

    The gateway also decodes the syntax trees of cel-expr-python.
    """
    [requirement] = [each for each in own_requirements() if lower_bound(each)[0] == name]
    assert re.search(r",<[\d.]+(?=;|$)", requirement)


def test_versions_page_has_the_declared_bounds() -> None:
    """docs/operate/dependencies.md lists each dependency with its oldest version and the version that it must be below."""
    rows = re.findall(
        r"^\| `([\w-]+)` \| ([\d.]+) \| (—|[\d.]+) \| (.+?) \|",
        (ROOT / "docs/operate/dependencies.md").read_text(),
        re.MULTILINE,
    )
    declared = set()
    for requirement in own_requirements():
        name, bound = lower_bound(requirement)
        below = re.search(r",<([\d.]+)(?=;|$)", requirement)
        extras = ", ".join(f"`{extra}`" for extra in sorted(own_extras()) if requirement in EXTRAS[extra])
        declared.add((name, bound, below[1] if below else "—", extras or "always"))
    assert set(rows) == declared
