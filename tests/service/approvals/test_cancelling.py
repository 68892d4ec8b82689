"""POST /sdk/approvals/{id}/cancel: whoever asked no longer wants it (decisions §3, §5)."""

from collections import Counter
from functools import partial

import httpx
import pytest
from support.asking import Ask, Decide, State
from support.crowd import together
from support.gateway import Owner
from support.shapes import refused

UNKNOWN = "01890000-0000-7000-8000-000000000000"


def cancel(owner: Owner, approval: str, key: str | None = None) -> httpx.Response:
    headers = {"X-API-Key": owner.key if key is None else key}
    return owner.http.post(f"/sdk/approvals/{approval}/cancel", headers=headers)


@pytest.mark.parametrize("approved", [False, True], ids=["pending", "approved"])
def test_an_open_request_is_withdrawn_for_good(
    acme: Owner, ask: Ask, decide: Decide, state: State, approved: bool
) -> None:
    """A pending and an approved request become cancelled: 200, the agent's view; nothing lets the check through."""
    approval = ask({"n": 1})["approval_id"]
    if approved:
        decide(approval)
    answer = cancel(acme, approval)
    assert answer.status_code == 200
    shown = acme.http.get(f"/sdk/approvals/{approval}", headers={"X-API-Key": acme.key})
    assert answer.json() == shown.json()
    assert answer.json()["status"] == state(approval) == "cancelled"
    assert "decided_by" not in answer.json()
    seen = acme.http.get(f"/api/approvals/{approval}").json()
    assert seen["cancelled_at"] is not None
    assert seen["cancel_reason"] == "cancelled by the agent"
    again = ask({"n": 1})
    assert (again["allowed"], again["requires_approval"]) == (False, True)
    assert again["approval_id"] != approval
    refused(
        acme.http.post(f"/api/approvals/{approval}/approve"),
        409,
        "Approval is no longer pending: it is cancelled",
    )


def test_a_closed_request_is_a_conflict(acme: Owner, ask: Ask, decide: Decide, state: State) -> None:
    """Cancelled, denied and consumed requests are 409 and stay what they are."""
    cancelled, denied, consumed = (ask({"n": n})["approval_id"] for n in range(3))
    cancel(acme, cancelled)
    decide(denied, "deny")
    decide(consumed)
    assert ask({"n": 2})["allowed"] is True
    for approval, now in ((cancelled, "cancelled"), (denied, "denied"), (consumed, "consumed")):
        refused(cancel(acme, approval), 409, f"Approval is no longer open: it is {now}")
        assert state(approval) == now


@pytest.mark.parametrize("approval", [UNKNOWN, "x", "%20"])
def test_an_unknown_request_is_not_found(acme: Owner, approval: str) -> None:
    """Any id that is nobody's is 404."""
    refused(cancel(acme, approval), 404, "Approval not found")


def test_no_request_has_nul_in_its_id(acme: Owner) -> None:
    """Such a path is nobody's: 404 before anything is looked for."""
    refused(cancel(acme, "%00"), 404, "Not Found")


def test_only_the_agents_own_key_or_the_organizations_cancels(
    acme: Owner, rival: Owner, bot: str, ask: Ask, state: State
) -> None:
    """Another organization's, another agent's and the test key do not find it; the agent's own key cancels."""
    approval = ask()["approval_id"]
    own = acme.http.post(f"/api/agents/{bot}/keys").json()["api_key"]
    others = acme.http.post(f"/api/agents/{acme.agent()}/keys").json()["api_key"]
    test_key = acme.http.get("/api/organization/test-key").json()["api_key"]
    for key in (rival.key, others, test_key):
        refused(cancel(acme, approval, key), 404, "Approval not found")
    refused(cancel(acme, approval, ""), 401, "Missing API key")
    refused(cancel(acme, approval, "ak_wrong"), 401, "Invalid API key")
    assert state(approval) == "pending"
    assert cancel(acme, approval, own).status_code == 200


def test_who_waits_is_woken(acme: Owner, ask: Ask) -> None:
    """A long poll ends as soon as the request is withdrawn."""
    approval = ask()["approval_id"]

    def wait() -> httpx.Response:
        path, headers = f"/sdk/approvals/{approval}", {"X-API-Key": acme.key}
        return acme.http.get(path, params={"wait": 60}, headers=headers)

    waited, _ = together(wait, partial(cancel, acme, approval))
    assert waited.json()["status"] == "cancelled"
    assert waited.elapsed.total_seconds() < 30


def test_of_cancel_and_decide_one_wins(acme: Owner, ask: Ask, state: State) -> None:
    """Parallel cancellations and denials of a pending request: one succeeds, the others are 409."""
    for number in range(5):
        approval = ask({"n": number})["approval_id"]
        deny = partial(acme.http.post, f"/api/approvals/{approval}/deny")
        answers = together(*[partial(cancel, acme, approval), deny] * 3)
        assert Counter(answer.status_code for answer in answers) == {200: 1, 409: 5}
        [won] = [answer.json()["status"] for answer in answers if answer.status_code == 200]
        assert state(approval) == won


def test_of_cancel_and_consume_one_wins(
    acme: Owner, bot: str, ask: Ask, decide: Decide, state: State
) -> None:
    """An approval is used up or withdrawn, never both."""
    for number in range(5):
        context = {"n": number}
        approval = ask(context)["approval_id"]
        decide(approval)
        check = partial(acme.check, bot, "db.drop", context, approval_id=approval)
        withdrawn, *checks = together(partial(cancel, acme, approval), *[check] * 4)
        passed = sum(answer.json()["allowed"] for answer in checks)
        assert (withdrawn.status_code == 200) + passed == 1
        assert state(approval) == ("consumed" if passed else "cancelled")


@pytest.mark.parametrize("approved", [False, True], ids=["pending", "approved"])
def test_rejected_call_stays_denied(acme: Owner, ask: Ask, decide: Decide, approved: bool) -> None:
    call = {"call_id": "call-1", "run_id": "run-1"}
    approval = ask({"r": 1}, **call)["approval_id"]
    if approved:
        decide(approval)
        body = {"agent_id": acme.http.get(f"/api/approvals/{approval}").json()["agent_id"], "dry_run": True}
        shown = acme.http.get(f"/api/approvals/{approval}").json()
        body |= {"action": shown["action"], "context": {"r": 1}, **call}
        looked = acme.http.post("/sdk/check", json=body, headers={"X-API-Key": acme.key})
        assert looked.headers["x-approval-id"] == approval
    answer = acme.http.post(
        f"/sdk/approvals/{approval}/cancel?rejected=true", headers={"X-API-Key": acme.key}
    )
    assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
    again = ask({"r": 1}, **call)
    assert (again["allowed"], again["requires_approval"]) == (False, False)
    assert again["reason"] == "Call 'call-1' was rejected in the agent's framework"
