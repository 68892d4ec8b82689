"""The table of spec §7, one test for each of its rows."""

import re
from collections.abc import Iterator

import httpx
import pytest
from support.gateway import PASSWORD, LiveGateway, Owner
from support.insight import set_active
from support.shapes import complaints, refused
from support.usage import use_logs

UNKNOWN = "01890000-0000-7000-8000-000000000000"
LIMIT = {"error", "message", "limit_type", "current_plan", "upgrade_url"}


@pytest.fixture
def client(gateway: LiveGateway) -> Iterator[httpx.Client]:
    """Whoever has no credential."""
    with httpx.Client(base_url=gateway.url, timeout=30) as client:
        yield client


def send(owner: Owner, path: str, body: object, key: str | None = None) -> httpx.Response:
    return owner.http.post(path, json=body, headers={"X-API-Key": owner.key if key is None else key})


def test_400_email_already_registered(acme: Owner, client: httpx.Client) -> None:
    """A string says that the e-mail is registered already."""
    body = {"email": acme.email, "password": PASSWORD, "organization_name": "Another"}
    refused(client.post("/auth/register", json=body), 400, "E-mail already registered")


@pytest.mark.parametrize(
    ("path", "fields"),
    [("/sdk/check", ["agent_id", "action"]), ("/sdk/log", ["agent_id", "action", "status"])],
)
def test_400_missing_required_field(acme: Owner, bot: str, path: str, fields: list[str]) -> None:
    """A map with the missing field and one message, that it is required; the same for each of them."""
    whole = {"agent_id": bot, "action": "a", "status": "success"}
    for field in fields:
        body = {name: value for name, value in whole.items() if name != field}
        [(named, [message])] = complaints(send(acme, path, body)).items()
        assert named == field
        assert "required" in message


def test_400_status_not_allowed(acme: Owner, bot: str) -> None:
    """A map with `status` and one message that lists the four allowed values."""
    answer = send(acme, "/sdk/log", {"agent_id": bot, "action": "a", "status": "done"})
    [(named, [message])] = complaints(answer).items()
    assert named == "status"
    assert set(re.findall(r"\w+", message)) >= {"success", "failed", "pending", "denied"}


def test_400_permission_already_exists(acme: Owner, bot: str) -> None:
    """A string says that there is a permission for this action."""
    acme.permit(bot, "a")
    answer = acme.http.post(f"/api/agents/{bot}/permissions", json={"action": "a"})
    refused(answer, 400, "Permission already exists for this action")


def test_401_login_credentials_invalid(acme: Owner, client: httpx.Client) -> None:
    """A string says that e-mail or password are invalid, and not which."""
    for email, password in ((acme.email, "wrong horse battery"), ("nobody@example.test", PASSWORD)):
        answer = client.post("/auth/login", json={"email": email, "password": password})
        refused(answer, 401, "Invalid e-mail or password")


def test_401_api_key(gateway: LiveGateway, newcomer: Owner) -> None:
    """Three strings: for an invalid key, for none, and for that of an inactive organization."""
    for path in ("/sdk/check", "/sdk/log"):
        refused(send(newcomer, path, {}, newcomer.key[::-1]), 401, "Invalid API key")
        refused(newcomer.http.post(path, json={}), 401, "Missing API key")
    set_active(gateway, newcomer, active=False)
    for path in ("/sdk/check", "/sdk/log"):
        refused(send(newcomer, path, {}), 401, "Organization is not active")


@pytest.mark.parametrize(("limit_type", "most"), [("logs", 1_000), ("agents", 2)])
def test_403_plan_limit_reached(free_gateway: LiveGateway, frugal: Owner, limit_type: str, most: int) -> None:
    """An object of five strings: error, a message with used and limit, which limit, which plan, a relative path."""
    bots = [frugal.agent(), frugal.agent()]
    use_logs(free_gateway, frugal, 1_000)
    if limit_type == "logs":
        answer = frugal.log(bots[0], "a")
    else:
        answer = frugal.http.post("/api/agents", json={"name": "third"})
    assert (answer.status_code, list(answer.json())) == (403, ["detail", "code"])
    detail = answer.json()["detail"]
    assert set(detail) == LIMIT
    assert all(isinstance(value, str) for value in detail.values())
    assert (detail["error"], detail["limit_type"]) == ("plan_limit_exceeded", limit_type)
    assert f"{most}/{most}" in detail["message"]
    assert detail["current_plan"] == "free"
    assert re.fullmatch(r"/\w[\w/]*", detail["upgrade_url"])


def test_403_foreign_permission(acme: Owner, rival: Owner, bot: str) -> None:
    """A string says that the permission was not found."""
    answer = rival.http.delete(f"/api/permissions/{acme.permit(bot, 'a')}")
    refused(answer, 403, "Permission not found")


def test_404_agent(acme: Owner) -> None:
    """A string says that the agent was not found, on logging for it and on reading it."""
    refused(acme.log(UNKNOWN, "a"), 404, "Agent not found")
    refused(acme.http.get(f"/api/agents/{UNKNOWN}"), 404, "Agent not found")


def test_404_permission(acme: Owner, bot: str) -> None:
    """A string says that the permission was not found, on both paths."""
    for path in (f"/api/permissions/{UNKNOWN}", f"/api/agents/{bot}/permissions/{UNKNOWN}"):
        refused(acme.http.delete(path), 404, "Permission not found")


def too_often(owner: Owner, path: str, body: object) -> httpx.Response:
    """Return the first refusal; two windows of a hundred cannot hold them all."""
    answers = (send(owner, path, body) for _ in range(201))
    return next(answer for answer in answers if answer.status_code == 429)


def test_429_rate_limit(frugal: Owner) -> None:
    """A string says after how many seconds to retry; four headers say it in numbers."""
    answer = too_often(frugal, "/sdk/check", {"agent_id": "x", "action": "a"})
    headers = answer.headers
    assert f"retry after {int(headers['Retry-After'])} seconds" in answer.json()["detail"]
    assert (headers["X-RateLimit-Limit"], headers["X-RateLimit-Remaining"]) == ("100", "0")
    assert int(headers["X-RateLimit-Reset"]) % 60 == 0


def test_every_error_of_a_check(frugal: Owner) -> None:
    """401, 400 and 429 are what a check may be refused with (spec §4); all else is a decision."""
    body = {"agent_id": UNKNOWN, "action": "a"}
    refusals = [send(frugal, "/sdk/check", body, "ak_wrong"), send(frugal, "/sdk/check", {})]
    refusals.append(too_often(frugal, "/sdk/check", body))
    assert [refusal.status_code for refusal in refusals] == [401, 400, 429]


def test_every_error_of_a_log_entry(free_gateway: LiveGateway, frugal: Owner) -> None:
    """401, 400 twice, 404, 403 and 429 are what an entry may be refused with (spec §4); none is stored."""
    whole = {"agent_id": frugal.agent(), "action": "a", "status": "success"}
    use_logs(free_gateway, frugal, 1_000)
    refusals = [
        send(frugal, "/sdk/log", whole, "ak_wrong"),
        send(frugal, "/sdk/log", {}),
        send(frugal, "/sdk/log", whole | {"status": "done"}),
        send(frugal, "/sdk/log", whole | {"agent_id": UNKNOWN}),
        send(frugal, "/sdk/log", whole),
        too_often(frugal, "/sdk/log", whole),
    ]
    assert [refusal.status_code for refusal in refusals] == [401, 400, 400, 404, 403, 429]
    assert frugal.entries() == []
