"""Approving and denying: who, what is shown, and what cannot be decided twice (decisions §3, §5)."""

from collections import Counter
from datetime import timedelta
from functools import partial

import httpx
import pytest
from support.asking import Ask, Decide, State
from support.crowd import together
from support.gateway import LiveGateway, Owner
from support.insight import execute, rows
from support.shapes import MOMENT, complaints, refused

from toolgate_service.core.clock import from_wire, wire

UNKNOWN = "01890000-0000-7000-8000-000000000000"
AGENT_SEES = {
    "id",
    "agent_id",
    "action",
    "status",
    "context",
    "run_id",
    "call_id",
    "note",
    "created_at",
    "expires_at",
    "decided_at",
    "replaced_by",
    "approved_context",
}


def test_people_see_what_the_agent_wants(acme: Owner, ask: Ask, bot: str) -> None:
    """The request shows agent, action and the context digit by digit (spec §4)."""
    approval = ask({"amount": 100.10, "rows": 9007199254740993}, run_id="r", call_id="c")["approval_id"]
    answer = acme.http.get(f"/api/approvals/{approval}")
    assert answer.status_code == 200
    assert '"amount":100.1,"rows":9007199254740993' in answer.text
    shown = answer.json()
    assert set(shown) > AGENT_SEES
    assert (shown["agent_id"], shown["agent_name"], shown["action"]) == (bot, "bot", "db.drop")
    assert (shown["status"], shown["run_id"], shown["call_id"]) == ("pending", "r", "c")
    assert (shown["decided_by"], shown["decided_at"], shown["note"]) == (None, None, None)
    assert MOMENT.fullmatch(shown["created_at"])
    assert MOMENT.fullmatch(shown["expires_at"])


def test_approving_answers_the_approval(acme: Owner, ask: Ask, decide: Decide) -> None:
    """POST …/approve is 200 with the approval: approved, by the token's user, for another hour."""
    before = acme.http.get(f"/api/approvals/{ask()['approval_id']}").json()
    after = decide(before["id"], note="go ahead").json()
    changed = {name for name, value in after.items() if before[name] != value}
    assert changed == {"status", "decided_at", "decided_by", "note", "expires_at", "votes"}
    [vote] = after["votes"]
    assert (vote["user_id"], vote["decision"], vote["note"]) == (acme.user["id"], "approved", "go ahead")
    assert (after["status"], after["note"]) == ("approved", "go ahead")
    assert after["decided_by"] == acme.user["id"]
    assert after["expires_at"] < before["expires_at"]
    assert acme.http.get(f"/api/approvals/{before['id']}").json() == after


@pytest.mark.parametrize("how", ["approve", "deny"])
@pytest.mark.parametrize("content", [None, b"{}", b'{"note": null}', b'{"note": ""}'])
def test_the_note_is_optional(acme: Owner, ask: Ask, how: str, content: bytes | None) -> None:
    """A decision needs no body and no note."""
    approval = ask()["approval_id"]
    assert acme.http.post(f"/api/approvals/{approval}/{how}", content=content).status_code == 200


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (b'{"note": 5}', "note"),
        (b'{"note": "%s"}' % (b"x" * 1001), "note"),
        (b'{"decided_by": "someone"}', "decided_by"),
        (b'{"status": "approved"}', "status"),
        (b"[]", "body"),
        (b"null", "body"),
        (b"approve", "body"),
        (b'{"note": "a", "note": "b"}', "body"),
    ],
)
@pytest.mark.parametrize("how", ["approve", "deny"])
def test_a_wrong_decision_decides_nothing(
    acme: Owner, ask: Ask, state: State, how: str, content: bytes, field: str
) -> None:
    """A wrong body is 400 under its name, and the request stays pending: above all, nobody is decided for."""
    approval = ask()["approval_id"]
    answer = acme.http.post(f"/api/approvals/{approval}/{how}", content=content)
    assert list(complaints(answer)) == [field]
    assert state(approval) == "pending"


@pytest.mark.parametrize("first", ["approve", "deny"])
@pytest.mark.parametrize("second", ["approve", "deny"])
def test_a_decision_is_final(
    acme: Owner, ask: Ask, decide: Decide, state: State, first: str, second: str
) -> None:
    """A second decision is 409 and changes nothing."""
    approval = ask()["approval_id"]
    decided = decide(approval, first).json()
    again = acme.http.post(f"/api/approvals/{approval}/{second}", json={"note": "no"})
    refused(again, 409, f"Approval is no longer pending: it is {decided['status']}")
    assert acme.http.get(f"/api/approvals/{approval}").json() == decided


def test_of_parallel_decisions_one_wins(acme: Owner, ask: Ask, state: State) -> None:
    """Three approvals and three denials at once: one is 200 and the state is its own, five are 409."""
    approval = ask()["approval_id"]
    works = [partial(acme.http.post, f"/api/approvals/{approval}/{how}") for how in ("approve", "deny") * 3]
    answers = together(*works)
    assert Counter(answer.status_code for answer in answers) == {200: 1, 409: 5}
    [winner] = [answer.json() for answer in answers if answer.status_code == 200]
    assert state(approval) == winner["status"]


def test_a_denial_tells_its_note_to_whoever_asks_again(acme: Owner, ask: Ask, decide: Decide) -> None:
    """After a denial the equal check is blocked with the note as reason; another context is held anew."""
    decide(ask({"t": 1})["approval_id"], "deny", note="Not on a Friday")
    result = ask({"t": 1})
    assert (result["allowed"], result["requires_approval"], result["approval_id"]) == (False, False, None)
    assert "Not on a Friday" in result["reason"]
    assert ask({"t": 2})["requires_approval"] is True
    assert "Not on a Friday" in ask({"t": 1}, dry_run=True)["reason"]


def test_after_five_minutes_a_denied_check_may_be_asked_again(
    gateway: LiveGateway, acme: Owner, ask: Ask, decide: Decide
) -> None:
    """A denial answers the equal check for five minutes, then it is held as a new request."""
    denied = ask()["approval_id"]
    moment = from_wire(decide(denied, "deny").json()["decided_at"])
    earlier = "UPDATE approvals SET decided_at = ? WHERE id = ?"
    execute(gateway, earlier, wire(moment - timedelta(seconds=290)), denied)
    assert ask()["requires_approval"] is False
    execute(gateway, earlier, wire(moment - timedelta(seconds=301)), denied)
    again = ask()
    assert again["requires_approval"] is True
    assert again["approval_id"] != denied


def test_the_agent_never_learns_who_decided(acme: Owner, ask: Ask, decide: Decide) -> None:
    """GET /sdk/approvals/{id} has exactly the agent's fields: no approver, no e-mail, no digest (decisions §3)."""
    approval = ask({"t": 1})["approval_id"]
    decide(approval, note="fine")
    answer = acme.http.get(f"/sdk/approvals/{approval}", headers={"X-API-Key": acme.key})
    assert answer.status_code == 200
    assert set(answer.json()) == AGENT_SEES
    assert answer.json()["note"] == "fine"
    for identity in (acme.user["id"], acme.email):
        assert identity not in answer.text


def test_foreign_and_unknown_approvals_are_not_found(acme: Owner, rival: Owner, ask: Ask) -> None:
    """Another organization's request is 404 on every path, and stays pending (decisions §2)."""
    approval = ask()["approval_id"]
    for owner, which in ((rival, approval), (acme, UNKNOWN), (acme, "x"), (acme, "%20")):
        answers: list[httpx.Response] = [
            owner.http.get(f"/api/approvals/{which}"),
            owner.http.post(f"/api/approvals/{which}/approve"),
            owner.http.post(f"/api/approvals/{which}/deny"),
            owner.http.get(f"/sdk/approvals/{which}", headers={"X-API-Key": owner.key}),
            owner.http.get(f"/sdk/approvals/{which}?wait=30", headers={"X-API-Key": owner.key}),
        ]
        for answer in answers:
            refused(answer, 404, "Approval not found")
    assert ask()["approval_id"] == approval


def test_a_decision_is_audited(gateway: LiveGateway, acme: Owner, ask: Ask, decide: Decide) -> None:
    """The management audit says who decided what, from where (decisions §3)."""
    approval = ask()["approval_id"]
    decide(approval, "deny")
    query = "SELECT kind, user_id, ip_address FROM audit_entries WHERE resource_id = ?"
    assert rows(gateway, query, approval) == [("approval.denied", acme.user["id"], "127.0.0.1")]


def test_a_note_is_plain_text(acme: Owner, ask: Ask) -> None:
    """Control characters, which a terminal would obey, are refused and nothing is decided."""
    approval = ask()["approval_id"]
    answer = acme.http.post(f"/api/approvals/{approval}/deny", json={"note": "\x1b[31mred"})
    assert (answer.status_code, list(answer.json()["detail"])) == (400, ["note"])
    assert acme.http.get(f"/api/approvals/{approval}").json()["status"] == "pending"
