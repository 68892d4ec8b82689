"""Access requests for several evaluations."""

from typing import Any

import pytest
from support.arap import denial_of
from support.requester import REFUND, Requester, problem

SHARED = {name: REFUND[name] for name in ("subject", "context")}


def access(amount: int) -> dict[str, Any]:
    return REFUND | {"action": {"name": "call", "properties": {"amount": amount}}}


def item(pep: Requester, amount: int) -> dict[str, Any]:
    one = access(amount)
    return {"resource": one["resource"], "action": one["action"], "denial": denial_of(pep.evaluate(one))}


def approval_of(pep: Requester, amount: int) -> str:
    [found] = [one["id"] for one in pep.approvals() if one["context"]["amount"] == amount]
    return str(found)


@pytest.fixture
def task(pep: Requester) -> dict[str, Any]:
    answer = pep.submit(SHARED | {"items": [item(pep, 1), item(pep, 2)]})
    assert answer.status_code == 202, answer.text
    found: dict[str, Any] = answer.json()["task"]
    return found


def read(pep: Requester, task: dict[str, Any]) -> tuple[str, list[str]]:
    body = pep.poll(task).json()
    assert "result" not in body
    items = body["task"]["items"]
    assert [one["action"]["properties"]["amount"] for one in items] == [1, 2]
    assert all(("result" in one) is (one["status"] == "approved") for one in items)
    return body["task"]["status"], [one["status"] for one in items]


def test_task_is_pending_while_an_item_is_pending(pep: Requester, task: dict[str, Any]) -> None:
    pep.decide(approval=approval_of(pep, 2))
    assert read(pep, task) == ("pending", ["pending", "approved"])


def test_equal_states_are_the_state_of_the_task(pep: Requester, task: dict[str, Any]) -> None:
    for amount in (1, 2):
        pep.decide(approval=approval_of(pep, amount))
    assert read(pep, task) == ("approved", ["approved", "approved"])


def test_different_final_states_are_partial(pep: Requester, task: dict[str, Any]) -> None:
    pep.decide("deny", approval=approval_of(pep, 1))
    pep.decide(approval=approval_of(pep, 2))
    assert read(pep, task) == ("partial", ["denied", "approved"])


def test_each_approved_item_is_evaluated_separately(pep: Requester, task: dict[str, Any]) -> None:
    pep.decide(approval=approval_of(pep, 2))
    [_, second] = pep.poll(task).json()["task"]["items"]
    assert pep.evaluate(access(1), second["result"]["approval"])["decision"] is False
    pep.decide(approval=approval_of(pep, 1))
    first, second = (one["result"]["approval"] for one in pep.poll(task).json()["task"]["items"])
    assert pep.evaluate(access(1), first)["decision"] is True
    assert pep.evaluate(access(2), second)["decision"] is True


def test_cancellation_leaves_decided_items_unchanged(pep: Requester, task: dict[str, Any]) -> None:
    pep.decide(approval=approval_of(pep, 1))
    answer = pep.http.post(task["links"]["cancel"])
    assert answer.status_code == 200
    assert read(pep, task) == ("partial", ["approved", "cancelled"])
    assert problem(pep.http.post(task["links"]["cancel"])) == (409, "invalid_task_state")


def test_item_without_its_own_denial_must_be_rejected(pep: Requester) -> None:
    first, second = item(pep, 1), item(pep, 2)
    denial = second.pop("denial")
    body = SHARED | {"items": [first, second], "denial": denial}
    assert problem(pep.submit(body)) == (400, "invalid_denial_binding")


def test_denial_of_another_item_must_be_rejected(pep: Requester) -> None:
    first, second = item(pep, 1), item(pep, 2)
    first["denial"], second["denial"] = second["denial"], first["denial"]
    assert problem(pep.submit(SHARED | {"items": [first, second]})) == (400, "invalid_denial_binding")


def test_rejected_item_rejects_the_whole_submission(pep: Requester) -> None:
    first, second = item(pep, 1), item(pep, 2)
    pep.submit(SHARED | {"items": [first, second | {"denial": first["denial"]}]})
    assert pep.submit(SHARED | {"items": [first, second]}).status_code == 202


def test_entities_beside_items_must_be_rejected(pep: Requester) -> None:
    body = SHARED | {"items": [item(pep, 1)], "resource": REFUND["resource"]}
    answer = pep.submit(body)
    assert problem(answer) == (400, "blank")
    assert "resource" in answer.json()["detail"]
