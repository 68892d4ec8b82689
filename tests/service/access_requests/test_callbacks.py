"""Callbacks: notifications of a webhook about the end of a task."""

from collections.abc import Iterator
from typing import Any

import pytest
from standardwebhooks import Webhook as Verifier
from support.gateway import LiveGateway, Owner
from support.hooked import Hook
from support.receiver import Receiver
from support.requester import REFUND, Requester, problem
from support.tables import execute, rows
from support.upkeep import ago_text
from support.waiting import until


@pytest.fixture(scope="module")
def calling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """Gateway whose webhooks may have addresses of this machine."""
    env = {"TOOLGATE_WEBHOOKS_ALLOW_PRIVATE": "true", "TOOLGATE_APPROVAL_WATCH_SECONDS": "1"}
    with LiveGateway(tmp_path_factory.mktemp("calling"), env=env) as gateway:
        yield gateway


@pytest.fixture
def pep(calling: LiveGateway) -> Iterator[Requester]:
    with Owner(calling.url) as owner:
        agent = owner.agent()
        owner.permit(agent, "stripe.refund", requires_approval=True)
        client = Requester(owner, agent)
        yield client
        client.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


@pytest.fixture
def hook(pep: Requester, receiver: Receiver) -> Hook:
    """A webhook that receives no other events."""
    return Hook(pep.owner, receiver, "agent.deleted")


def submit(pep: Requester, receiver: Receiver, amount: int = 40, **members: object) -> dict[str, Any]:
    access = REFUND | {"action": {"name": "call", "properties": {"amount": amount}}}
    callback = {"endpoint": receiver.url} | members
    answer = pep.submit(pep.submission(access, pep.evaluate(access), callback=callback))
    assert answer.status_code == 202, answer.text
    task: dict[str, Any] = answer.json()["task"]
    return task


def are_sent(calling: LiveGateway, *tasks: dict[str, Any]) -> bool:
    query = "SELECT callback FROM access_requests WHERE id = ?"
    return all(rows(calling, query, task["id"]) == [(None,)] for task in tasks)


def test_callback_must_be_authenticated_and_contain_the_task_and_the_state_unchanged(
    calling: LiveGateway, pep: Requester, receiver: Receiver, hook: Hook
) -> None:
    """Each way in which a task ends is notified once, unless the client requested other events."""
    with Receiver() as other:
        Hook(pep.owner, other, "agent.created")
        tasks = {}
        for amount, status in enumerate(("approved", "denied", "cancelled", "expired", "edited", "ignored")):
            events = ["denied", "future_event"] if status == "ignored" else None
            tasks[status] = submit(pep, receiver, amount, state=status, events=events)
            approval = pep.approvals()[0]
            match status:
                case "approved" | "ignored":
                    pep.decide()
                case "denied":
                    pep.decide("reject")
                case "cancelled":
                    pep.http.post(tasks[status]["links"]["cancel"]).raise_for_status()
                case "expired":
                    past = ago_text(minutes=1)
                    execute(calling, "UPDATE approvals SET expires_at = ? WHERE id = ?", past, approval["id"])
                case "edited":
                    edited = approval["context"] | {"amount": 30}
                    pep.decide(context=edited)
        until(lambda: are_sent(calling, *tasks.values()))
        found = {got.event["state"]: got for got in receiver.wait(5)}
        assert len(hook.settled(5)) == 5
        assert other.got == []
    assert found.keys() == tasks.keys() - {"ignored"}
    for state, got in found.items():
        assert Verifier(hook.secret).verify(got.body, dict(got.headers)) == got.event
        status = "denied" if state == "edited" else state
        task = {name: tasks[state][name] for name in ("id", "status_endpoint")}
        assert got.event["type"] == f"access_request.{status}"
        assert got.event["task"] == task | {"status": status}
        assert got.event.keys() == {"type", "timestamp", "task", "state"}
        assert pep.poll(task).json()["task"]["status"] == status


def test_callback_of_a_deleted_webhook_is_dropped(
    calling: LiveGateway, pep: Requester, receiver: Receiver, hook: Hook
) -> None:
    task = submit(pep, receiver)
    pep.owner.http.delete(hook.path).raise_for_status()
    pep.decide()
    until(lambda: are_sent(calling, task))
    assert receiver.got == []
    assert pep.poll(task).json()["task"]["status"] == "approved"


@pytest.mark.parametrize(
    "endpoint", ["https://example.com/other", "ftp://example.com", "https://user:password@example.com/"]
)
def test_endpoint_that_is_not_registered_must_be_rejected(
    pep: Requester, receiver: Receiver, hook: Hook, endpoint: str
) -> None:
    body = pep.submission(REFUND, pep.evaluate(REFUND), callback={"endpoint": endpoint})
    assert problem(pep.submit(body)) == (400, "blank")


def test_webhook_of_another_environment_or_a_disabled_one_is_rejected(
    pep: Requester, receiver: Receiver
) -> None:
    body = pep.submission(REFUND, pep.evaluate(REFUND), callback={"endpoint": receiver.url})
    Hook(pep.owner, receiver, environment="test")
    assert problem(pep.submit(body)) == (400, "blank")
    hook = Hook(pep.owner, receiver)
    hook.change(is_active=False)
    assert problem(pep.submit(body)) == (400, "blank")
    hook.change(is_active=True)
    assert pep.submit(body).status_code == 202


def test_internal_endpoint_must_be_rejected(newcomer: Owner) -> None:
    agent = newcomer.agent()
    newcomer.permit(agent, "stripe.refund", requires_approval=True)
    client = Requester(newcomer, agent)
    callback = {"endpoint": "https://127.0.0.1/callback"}
    body = client.submission(REFUND, client.evaluate(REFUND), callback=callback)
    answer = client.submit(body)
    client.close()
    assert problem(answer) == (400, "blank")
    assert "callback.endpoint" in answer.json()["detail"]
