"""The reason that an agent gives for a call, and whether a call waits for the decision."""

import time
from functools import partial
from typing import Any

import httpx
import pytest
from support.asking import Ask, Decide
from support.crowd import together
from support.gateway import Owner
from support.shapes import complaints


def shown(owner: Owner, approval: str) -> dict[str, Any]:
    found: dict[str, Any] = owner.http.get(f"/api/approvals/{approval}").json()
    return found


def until_waiting(owner: Owner, approval: str, *, waiting: bool) -> dict[str, Any]:
    deadline = time.monotonic() + 20
    while (found := shown(owner, approval))["waiting"] is not waiting:
        assert time.monotonic() < deadline, found
    return found


def test_the_reason_is_shown_to_approvers_and_not_to_agents(acme: Owner, ask: Ask) -> None:
    approval = ask({"table": "t"}, reason="  The user wrote:\n“drop it” \t👩‍💻 ")["approval_id"]
    assert shown(acme, approval)["reason"] == "The user wrote:\n“drop it” \t👩‍💻"
    seen = acme.http.get(f"/sdk/approvals/{approval}", headers={"X-API-Key": acme.key}).json()
    assert "reason" not in seen


@pytest.mark.parametrize("reason", [None, "", " \n "])
def test_without_a_reason_the_field_is_null(acme: Owner, ask: Ask, reason: str | None) -> None:
    assert shown(acme, ask({"n": repr(reason)}, reason=reason)["approval_id"])["reason"] is None


@pytest.mark.parametrize("reason", [7, ["x"], {"a": 1}, True, "x" * 1001, "a\x1bb", "\u202eab"])
def test_an_invalid_reason_is_refused_by_name(acme: Owner, bot: str, permission: str, reason: object) -> None:
    answer = acme.check(bot, "db.drop", {"invalid": "reason"}, reason=reason)
    assert answer.status_code == 400
    assert list(complaints(answer)) == ["reason"]
    waiting = acme.http.get("/api/approvals", params={"agent_id": bot}).json()
    assert all(one["context"] != {"invalid": "reason"} for one in waiting)


def test_a_longest_reason_is_accepted(acme: Owner, ask: Ask) -> None:
    approval = ask({"longest": True}, reason=" " + "x" * 1000 + " ")["approval_id"]
    assert shown(acme, approval)["reason"] == "x" * 1000


def test_the_first_reason_stays_and_binds_nothing(acme: Owner, ask: Ask, decide: Decide) -> None:
    """Checks that differ only in their reason are the same request, and one approval covers them."""
    first = ask({"n": 1}, reason="first")["approval_id"]
    assert ask({"n": 1}, reason="second")["approval_id"] == first
    assert ask({"n": 1})["approval_id"] == first
    assert shown(acme, first)["reason"] == "first"
    decide(first)
    assert ask({"n": 1}, reason="third")["allowed"] is True
    assert shown(acme, first)["reason"] == "first"


def test_an_edited_request_keeps_the_reason(acme: Owner, ask: Ask, decide: Decide) -> None:
    approval = ask({"n": 2, "edit": True}, reason="as the user wishes")["approval_id"]
    replaced = decide(approval, context={"n": 1}).json()
    assert shown(acme, replaced["replaced_by"])["reason"] == "as the user wishes"


def test_a_request_shows_whether_a_call_waits(acme: Owner, ask: Ask, decide: Decide) -> None:
    """A long poll is a waiting call; it ends with the decision."""
    approval = ask({"waits": 1})["approval_id"]
    before = shown(acme, approval)
    assert before["waiting"] is False
    assert before["last_asked_at"] == before["created_at"]

    def decide_when_waiting() -> httpx.Response:
        found = until_waiting(acme, approval, waiting=True)
        assert found["last_asked_at"] > before["last_asked_at"]
        return decide(approval)

    poll = partial(
        acme.http.get, f"/sdk/approvals/{approval}", params={"wait": "30"}, headers={"X-API-Key": acme.key}
    )
    polled, decided = together(poll, decide_when_waiting)
    assert polled.json()["status"] == "approved"
    assert decided.json()["waiting"] is False


def test_a_call_that_hangs_up_no_longer_waits(acme: Owner, ask: Ask) -> None:
    approval = ask({"waits": 2})["approval_id"]

    def hang_up() -> None:
        with pytest.raises(httpx.ReadTimeout):
            acme.http.get(
                f"/sdk/approvals/{approval}",
                params={"wait": "60"},
                headers={"X-API-Key": acme.key},
                timeout=2,
            )

    together(hang_up, partial(until_waiting, acme, approval, waiting=True))
    until_waiting(acme, approval, waiting=False)


@pytest.mark.slow
@pytest.mark.parametrize(("stays", "leaves"), [(12, 5), (12, 50)])
def test_one_of_two_waiting_calls_that_hangs_up_leaves_the_other(
    acme: Owner, ask: Ask, stays: int, leaves: int
) -> None:
    """Whichever of them would have waited longer."""
    approval = ask({"waits": leaves})["approval_id"]

    def poll(wait: int, timeout: float) -> None:
        acme.http.get(
            f"/sdk/approvals/{approval}",
            params={"wait": str(wait)},
            headers={"X-API-Key": acme.key},
            timeout=timeout,
        )

    def hang_up() -> None:
        until_waiting(acme, approval, waiting=True)
        with pytest.raises(httpx.ReadTimeout):
            poll(leaves, 1)
        # The gateway looks for clients that left every five seconds at the latest.
        ends = time.monotonic() + 7
        while time.monotonic() < ends:
            assert shown(acme, approval)["waiting"] is True

    together(partial(poll, stays, 30), hang_up)


def test_a_retry_with_another_reason_is_the_same_attempt(
    acme: Owner, bot: str, ask: Ask, decide: Decide
) -> None:
    decide(ask({"attempt": 1}, reason="first")["approval_id"])
    headers = {"X-API-Key": acme.key, "Idempotency-Key": "with a reason"}

    def attempt(reason: str, context: object) -> httpx.Response:
        body = {"agent_id": bot, "action": "db.drop", "context": context, "reason": reason}
        return acme.http.post("/sdk/check", json=body, headers=headers)

    first, again = attempt("first", {"attempt": 1}), attempt("second", {"attempt": 1})
    assert first.json()["allowed"] is again.json()["allowed"] is True
    assert first.headers["X-Decision-ID"] == again.headers["X-Decision-ID"]
    assert attempt("first", {"attempt": 2}).json()["requires_approval"] is True


def test_a_repeated_check_is_the_last_time_it_was_asked(acme: Owner, ask: Ask) -> None:
    approval = ask({"again": 1})["approval_id"]
    before = shown(acme, approval)["last_asked_at"]
    ask({"again": 1}, dry_run=True)
    assert shown(acme, approval)["last_asked_at"] == before
    ask({"again": 1})
    assert shown(acme, approval)["last_asked_at"] > before
