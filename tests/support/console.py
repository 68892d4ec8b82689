"""Client of the console that behaves like a browser without scripts: cookie, Origin header and form tokens."""

import html
import re
from typing import Self

import httpx

from support.gateway import PASSWORD

FORM = "application/x-www-form-urlencoded"


class Reader:
    """Browser of one user.

    Args:
        url: Address of the gateway.
        transport: Replaces the network.
    """

    def __init__(self, url: str, transport: httpx.BaseTransport | None = None) -> None:
        self.url = url
        self.http = httpx.Client(base_url=url, timeout=30, transport=transport)

    @classmethod
    def of(cls, url: str, email: str, password: str = PASSWORD) -> Self:
        """Sign in and return the browser."""
        reader = cls(url)
        answer = reader.submit("/console/sign-in", email=email, password=password)
        assert answer.status_code == 303, answer.text
        return reader

    def get(self, path: str, **headers: str) -> httpx.Response:
        """Request a page."""
        return self.http.get(path, headers=headers)

    def page(self, path: str) -> str:
        """Request a page that must exist; return its HTML."""
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
        """Return the form token of this session."""
        return field(self.page("/console/shortcuts"), "token")

    def decide(
        self, approval: str, what: str, *, environment: str = "production", part: bool = False, **fields: str
    ) -> httpx.Response:
        """Submit the form of an approval request's page."""
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
    """Return the value of the first form field with a name."""
    found = re.search(rf'name="{name}"[^>]*value="([^"]*)"', page)
    assert found, f"no field {name!r} in {page[:2000]}"
    return html.unescape(found[1])


def digest_of(page: str) -> str:
    """Return the digest on an approval request's page."""
    found = re.search(r"\b[0-9a-f]{64}\b", re.sub(r'name="token" value="[^"]*"', "", page))
    assert found, page[:2000]
    return found[0]


def text_of(page: str) -> str:
    """Return the text of a page without tags."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", page)))
