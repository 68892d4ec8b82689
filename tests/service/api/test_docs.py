"""GET /docs: a page that loads nothing from other hosts."""

import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

import toolgate_service.api.openapi

VENDORED = Path(toolgate_service.api.openapi.__file__).parent / "swagger_ui"


class Elements(HTMLParser):
    """Collects the elements of a page, what they load, and text inside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.loaded: set[str] = set()
        self.links: set[str] = set()
        self.open: list[str] = []
        self.inline: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect an element."""
        self.names.append(tag)
        if tag not in {"meta", "link"}:
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), name
            assert name != "style"
            if name == "src" or (name == "href" and tag == "link"):
                self.loaded.add(value or "")
            elif name == "href":
                self.links.add(value or "")

    def handle_endtag(self, tag: str) -> None:
        """Check that elements are closed in order."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Collect inline scripts and styles."""
        if self.open and self.open[-1] in {"script", "style"} and data.strip():
            self.inline.append(data)


@pytest.fixture
def answer(anyone: httpx.Client) -> httpx.Response:
    """The page as it is served."""
    return anyone.get("/docs")


def test_page_loads_its_own_files_only(answer: httpx.Response, anyone: httpx.Client) -> None:
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    page = Elements(answer.text)
    assert page.open == []
    assert page.inline == []
    assert not set(page.names) & {"img", "iframe", "object", "form", "style", "base"}
    assert page.links == {"/openapi.json"}
    own = {"/docs/swagger-ui.css", "/docs/swagger-ui-bundle.js", "/docs/initializer.js"}
    assert page.loaded - {"data:,"} == own
    for path in own:
        file = anyone.get(path)
        assert file.status_code == 200
        assert file.content == (VENDORED / path.rpartition("/")[2]).read_bytes()
        assert file.headers["Content-Type"] == (
            "text/css; charset=utf-8" if path.endswith("css") else "text/javascript; charset=utf-8"
        )
        assert file.headers["X-Content-Type-Options"] == "nosniff"


def test_policy_allows_nothing_from_other_hosts(answer: httpx.Response) -> None:
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["Content-Security-Policy"].split(";"))
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }


def test_page_shows_the_document_and_sends_no_requests() -> None:
    """Without "Try it out" nobody types a credential into the page; no other service validates the document."""
    script = (VENDORED / "initializer.js").read_text()
    assert 'url: "/openapi.json"' in script
    assert "supportedSubmitMethods: []" in script
    assert "validatorUrl: null" in script
    assert "http" not in script


def test_vendored_files_are_unchanged() -> None:
    told = dict(
        re.findall(r"^    ([0-9a-f]{64})  (\S+)$", (VENDORED / "README.md").read_text(), re.MULTILINE)
    )
    found = {hashlib.sha256((VENDORED / name).read_bytes()).hexdigest(): name for name in told.values()}
    assert set(told.values()) == {"swagger-ui.css", "swagger-ui-bundle.js"}
    assert found == told


@pytest.mark.parametrize("path", ["/docs/LICENSE", "/docs/..%2fdocs.py", "/docs/x"])
def test_no_other_file_is_served(anyone: httpx.Client, path: str) -> None:
    assert anyone.get(path).status_code == 404
