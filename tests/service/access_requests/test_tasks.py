"""Status and cancellation of tasks, and their relation to approval requests."""

from typing import Any

import pytest
from support.arap import AccessRequestPep
from support.authzen import agent_key
from support.gateway import LiveGateway, Owner
from support.people import Board, board
from support.requester import REFUND, Requester, problem
from support.tables import execute, rows
from support.upkeep import ago_text

from toolgate_service.core.plans import BUILT_IN
from toolgate_service.db.database import open_database
from toolgate_service.maintenance import prune

PAST = "2026-01-01T00:00:00.000000Z"


def status(pep: Requester, task: dict[str, Any]) -> dict[str, Any]:
    answer = pep.poll(task)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def cancel(pep: Requester, task: dict[str, Any], **body: object) -> Any:
    return pep.http.post(task["links"]["cancel"], json=body or None)


@pytest.fixture
def task(pep: Requester) -> dict[str, Any]:
    found: dict[str, Any] = pep.request(REFUND)["task"]
    return found


def test_pending_task_says_when_to_read_it_again(pep: Requester, task: dict[str, Any]) -> None:
    answer = pep.poll(task)
    assert answer.json() == {"task": task}
    assert answer.headers["Retry-After"] == "5"


def test_approved_task_must_contain_an_approval_with_an_end(pep: Requester, task: dict[str, Any]) -> None:
    pep.decide()
    answer = pep.poll(task)
    body = answer.json()
    assert body["task"]["status"] == "approved"
    assert "Retry-After" not in answer.headers
    assert body["result"]["mode"] == "reevaluate"
    approval = body["result"]["approval"]
    assert approval.keys() == {"id", "approved_at", "approved_until"}
    assert approval["approved_at"] < approval["approved_until"]


def test_task_stays_approved_after_its_use(pep: Requester, task: dict[str, Any]) -> None:
    pep.decide()
    before = status(pep, task)
    pep.evaluate(REFUND, before["result"]["approval"])
    assert status(pep, task) == before


def test_task_stays_approved_after_the_end_of_the_approval(
    gateway: LiveGateway, pep: Requester, task: dict[str, Any]
) -> None:
    pep.decide()
    execute(gateway, "UPDATE approvals SET expires_at = ? WHERE id = ?", PAST, pep.approvals()[0]["id"])
    assert status(pep, task)["task"]["status"] == "approved"


def test_task_stays_approved_after_the_approval_is_withdrawn(pep: Requester, task: dict[str, Any]) -> None:
    pep.decide()
    approval = pep.approvals()[0]["id"]
    assert pep.http.post(f"{pep.owner.url}/sdk/approvals/{approval}/cancel").status_code == 200
    assert status(pep, task)["task"]["status"] == "approved"


def test_rejected_request_is_a_denied_task_without_result(pep: Requester, task: dict[str, Any]) -> None:
    pep.decide("deny", note="No")
    body = status(pep, task)
    assert body["task"]["status"] == "denied"
    assert "result" not in body
    assert "No" not in str(body)


def test_undecided_request_expires(gateway: LiveGateway, pep: Requester, task: dict[str, Any]) -> None:
    execute(gateway, "UPDATE approvals SET expires_at = ? WHERE id = ?", PAST, pep.approvals()[0]["id"])
    assert status(pep, task)["task"]["status"] == "expired"


def test_edited_request_is_denied_and_names_the_approved_access(pep: Requester, task: dict[str, Any]) -> None:
    context = pep.approvals()[0]["context"] | {"amount": 10}
    pep.decide(context=context)
    body = status(pep, task)
    assert body["task"]["status"] == "denied"
    assert body["result"]["mode"] == "urn:toolgate:result:edited"
    evaluation = body["result"]["evaluation"]
    assert evaluation["action"] == {"name": "call", "properties": {"amount": 10}}
    assert evaluation["subject"] == REFUND["subject"]


def test_edited_request_stays_pending_while_further_approvals_are_missing(gateway: LiveGateway) -> None:
    with board(gateway, people=3, required_approvals=2) as people:
        owner = people.people[0]
        pep = requester_of(people)
        body = pep.request(REFUND)
        [first] = pep.approvals()
        pep.decide(context=first["context"] | {"amount": 10})
        assert status(pep, body["task"])["task"]["status"] == "pending"
        successor = owner.http.get(f"/api/approvals/{first['id']}").json()["replaced_by"]
        people.approved(successor, 1)
        assert status(pep, body["task"])["task"]["status"] == "denied"
        pep.close()


def requester_of(people: Board) -> Requester:
    return Requester(people.people[0], people.agent)


def test_progress_contains_numbers_and_no_approvers(gateway: LiveGateway) -> None:
    with board(gateway, people=3, required_approvals=2) as people:
        pep = requester_of(people)
        body = pep.request(REFUND)
        assert body["task"]["progress"] == {"current_step": 1, "total_steps": 2}
        people.approved(pep.approvals()[0]["id"], 0)
        pending = status(pep, body["task"])
        assert pending["task"]["progress"] == {"current_step": 2, "total_steps": 2}
        people.approved(pep.approvals()[0]["id"], 1)
        done = status(pep, body["task"])
        assert done["task"]["status"] == "approved"
        assert "progress" not in done["task"]
        for owner in people.people:
            assert owner.user["id"] not in f"{pending}{done}"
            assert owner.email not in f"{pending}{done}"
        pep.close()


def test_cancellation_ends_the_approval_request(pep: Requester, task: dict[str, Any]) -> None:
    answer = cancel(pep, task, reason="user_left", comment="Closed the page")
    assert answer.status_code == 200
    assert answer.json()["task"]["status"] == "cancelled"
    [approval] = pep.approvals()
    assert (approval["status"], approval["cancel_reason"]) == (
        "cancelled",
        "cancelled by the agent: user_left",
    )


@pytest.mark.parametrize("decision", ["approve", "deny"])
def test_cancellation_of_a_decided_task_must_be_a_conflict(
    pep: Requester, task: dict[str, Any], decision: str
) -> None:
    pep.decide(decision)
    assert problem(cancel(pep, task)) == (409, "invalid_task_state")


def test_second_cancellation_is_a_conflict(pep: Requester, task: dict[str, Any]) -> None:
    cancel(pep, task)
    assert problem(cancel(pep, task)) == (409, "invalid_task_state")


def test_task_is_portable_between_clients_of_the_agent(pep: Requester, task: dict[str, Any]) -> None:
    other = Requester(pep.owner, pep.agent)
    assert status(other, task)["task"]["id"] == task["id"]
    assert cancel(other, task).status_code == 200
    other.close()


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_task_of_another_agent_must_be_unknown(pep: Requester, task: dict[str, Any], method: str) -> None:
    pep.http.headers["Authorization"] = f"Bearer {agent_key(pep.owner, pep.owner.agent('other'))}"
    url = task["status_endpoint"] if method == "GET" else task["links"]["cancel"]
    assert problem(pep.http.request(method, url)) == (404, "unknown_task")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_task_of_another_organization_must_be_unknown(
    pep: Requester, task: dict[str, Any], method: str, rival: Owner
) -> None:
    pep.http.headers["Authorization"] = f"Bearer {rival.key}"
    url = task["status_endpoint"] if method == "GET" else task["links"]["cancel"]
    assert problem(pep.http.request(method, url)) == (404, "unknown_task")


def test_task_must_not_be_read_without_a_key(pep: Requester, task: dict[str, Any]) -> None:
    del pep.http.headers["Authorization"]
    assert problem(pep.poll(task)) == (401, "blank")


@pytest.mark.parametrize("task_id", ["3f0f7f0a-6d3d-4a0e-9a55-6a1b9c2d4e55", "x"])
def test_unknown_task_is_not_found(pep: Requester, task_id: str) -> None:
    url = f"{pep.metadata['access_request_endpoint']}/{task_id}"
    assert problem(pep.http.get(url)) == (404, "unknown_task")


def test_task_must_expire(gateway: LiveGateway, pep: Requester, task: dict[str, Any]) -> None:
    execute(gateway, "UPDATE access_requests SET expires_at = ? WHERE id = ?", PAST, task["id"])
    assert problem(pep.poll(task)) == (410, "task_expired")
    assert problem(cancel(pep, task)) == (410, "task_expired")


def test_request_id_of_the_client_is_returned(pep: Requester, task: dict[str, Any]) -> None:
    answer = pep.http.get(task["status_endpoint"], headers={"X-Request-ID": "any text (1)"})
    assert answer.headers["X-Request-ID"] == "any text (1)"


def test_erasure_of_the_approval_request_erases_the_submission(
    gateway: LiveGateway, pep: Requester, task: dict[str, Any]
) -> None:
    pep.decide("deny")
    approval = pep.approvals()[0]["id"]
    erased = pep.owner.http.post(f"/api/approvals/{approval}/erase")
    assert erased.status_code in {200, 204}, erased.text
    assert rows(gateway, "SELECT submission FROM access_requests WHERE id = ?", task["id"]) == [("{}",)]
    assert status(pep, task)["task"]["status"] == "denied"


def test_edited_access_is_permitted_once_with_its_approval(pep: Requester, task: dict[str, Any]) -> None:
    pep.decide(context=pep.approvals()[0]["context"] | {"amount": 10})
    result = status(pep, task)["result"]
    assert pep.evaluate(result["evaluation"], result["approval"])["decision"] is True
    assert pep.evaluate(result["evaluation"], result["approval"])["decision"] is False


@pytest.mark.parametrize(("days", "left"), [(6, 1), (8, 0)])
async def test_submissions_of_the_test_environment_are_deleted_after_seven_days(
    gateway: LiveGateway, newcomer: Owner, days: int, left: int
) -> None:
    where = {"environment": "test"}
    agent = newcomer.http.post("/api/agents", json={"name": "bot"}, params=where).json()["id"]
    permission = {"action": "stripe.refund", "requires_approval": True}
    newcomer.http.post(f"/api/agents/{agent}/permissions", json=permission, params=where)
    key = newcomer.http.post(f"/api/agents/{agent}/keys", params=where).json()["api_key"]
    client = AccessRequestPep(newcomer.url, key)
    client.request(REFUND)
    client.close()
    of, old = newcomer.user["organization_id"], ago_text(days=days)
    for table in ("access_requests", "access_request_items"):
        execute(gateway, f"UPDATE {table} SET expires_at = ? WHERE organization_id = ?", old, of)
    database = open_database(gateway.database_url)
    await database.start()
    await prune(database, BUILT_IN, 100, force=True)
    await database.close()
    assert rows(gateway, "SELECT count(*) FROM access_requests WHERE organization_id = ?", of) == [(left,)]
