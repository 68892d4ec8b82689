"""The documentation site: navigation, links, strict build, search without a network."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, sync_playwright
from support.browser import chromium
from support.readme import ROOT
from support.site.links import find_dead_links
from support.site.navigation import DOCS, find_navigation_errors
from support.site.reference import PAGES

import toolgate
from toolgate import errors
from toolgate_service.checks.decide import _REASON_CODES
from toolgate_service.core.errors import CODES


def test_every_page_is_in_the_navigation_once() -> None:
    assert find_navigation_errors() == []


def test_links_to_files_of_the_repository_lead_somewhere() -> None:
    assert find_dead_links() == []


@pytest.fixture(scope="module")
def site() -> None:
    """Build the site in strict mode, as `make docs` does; `make test` has just built it."""
    if _is_current(ROOT / "site" / "index.html"):
        return
    built = subprocess.run(
        [sys.executable, "-m", "support.site"],
        cwd=ROOT / "tests",
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr


def _is_current(built: Path) -> bool:
    sources = [
        path
        for folder in ("docs", "guard", "integrations", "service", "examples", "tests/support/site")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    ]
    newest = max(path.stat().st_mtime for path in (*sources, *ROOT.glob("*.*")))
    return built.exists() and built.stat().st_mtime > newest


@pytest.mark.usefixtures("site")
def test_search_works_from_a_folder_without_a_network() -> None:
    """The built page asks no other server for anything, and its search finds a page."""
    asked: list[str] = []

    def refuse(route: Route) -> None:
        asked.append(route.request.url)
        route.abort()

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        page: Page = browser.new_page()
        page.route("http*://**", refuse)
        page.goto((ROOT / "site" / "index.html").as_uri())
        page.locator(".md-search__button").click()
        page.get_by_role("combobox").fill("outbox")
        page.get_by_role("option").filter(has_text="Durable log entries").first.wait_for()
        browser.close()
    assert asked == []


@pytest.mark.parametrize("page", PAGES)
def test_generated_page_is_current(page: str) -> None:
    """`make docs` writes the generated pages."""
    assert (DOCS / page).read_text() == PAGES[page](), f"docs/{page} is not current: run make docs"


def test_reference_of_the_sdk_has_every_public_name() -> None:
    names = set(re.findall(r"^::: toolgate\.(\w+)$", (DOCS / "reference/sdk.md").read_text(), re.MULTILINE))
    assert {*names, *errors.__all__} == set(toolgate.__all__)
    page = (DOCS / "reference/errors.md").read_text()
    assert set(re.findall(r"^::: toolgate\.errors\.(\w+)$", page, re.MULTILINE)) == set(errors.__all__)


def test_errors_page_has_every_code() -> None:
    page = (DOCS / "reference/errors.md").read_text()
    codes = {"allowed", *_REASON_CODES.values(), *CODES.values()}
    assert {code for code in codes if f"`{code}`" not in page} == set()


@pytest.mark.parametrize("folder", ["get-started", "guides", "frameworks", "operate"])
def test_no_page_installs_the_package_of_another_project(folder: str) -> None:
    """The `toolgate` on PyPI is another project, so commands name the folder of the checkout."""
    pages = set((DOCS / folder).rglob("*.md"))
    assert pages
    unsafe = re.compile(r"^(?:\$ )?pip install .*(?<![./])\btoolgate\b(?!/)", re.MULTILINE)
    assert {
        page.name: unsafe.findall(page.read_text()) for page in pages if unsafe.search(page.read_text())
    } == {}


@pytest.mark.parametrize(
    "folder",
    [
        "get-started",
        "guides",
        "frameworks/custom",
        "frameworks/details",
        "operate",
        "concepts",
        "internals",
    ],
)
def test_pages_are_short(folder: str) -> None:
    words = {page.name: len(page.read_text().split()) for page in (DOCS / folder).glob("*.md")}
    assert words
    assert {page: number for page, number in words.items() if number > 1200} == {}
