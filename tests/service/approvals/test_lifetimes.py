"""What ends a request for good: cancelling and expiry (decisions §5)."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from support.asking import Ask, Decide, State
from support.gateway import LiveGateway, Owner
from support.insight import execute
from support.shapes import refused
from support.waiting import until

PAST = "2020-01-01T00:00:00.000000Z"


def delete_permission(owner: Owner, bot: str, permission: str) -> str:
    assert owner.http.delete(f"/api/permissions/{permission}").status_code == 204
    return owner.permit(bot, "db.drop", requires_approval=True)


def delete_nested_permission(owner: Owner, bot: str, permission: str) -> str:
    assert owner.http.delete(f"/api/agents/{bot}/permissions/{permission}").status_code == 204
    return owner.permit(bot, "db.drop", requires_approval=True)


def switch_off_and_on(owner: Owner, bot: str, permission: str) -> str:
    for status in ("inactive", "active"):
        assert owner.http.put(f"/api/agents/{bot}", json={"status": status}).status_code == 200
    return permission


@pytest.mark.parametrize("end", [delete_permission, delete_nested_permission, switch_off_and_on])
def test_what_was_cancelled_stays_cancelled(
    acme: Owner,
    bot: str,
    permission: str,
    ask: Ask,
    decide: Decide,
    state: State,
    end: Callable[[Owner, str, str], str],
) -> None:
    """Pending and approved requests are cancelled, and granting or switching on again revives neither."""
    pending, approved = ask({"n": 1})["approval_id"], ask({"n": 2})["approval_id"]
    decide(approved)
    end(acme, bot, permission)
    assert (state(pending), state(approved)) == ("cancelled", "cancelled")
    shown = acme.http.get(f"/api/approvals/{pending}").json()
    assert shown["cancelled_at"] is not None
    assert shown["cancel_reason"]
    for old, context in ((pending, {"n": 1}), (approved, {"n": 2})):
        again = ask(context)
        assert again["requires_approval"] is True
        assert again["approval_id"] != old
        blocked = ask(context, approval_id=old)
        assert (blocked["allowed"], blocked["requires_approval"]) == (False, False)
    answer = acme.http.post(f"/api/approvals/{pending}/approve")
    refused(answer, 409, "Approval is no longer pending: it is cancelled")


def test_deleting_the_agent_cancels(acme: Owner, bot: str, ask: Ask, decide: Decide, state: State) -> None:
    """A deleted agent's requests are cancelled; the record keeps its name."""
    pending, approved = ask({"n": 1})["approval_id"], ask({"n": 2})["approval_id"]
    decide(approved)
    acme.http.delete(f"/api/agents/{bot}")
    assert (state(pending), state(approved)) == ("cancelled", "cancelled")
    assert acme.http.get(f"/api/approvals/{pending}").json()["agent_name"] == "bot"


def test_another_agents_requests_go_on(acme: Owner, bot: str, ask: Ask) -> None:
    """Switching one agent off cancels nothing of another's."""
    other = acme.agent()
    acme.permit(other, "db.drop", requires_approval=True)
    approval = acme.check(other, "db.drop").json()["approval_id"]
    acme.http.put(f"/api/agents/{bot}", json={"status": "inactive"})
    assert acme.check(other, "db.drop").json()["approval_id"] == approval


def expire(gateway: LiveGateway, approval: str) -> None:
    assert execute(gateway, "UPDATE approvals SET expires_at = ? WHERE id = ?", PAST, approval) == 1


def test_a_pending_request_expires(
    gateway: LiveGateway, acme: Owner, bot: str, ask: Ask, state: State
) -> None:
    """Past its time a request is expired, cannot be approved, and the same check is a new request."""
    old = ask()["approval_id"]
    expire(gateway, old)
    assert state(old) == "expired"
    answer = acme.http.post(f"/api/approvals/{old}/approve")
    refused(answer, 409, "Approval is no longer pending: it is expired")
    blocked = ask(approval_id=old)
    assert (blocked["allowed"], "expired" in blocked["reason"]) == (False, True)
    new = ask()["approval_id"]
    assert new not in {old, None}
    listed = acme.http.get("/api/approvals", params={"agent_id": bot, "status": "expired"}).json()
    assert [approval["id"] for approval in listed] == [old]
    listed = acme.http.get("/api/approvals", params={"agent_id": bot, "status": "pending"}).json()
    assert [approval["id"] for approval in listed] == [new]


def test_an_approved_request_expires(gateway: LiveGateway, ask: Ask, decide: Decide, state: State) -> None:
    """An approval that nobody used in time lets nothing through."""
    old = ask()["approval_id"]
    decide(old)
    expire(gateway, old)
    assert state(old) == "expired"
    again = ask()
    assert again["requires_approval"] is True
    assert again["approval_id"] != old


def test_an_expired_request_stays_expired(
    gateway: LiveGateway, acme: Owner, bot: str, ask: Ask, state: State
) -> None:
    """Expiry is reported as expiry, also when the agent is switched off later."""
    old = ask()["approval_id"]
    expire(gateway, old)
    acme.http.put(f"/api/agents/{bot}", json={"status": "inactive"})
    assert state(old) == "expired"


def test_a_request_lives_a_day_and_an_approval_an_hour(
    gateway: LiveGateway, acme: Owner, ask: Ask, decide: Decide
) -> None:
    """The times of decisions §5, counted from the request and from the decision."""
    shown = acme.http.get(f"/api/approvals/{ask()['approval_id']}").json()
    lives = datetime.fromisoformat(shown["expires_at"]) - datetime.fromisoformat(shown["created_at"])
    assert lives == timedelta(hours=24)
    decided = decide(shown["id"]).json()
    lives = datetime.fromisoformat(decided["expires_at"]) - datetime.fromisoformat(decided["decided_at"])
    assert lives == timedelta(hours=1)


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[Owner]:
    """The owner at a gateway where requests wait for one second."""
    times = {"TOOLGATE_APPROVAL_TTL_SECONDS": "1", "TOOLGATE_APPROVAL_USE_TTL_SECONDS": "1"}
    with LiveGateway(tmp_path, env=times) as gateway, Owner(gateway.url) as owner:
        yield owner


def test_the_times_are_settings(hasty: Owner) -> None:
    """By the clock alone: a request nobody decides expires, and an approval nobody uses does too."""
    bot = hasty.agent()
    hasty.permit(bot, "db.drop", requires_approval=True)
    first = hasty.check(bot, "db.drop").json()["approval_id"]
    path, headers = f"/sdk/approvals/{first}", {"X-API-Key": hasty.key}
    answer = hasty.http.get(path, params={"wait": 30}, headers=headers)
    assert answer.json()["status"] == "expired"
    assert hasty.check(bot, "db.drop").json()["approval_id"] not in {first, None}
    # This one waits longer: a busy machine may need more than a second for the decision.
    hasty.permit(bot, "db.wipe", requires_approval=True, approval_ttl_seconds=600)
    second = hasty.check(bot, "db.wipe").json()["approval_id"]
    assert hasty.http.post(f"/api/approvals/{second}/approve").status_code == 200
    until(lambda: hasty.http.get(f"/api/approvals/{second}").json()["status"] == "expired")
    assert hasty.check(bot, "db.wipe").json()["requires_approval"] is True
