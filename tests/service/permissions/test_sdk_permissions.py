"""GET /sdk/permissions: what may I do (decisions §3)."""

from pathlib import Path

import httpx
import pytest
from support.gateway import LiveGateway, Owner
from support.shapes import REQUIRED, complaints, refused

UNKNOWN = "01890000-0000-7000-8000-000000000000"
TEST = {"environment": "test"}


def ask(owner: Owner, agent: str, key: str | None = None) -> httpx.Response:
    headers = {"X-API-Key": owner.key if key is None else key}
    return owner.http.get("/sdk/permissions", params={"agent_id": agent}, headers=headers)


def test_it_answers_what_the_listing_does(acme: Owner, bot: str) -> None:
    """With an API key an agent's permissions are shown as management shows them."""
    assert (ask(acme, bot).status_code, ask(acme, bot).json()) == (200, [])
    acme.permit(bot, "a.b", max_amount=12.5)
    acme.permit(bot, "c.d", requires_approval=True)
    shown = ask(acme, bot).json()
    assert [permission["action"] for permission in shown] == ["c.d", "a.b"]
    assert shown == acme.http.get(f"/api/agents/{bot}/permissions").json()


def test_a_deleted_permission_is_gone_at_once(acme: Owner, bot: str) -> None:
    """What the next check refuses is no longer listed."""
    permission = acme.permit(bot, "a.b")
    acme.http.delete(f"/api/permissions/{permission}")
    assert ask(acme, bot).json() == []


def test_an_inactive_agent_may_do_nothing(acme: Owner, bot: str) -> None:
    """What every check refuses is not listed; switched on again, it is."""
    acme.permit(bot, "a.b")
    acme.http.put(f"/api/agents/{bot}", json={"status": "inactive"})
    assert (ask(acme, bot).status_code, ask(acme, bot).json()) == (200, [])
    acme.http.put(f"/api/agents/{bot}", json={"status": "active"})
    assert len(ask(acme, bot).json()) == 1


@pytest.mark.parametrize("agent", [UNKNOWN, "x", "\0", ""])
def test_an_unknown_agent_is_not_found(acme: Owner, agent: str) -> None:
    """An id that is nobody's is 404."""
    refused(ask(acme, agent), 404, "Agent not found")


def test_other_peoples_agents_are_not_found(acme: Owner, rival: Owner, bot: str) -> None:
    """Foreign, deleted and the other environment's agents are 404 like unknown ones (decisions §2, §8)."""
    acme.permit(bot, "a.b")
    rehearsal = acme.http.post("/api/agents", json={"name": "t"}, params=TEST).json()["id"]
    gone = acme.agent()
    acme.http.delete(f"/api/agents/{gone}")
    test_key = acme.http.get("/api/organization/test-key").json()["api_key"]
    for answer in (
        ask(rival, bot),
        ask(acme, rehearsal),
        ask(acme, gone),
        ask(acme, bot, test_key),
    ):
        refused(answer, 404, "Agent not found")
    assert ask(acme, rehearsal, test_key).status_code == 200


def test_an_agents_key_asks_for_its_own_agent_alone(acme: Owner, bot: str) -> None:
    """Another agent's permissions are 404 through it."""
    key = acme.http.post(f"/api/agents/{bot}/keys").json()["api_key"]
    acme.permit(bot, "a.b")
    assert len(ask(acme, bot, key).json()) == 1
    refused(ask(acme, acme.agent(), key), 404, "Agent not found")


def test_the_agent_must_be_named(acme: Owner) -> None:
    """Without `agent_id` it is 400 under its name."""
    answer = acme.http.get("/sdk/permissions", headers={"X-API-Key": acme.key})
    assert complaints(answer) == {"agent_id": [REQUIRED]}


def test_the_key_is_judged_first(acme: Owner, bot: str) -> None:
    """Missing and invalid keys are 401 whatever else is wrong; a token opens nothing (spec §5)."""
    refused(ask(acme, bot, ""), 401, "Missing API key")
    refused(acme.http.get("/sdk/permissions"), 401, "Missing API key")
    refused(ask(acme, bot, "ak_wrong"), 401, "Invalid API key")


def test_it_counts_against_the_window_of_the_reads(tmp_path: Path) -> None:
    """Permissions and approvals share a window, apart from check and log, and of the same size (decisions §7)."""
    with LiveGateway(tmp_path, plan="free") as gateway, Owner(gateway.url) as owner:
        bot = owner.agent()
        first = ask(owner, bot)
        limit, left = (int(first.headers[f"X-RateLimit-{name}"]) for name in ("Limit", "Remaining"))
        assert (limit, left) == (100, 99)
        path, headers = "/sdk/approvals/x/cancel", {"X-API-Key": owner.key}
        assert int(owner.http.post(path, headers=headers).headers["X-RateLimit-Remaining"]) < left
        answers = [ask(owner, bot) for _ in range(201)]
        refusal = next(answer for answer in answers if answer.status_code == 429)
        assert refusal.headers["X-RateLimit-Remaining"] == "0"
        assert refusal.headers["Retry-After"] in refusal.json()["detail"]
        assert owner.check(bot, "x").status_code == 200
