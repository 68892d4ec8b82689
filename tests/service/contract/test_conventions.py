"""What holds for all operations: JSON, moments, refusals, the two surfaces (spec, introduction, §4, §5, §7)."""

from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest
from support.gateway import PASSWORD, LiveGateway, Owner
from support.shapes import MOMENT

PAGES = (
    "/auth/me",
    "/api/organization",
    "/api/agents",
    "/api/agents/{bot}",
    "/api/agents/{bot}/permissions",
    "/api/logs",
    "/api/approvals",
    "/api/audit",
    "/api/billing/plan",
    "/api/billing/usage",
    "/api/billing/invoices",
    "/health",
)

#: method, path, body and what the refusal is
REFUSALS = (
    ("POST", "/auth/register", {}, 400),
    ("POST", "/auth/login", {"email": "nobody@example.test", "password": PASSWORD}, 401),
    ("POST", "/sdk/check", {}, 400),
    ("POST", "/sdk/log", {}, 400),
    ("POST", "/sdk/log", {"agent_id": "x", "action": "a", "status": "success"}, 404),
    ("GET", "/api/agents/x", None, 404),
    ("GET", "/api/billing/subscription", None, 404),
    ("PUT", "/api/agents", {}, 405),
    ("GET", "/nowhere", None, 404),
    ("POST", "/api/agents", {"name": "x" * 300_000}, 413),
)


@pytest.fixture(scope="module")
def pages(acme: Owner) -> Mapping[str, httpx.Response]:
    """What every page shows of an organization with one of everything."""
    bot = acme.agent()
    acme.permit(bot, "held", requires_approval=True)
    acme.check(bot, "held")
    acme.log(bot, "held", occurred_at="2026-01-31T12:00:00+02:00")
    return {path: acme.http.get(path.format(bot=bot)) for path in PAGES}


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_json(pages: Mapping[str, httpx.Response], path: str) -> None:
    """200, JSON, and says so."""
    answer = pages[path]
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
    assert isinstance(answer.json(), dict | list)


@pytest.mark.parametrize(("method", "path", "body", "status"), REFUSALS)
def test_every_refusal_is_json_with_a_detail(
    acme: Owner, method: str, path: str, body: object, status: int
) -> None:
    """An error is a JSON object with the member `detail`, and says so."""
    content = {} if body is None else {"json": body}
    answer = acme.http.request(method, path, headers={"X-API-Key": acme.key}, **content)
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/json")
    assert answer.json().keys() == {"detail", "code"}


def test_a_detail_has_one_of_three_forms(acme: Owner, frugal: Owner) -> None:
    """A string, a map from field names to lists of messages, or the object of a plan's limit (spec §7)."""
    assert isinstance(acme.http.get("/api/agents/x").json()["detail"], str)
    wrong = acme.http.post("/api/agents", json={"name": 5, "colour": "red"}).json()["detail"]
    assert set(wrong) == {"name", "colour"}
    for messages in wrong.values():
        assert messages
        assert all(isinstance(message, str) for message in messages)
    frugal.agent()
    frugal.agent()
    limit = frugal.http.post("/api/agents", json={"name": "third"}).json()["detail"]
    assert limit["error"] == "plan_limit_exceeded"


def test_every_moment_is_iso_8601(pages: Mapping[str, httpx.Response]) -> None:
    """Whatever ends in `_at` is such a text, on every page, or null where nothing has happened."""
    found = [(name, value) for answer in pages.values() for name, value in moments(answer.json())]
    assert {name for name, _ in found} >= {"created_at", "occurred_at", "expires_at", "decided_at"}
    assert [one for one in found if one[1] is not None and not MOMENT.fullmatch(str(one[1]))] == []
    assert all(value is not None for name, value in found if name == "created_at")


def moments(value: Any) -> Iterator[tuple[str, object]]:
    match value:
        case dict():
            for name, inner in value.items():
                if name.endswith("_at"):
                    yield name, inner
                yield from moments(inner)
        case list():
            for inner in value:
                yield from moments(inner)


@pytest.mark.parametrize("path", ["/auth/register", "/auth/login"])
def test_both_ways_give_a_token_that_opens_the_management_surface(gateway: LiveGateway, path: str) -> None:
    """`access_token` of registration and login, sent as `Bearer`, is all that a page asks for (spec §5)."""
    email = f"{path[6:]}@conventions.test"
    body = {"email": email, "password": PASSWORD}
    with httpx.Client(base_url=gateway.url, timeout=30) as client:
        answer = client.post("/auth/register", json=body | {"organization_name": "Tokens"})
        if path == "/auth/login":
            answer = client.post(path, json=body)
        assert answer.json()["token_type"] == "bearer"
        headers = {"Authorization": f"Bearer {answer.json()['access_token']}"}
        assert client.get("/auth/me", headers=headers).json()["email"] == email
        assert client.get("/api/agents", headers=headers).status_code == 200
        assert client.get("/api/agents").status_code == 401
