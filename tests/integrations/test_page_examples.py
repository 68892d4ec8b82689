"""The pages of docs/frameworks have one shape, and their examples print what the pages show."""

import inspect
import re
import warnings
from importlib import import_module
from pathlib import Path

import pytest
from support.framework_pages import HEADINGS, Page, normalize, pages, run_here
from support.frameworks.choosing import APART, is_apart
from support.readme import ROOT, section

from toolgate_integrations._registry import INTEGRATIONS

PAGES = {page.name: page for page in pages()}
#: pages whose example `make test` runs; the behaviour suite runs every plugin anyway
FIRST = {"langchain", "openai-agents", "pydantic-ai", "mcp", "claude-code", "crewai", "openapi"}
HERE = [name for name in PAGES if (name.replace("-", "_") in APART) == is_apart()]
LINKING = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
]
#: pages of what is no framework of the registry
OTHERS = {"claude-code", "mcp-proxy", "opencode", "openapi"}
#: the callable whose parameters a page lists as options
ENTRY_POINTS = {
    "adk": "GuardPlugin",
    "agent-framework": "GuardMiddleware",
    "agno": "guard_agent",
    "anthropic": "guard_tools",
    "autogen": "GuardedWorkbench",
    "claude-agent-sdk": "guard_options",
    "crewai": "GuardHooks",
    "dspy": "guard_tools",
    "fastmcp": "GuardMiddleware",
    "haystack": "guard_hooks",
    "langchain": "GuardMiddleware",
    "llamaindex": "guard_agent",
    "mcp": "GuardExtension",
    "openai-agents": "guard_agent",
    "openapi": "GuardTransport",
    "pydantic-ai": "GuardCapability",
    "semantic-kernel": "guard_kernel",
    "smolagents": "guard_agent",
    "strands": "GuardPlugin",
}
#: parameters that are no options: the guarded object, which comes first, and a deprecated name
NO_OPTIONS = {"tools", "kernel", "options", "workbench", "transport", "document", "agent_name"}
#: words that only these pages avoid, in addition to those of `support.wording`
AVOIDED = re.compile(r"\b(told|held|withdrawn|carried out)\b", re.IGNORECASE)


def test_there_is_a_page_for_every_framework() -> None:
    assert {each.replace("_", "-") for each in INTEGRATIONS} | OTHERS == set(PAGES)


@pytest.mark.parametrize("page", PAGES.values(), ids=list(PAGES))
def test_pages_have_the_same_shape(page: Page) -> None:
    """Title, one sentence, install line, example and output come before the sections."""
    assert re.findall(r"^#{2,} (.+)$", page.text, flags=re.MULTILINE) == HEADINGS
    head, approvals, *rest = re.split(r"^## .+$", page.text, flags=re.MULTILINE)
    title, sentence, *_ = head.split("\n\n")
    assert title.startswith("# ")
    assert re.fullmatch(r"[A-Z`][^!?]*\.", sentence)
    assert len(re.findall(r"\.\s", sentence + "\n")) == 1
    assert re.findall(r"^```(\w+)$", head, flags=re.MULTILINE) == ["sh", "python", "text"]
    assert re.findall(r"^```(\w+)$", approvals, flags=re.MULTILINE) == ["python", "text"]
    assert "```" not in "".join(rest)
    assert len(page.text.split()) < 1200


@pytest.mark.parametrize("page", PAGES.values(), ids=list(PAGES))
def test_pages_use_the_terms_of_the_glossary(page: Page) -> None:
    assert AVOIDED.findall(page.prose) == []


@pytest.mark.parametrize(
    "page", [PAGES[name] for name in PAGES if name not in OTHERS], ids=lambda page: page.name
)
def test_the_install_line_names_the_extra(page: Page) -> None:
    assert page.install.startswith("pip install './toolgate[")
    assert page.name in page.extras
    assert f"toolgate_integrations.{page.name.replace('-', '_')}" in page.text


def _anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", LINKING, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(path: Path) -> None:
    text = re.sub(r"^```.*?^```$|`[^`\n]*`(?!\])", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        assert found.exists(), target
        assert not anchor or anchor in _anchors(found.read_text()), target


@pytest.mark.parametrize("name", [name for name in HERE if name in ENTRY_POINTS])
def test_the_page_lists_every_option(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # frameworks warn while they are imported
        module = import_module(f"toolgate_integrations.{name.replace('-', '_')}")
    parameters = list(inspect.signature(getattr(module, ENTRY_POINTS[name])).parameters)
    options = set(parameters[1:] if parameters[0] == "agent" else parameters) - NO_OPTIONS
    rows = re.findall(r"^\| `(\w+)` \|", section(f"docs/frameworks/{name}.md", "Options"), flags=re.MULTILINE)
    assert set(rows) == options


@pytest.mark.parametrize(
    "name", [name if name in FIRST else pytest.param(name, marks=pytest.mark.slow) for name in HERE]
)
def test_the_examples_print_what_the_page_shows(name: str, tmp_path: Path) -> None:
    page = PAGES[name]
    assert normalize(run_here(page, tmp_path)) == normalize(page.output)
