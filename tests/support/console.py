"""Somebody at a browser, as far as HTTP goes: a cookie, the Origin of every form, and the tokens that pages give out."""

import html
import re
from typing import Self

import httpx

from support.gateway import PASSWORD

FORM = "application/x-www-form-urlencoded"


class Reader:
    """A browser without scripts.

    Args:
        url: the gateway's.
        transport: in place of the network.
    """

    def __init__(self, url: str, transport: httpx.BaseTransport | None = None) -> None:
        self.url = url
        self.http = httpx.Client(base_url=url, timeout=30, transport=transport)

    @classmethod
    def of(cls, url: str, email: str, password: str = PASSWORD) -> Self:
        """Return the browser of somebody who signs in."""
        reader = cls(url)
        answer = reader.submit("/console/sign-in", email=email, password=password)
        assert answer.status_code == 303, answer.text
        return reader

    def get(self, path: str, **headers: str) -> httpx.Response:
        """Go to a page."""
        return self.http.get(path, headers=headers)

    def page(self, path: str) -> str:
        """Return a page that is there."""
        answer = self.get(path)
        assert answer.status_code == 200, f"{answer.status_code} {answer.text}"
        return answer.text

    def submit(
        self, path: str, *, origin: str | None = None, part: bool = False, **fields: str
    ) -> httpx.Response:
        """Send a form."""
        headers = {"Origin": origin or self.url} | ({"X-Toolgate-Part": "1"} if part else {})
        return self.http.post(path, data=fields, headers=headers)

    def token(self) -> str:
        """Return the token that forms of this session carry."""
        return field(self.page("/console/shortcuts"), "token")

    def decide(
        self, approval: str, what: str, *, environment: str = "production", part: bool = False, **fields: str
    ) -> httpx.Response:
        """Press a button of a card, as its page has it."""
        way = f"/console/approvals/{approval}"
        shown = self.page(f"{way}?environment={environment}")
        given = {"token": field(shown, "token"), "digest": digest_of(shown)} | fields
        return self.submit(f"{way}/{what}?environment={environment}", part=part, **given)

    def close(self) -> None:
        """Close the browser."""
        self.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def field(page: str, name: str) -> str:
    """Return the value of the first field of that name."""
    found = re.search(rf'name="{name}"[^>]*value="([^"]*)"', page)
    assert found, f"no field {name!r} in {page[:2000]}"
    return html.unescape(found[1])


def digest_of(page: str) -> str:
    """Return the digest that a request's page shows."""
    found = re.search(r"\b[0-9a-f]{64}\b", re.sub(r'name="token" value="[^"]*"', "", page))
    assert found, page[:2000]
    return found[0]


def text_of(page: str) -> str:
    """Return what a person reads of a page, without the tags."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", page)))
