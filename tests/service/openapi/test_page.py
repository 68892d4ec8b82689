"""GET /docs: a page to read, without a script and without anything from elsewhere."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import httpx
import pytest
from support.conformity import document
from support.scene import operation_ids

from toolgate_service.openapi.page import page


class Tags(HTMLParser):
    """Collects the elements of a page and what they refer to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: set[str] = set()
        self.ids: set[str] = set()
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.names.add(tag)
        if tag != "meta":
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), name
            if name in {"src", "href"}:
                self.links.add(value or "")
            if name == "id":
                self.ids.add(value or "")

    def handle_endtag(self, tag: str) -> None:
        """Hold elements to being closed in order."""
        assert self.open.pop() == tag


@pytest.fixture
def answer(anyone: httpx.Client) -> httpx.Response:
    """The page as it is served."""
    return anyone.get("/docs")


def test_it_runs_and_loads_nothing(answer: httpx.Response) -> None:
    """No script, nothing from elsewhere, and a policy that would not let anything in."""
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    tags = Tags(answer.text)
    assert tags.open == []
    assert not tags.names & {"script", "img", "iframe", "link", "object", "form"}
    assert {link for link in tags.links if not link.startswith("#")} == {"/openapi.json"}
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    style = re.search("<style>(.*)</style>", answer.text, re.DOTALL)
    assert style is not None
    assert base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode() in policy


def test_every_operation_stands_in_it(answer: httpx.Response) -> None:
    """Each has its place, and the contents lead there."""
    tags = Tags(answer.text)
    assert set(operation_ids()) == tags.ids
    assert {f"#{name}" for name in tags.ids} < tags.links
    for path in document()["paths"]:
        assert path in answer.text


def test_what_the_document_says_is_not_html() -> None:
    """Descriptions are text: nothing in them becomes an element."""
    told = document() | {
        "info": document()["info"] | {"title": "<script>x</script>", "description": "`<b>` & **<i>**"}
    }
    text = page(told)
    assert "<script>" not in text
    assert "<code>&lt;b&gt;</code> &amp; <b>&lt;i&gt;</b>" in text
