"""GET /sdk/approvals/{id}?wait=SECONDS (decisions §3)."""

import time
from functools import partial

import httpx
import pytest
from support.asking import Ask
from support.crowd import together
from support.gateway import Owner
from support.shapes import complaints, problem


def poll(owner: Owner, approval: str, wait: object = None) -> httpx.Response:
    params = {} if wait is None else {"wait": str(wait)}
    return owner.http.get(f"/sdk/approvals/{approval}", params=params, headers={"X-API-Key": owner.key})


@pytest.mark.parametrize("how", ["approve", "deny"])
def test_a_decision_wakes_whoever_waits(acme: Owner, ask: Ask, how: str) -> None:
    """Four waiting agents are answered by one decision, long before their patience ends."""
    approval = ask()["approval_id"]
    began = time.monotonic()
    decision = partial(acme.http.post, f"/api/approvals/{approval}/{how}", json={"note": "n"})
    *answers, decided = together(*[partial(poll, acme, approval, 20)] * 4, decision)
    assert time.monotonic() - began < 10
    assert {answer.json()["status"] for answer in answers} == {decided.json()["status"]}


def test_a_wait_ends_when_the_request_is_cancelled(acme: Owner, bot: str, ask: Ask) -> None:
    """Switching the agent off ends the wait as well."""
    approval = ask()["approval_id"]
    switch = partial(acme.http.put, f"/api/agents/{bot}", json={"status": "inactive"})
    began = time.monotonic()
    answer, _ = together(partial(poll, acme, approval, 20), switch)
    assert answer.json()["status"] == "cancelled"
    assert time.monotonic() - began < 10


def test_a_wait_that_ends_without_a_decision_says_pending(acme: Owner, ask: Ask) -> None:
    """After the seconds asked for the answer is 200 with the request as it is: pending."""
    approval = ask()["approval_id"]
    began = time.monotonic()
    answer = poll(acme, approval, 1)
    assert (answer.status_code, answer.json()["status"]) == (200, "pending")
    assert 0.95 <= time.monotonic() - began < 8


@pytest.mark.parametrize("wait", [None, 0])
def test_without_a_wait_the_answer_is_immediate(acme: Owner, ask: Ask, wait: object) -> None:
    """Nobody waits who did not ask to."""
    began = time.monotonic()
    assert poll(acme, ask()["approval_id"], wait).json()["status"] == "pending"
    assert time.monotonic() - began < 5


def test_a_decided_request_is_not_waited_for(acme: Owner, ask: Ask) -> None:
    """Whoever comes after the decision is answered at once."""
    approval = ask()["approval_id"]
    acme.http.post(f"/api/approvals/{approval}/deny")
    began = time.monotonic()
    assert poll(acme, approval, 60).json()["status"] == "denied"
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("wait", [-1, 61, "soon", "1.5", ""])
def test_a_wrong_wait_is_named_and_counted(acme: Owner, ask: Ask, wait: object) -> None:
    """A wait beyond 0-60 seconds is 400 by name, with the rate headers of an authenticated answer (decisions §7)."""
    answer = poll(acme, ask()["approval_id"], wait)
    assert list(complaints(answer)) == ["wait"]
    assert int(answer.headers["X-RateLimit-Remaining"]) < int(answer.headers["X-RateLimit-Limit"])


def test_waiting_does_not_block_other_requests(acme: Owner, bot: str, ask: Ask) -> None:
    """Thirty waiting agents cost a check nothing; all are woken."""
    approval = ask()["approval_id"]

    def work_then_decide() -> httpx.Response:
        for _ in range(20):
            assert acme.check(bot, "db.drop").json()["approval_id"] == approval
        return acme.http.post(f"/api/approvals/{approval}/approve")

    *answers, _ = together(*[partial(poll, acme, approval, 30)] * 30, work_then_decide)
    assert [answer.json()["status"] for answer in answers] == ["approved"] * 30


def test_a_revoked_key_hears_of_no_decision(newcomer: Owner) -> None:
    """A key that is replaced while it waits gets 401, not the decision (spec §5)."""
    agent = newcomer.agent()
    newcomer.permit(agent, "db.drop", requires_approval=True)
    approval = newcomer.check(agent, "db.drop").json()["approval_id"]
    answer, _ = together(
        partial(poll, newcomer, approval, 20), partial(newcomer.http.post, "/api/organization/regenerate-key")
    )
    assert (answer.status_code, answer.json()) == (401, problem(401, "Invalid API key"))


@pytest.mark.parametrize("wait", ["1_0", "+5", "1.0", "\N{ARABIC-INDIC DIGIT ONE}"])
def test_seconds_are_plain_digits(acme: Owner, ask: Ask, wait: str) -> None:
    """What only Python takes for a number is refused."""
    answer = poll(acme, ask()["approval_id"], wait)
    assert (answer.status_code, list(answer.json()["detail"])) == (400, ["wait"])


def test_advisory_key_changes_nothing_for_approvers(newcomer: Owner) -> None:
    agent = newcomer.agent()
    newcomer.permit(agent, "stripe.refund", requires_approval=True)
    approval = newcomer.check(agent, "stripe.refund", {}).json()["approval_id"]
    key = newcomer.http.post(f"/api/agents/{agent}/keys", json={"advisory": True}).json()["api_key"]
    before = newcomer.http.get(f"/api/approvals/{approval}").json()
    waited = httpx.get(
        f"{newcomer.url}/sdk/approvals/{approval}?wait=1", headers={"X-API-Key": key}, timeout=30
    )
    assert waited.status_code == 200
    assert newcomer.http.get(f"/api/approvals/{approval}").json() == before
