"""Which frameworks are installed, and which of them a plugin can guard."""

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from support.frameworks.choosing import APART, is_apart
from support.readme import ROOT
from support.sites import site

from toolgate_integrations._registry import (
    INTEGRATIONS,
    KNOWN,
    UNGUARDED,
    Found,
    next_series,
    normal,
    order,
    series,
    survey,
)

PARTS = {part.distribution: part for one in INTEGRATIONS.values() for part in one.parts}


def found(folder: Path, **versions: str | None) -> list[Found]:
    return survey([str(site(folder, **versions))])


@pytest.mark.parametrize(
    ("distribution", "installed", "state", "cure"),
    [
        ("openai_agents", "0.12.1", "covered", None),
        ("openai_agents", "0.24.0", "covered", None),
        ("openai_agents", "0.24.3", "untested", None),
        ("openai_agents", "0.25.0", "too new", "pip install 'openai-agents<0.25'"),
        ("openai_agents", "0.25.0b1", "too new", "pip install 'openai-agents<0.25'"),
        ("openai_agents", "1!0.20", "too new", "pip install 'openai-agents<0.25'"),
        ("openai_agents", "0.12.1rc1", "too old", "pip install 'toolgate[openai-agents]'"),
        ("openai_agents", "0.12.0", "too old", "pip install 'toolgate[openai-agents]'"),
        ("openai_agents", "what is this", "too old", "pip install 'toolgate[openai-agents]'"),
        ("openai_agents", None, "unknown", "pip install --force-reinstall openai-agents"),
        ("mcp", "2.900", "untested", None),
        ("mcp", "3.0.0.dev1", "too new", "pip install 'mcp<3'"),
        ("mcp", "1.30.0", "too old", "pip install 'toolgate[mcp]'"),
        ("fastmcp_slim", "4.1.2", "incomplete", "pip install 'toolgate[fastmcp]'"),
        ("langgraph", "1.2.22", "incomplete", "pip install 'toolgate[langchain]'"),
        ("griptape", "1.9.0", "no plugin", "guard the tool functions"),
        ("google_genai", "1.60.0", "no plugin", "guard the tool functions"),
    ],
)
def test_what_is_installed_is_judged(
    tmp_path: Path, distribution: str, installed: str | None, state: str, cure: str | None
) -> None:
    """Below the oldest, beyond the tested series, in part or without a plugin: it is said, and what to do."""
    [one] = found(tmp_path, **{distribution: installed})
    assert (one.framework, one.version, one.state) == (normal(distribution), installed, state)
    assert one.guarded == (state in {"covered", "untested"})
    assert (one.cure is None) == (cure is None)
    assert cure is None or (one.cure or "").startswith(cure)


def test_a_framework_in_two_distributions_is_two(tmp_path: Path) -> None:
    """Each has its own version and its own verdict; what only brings another along is not named beside it."""
    seen = found(tmp_path, langchain="1.4.7", langgraph="1.0.1", fastmcp="4.1.2", fastmcp_slim="4.1.2")
    assert [(one.framework, one.state) for one in seen] == [
        ("fastmcp", "covered"),
        ("langchain", "covered"),
        ("langgraph", "too old"),
    ]


def test_nothing_installed_is_nothing_found(tmp_path: Path) -> None:
    """Distributions that run no tools are nobody's business here."""
    assert found(tmp_path, numpy="2.4.6", langchain_core="1.7.2") == []


def test_the_first_on_the_path_is_the_one(tmp_path: Path) -> None:
    """As with imports."""
    first, second = site(tmp_path / "a", griptape="1.0"), site(tmp_path / "b", griptape="2.0", letta="0.6")
    seen = survey([str(first), str(second)])
    assert [(one.framework, one.version) for one in seen] == [("griptape", "1.0"), ("letta", "0.6")]


@pytest.mark.parametrize(("name", "written"), [("Llama_Index.Core", "llama_index_core"), (" MCP ", "mcp")])
def test_names_are_written_in_many_ways(tmp_path: Path, name: str, written: str) -> None:
    """A distribution is known however its name is written."""
    [one] = found(tmp_path, **{written: "2.0"})
    assert one.framework == normal(name)


def test_metadata_that_cannot_be_read_does_not_hide_a_framework(tmp_path: Path) -> None:
    """It is here, whatever its files are."""
    made = tmp_path / "letta-1.0.dist-info"
    made.mkdir()
    (made / "METADATA").write_bytes(b"\xff\xfe\x00")
    [one] = survey([str(tmp_path)])
    assert (one.framework, one.version, one.guarded) == ("letta", None, False)


def test_the_frameworks_of_these_tests_are_covered() -> None:
    """In this environment too, and each in the newest version that is said to be tested."""
    seen = {one.framework: one for one in survey()}
    here = [one for one in INTEGRATIONS.values() if (one.identifier in APART) == is_apart()]
    for part in (part for one in here for part in one.parts):
        name = part.distribution
        assert (seen[name].state, seen[name].version) == ("covered", part.tested), name


def test_nothing_is_imported() -> None:
    """Frameworks take seconds to import, and do as they please then."""
    code = (
        "import sys; from toolgate_integrations._registry import survey; assert survey(); "
        f"print(sorted(sys.modules.keys() & {sorted(each.replace('-', '_') for each in KNOWN)!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"


def test_who_has_a_plugin_is_not_among_those_who_have_none() -> None:
    """Whoever writes a plugin takes its framework off the list."""
    assert PARTS.keys() & UNGUARDED.keys() == set()
    assert {normal(each) for each in KNOWN} == KNOWN


def test_the_page_names_the_versions() -> None:
    """The table has each distribution of each plugin, its oldest version and the newest tested."""
    said: dict[str, tuple[str, str]] = {}
    for line in (ROOT / "docs" / "reference" / "framework-versions.md").read_text().splitlines():
        cells = line.split("|")
        oldest = re.findall(r"`([\w-]+)` (\d[\d.]*)", cells[2]) if len(cells) > 4 else []
        newest = re.findall(r"\d[\d.]*", cells[3]) if oldest else []
        said |= {
            name: (old, new) for (name, old), new in zip(oldest, newest, strict=True) if name not in said
        }
    assert {name: (order(old), new) for name, (old, new) in said.items()} == {
        part.distribution: (order(part.minimum), part.tested) for part in PARTS.values()
    }


@pytest.mark.parametrize("identifier", INTEGRATIONS)
def test_the_oldest_are_what_is_tested_as_the_oldest(identifier: str) -> None:
    """`make test-oldest` installs exactly these."""
    text = (ROOT / "tests" / "integrations" / "oldest" / f"{identifier}.txt").read_text()
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)$", text, flags=re.MULTILINE))
    for part in INTEGRATIONS[identifier].parts:
        assert order(pinned[part.distribution]) == order(part.minimum), part


@pytest.mark.parametrize("identifier", INTEGRATIONS)
def test_extras_bring_all_that_a_plugin_needs(identifier: str) -> None:
    """The cure cures."""
    from importlib.metadata import requires

    integration, extra = INTEGRATIONS[identifier], identifier.replace("_", "-")
    wanted = {f"{part.distribution}>={part.minimum}; extra == '{extra}'" for part in integration.parts}
    assert wanted <= {each.replace('"', "'") for each in requires("toolgate") or []}
    assert integration.cure == f"pip install 'toolgate[{extra}]'"


@pytest.mark.parametrize(
    ("text", "numbers", "after"),
    [
        ("1.4.7", (0, 1), "2"),
        ("0.24.0", (0, 0, 24), "0.25"),
        ("0.0.3", (0, 0, 0, 3), "0.0.4"),
        ("2", (0, 2), "3"),
        ("1!2.3", (1, 2), "1!3"),
    ],
)
def test_a_series_is_what_nothing_is_broken_within(text: str, numbers: tuple[int, ...], after: str) -> None:
    """Before 1.0 the second number is the one that warns."""
    assert series(text) == numbers
    assert next_series(text) == after
    assert order(after) > order(text)


def test_the_version_here_is_a_version() -> None:
    """The comparison is about what is installed, and not about nothing."""
    assert order(version("mcp")) >= order("2.0")
