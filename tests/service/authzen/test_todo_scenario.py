"""The Todo scenario of the AuthZEN working group, with the policy in `examples/authzen/todo.policy.yaml`."""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from support.authzen import DATA, EVALUATION, EVALUATIONS, EXAMPLES, SUBJECTS, Pep, published, set_up
from support.gateway import LiveGateway, Owner

DECISIONS = published("decisions-authorization-api-1_0-02.json")
EMAILS = {
    "rick": "rick@the-citadel.com",
    "morty": "morty@the-citadel.com",
    "summer": "summer@the-smiths.com",
    "beth": "beth@the-smiths.com",
    "jerry": "jerry@the-smiths.com",
}
EDITORS = ("rick", "morty", "summer")


@pytest.fixture(scope="module")
def todo(gateway: LiveGateway) -> Iterator[Pep]:
    with Owner(gateway.url) as owner, set_up(owner, "todo.policy.yaml") as client:
        yield client


@pytest.mark.parametrize("case", DECISIONS["evaluation"], ids=range(len(DECISIONS["evaluation"])))
def test_published_evaluation_is_decided_as_expected(todo: Pep, case: dict[str, Any]) -> None:
    assert todo.post(EVALUATION, case["request"]).json()["decision"] is case["expected"]


@pytest.mark.parametrize("case", DECISIONS["evaluations"], ids=range(len(DECISIONS["evaluations"])))
def test_published_evaluations_are_decided_as_expected(todo: Pep, case: dict[str, Any]) -> None:
    """The published test runner compares the whole decisions, so that these must not have a context."""
    assert todo.post(EVALUATIONS, case["request"]).json()["evaluations"] == case["expected"]


@pytest.mark.parametrize("user", EMAILS)
@pytest.mark.parametrize("owner", EMAILS)
@pytest.mark.parametrize("action", ["can_update_todo", "can_delete_todo"])
def test_editors_change_their_own_todos_and_rick_changes_all(
    todo: Pep, user: str, owner: str, action: str
) -> None:
    expected = user == "rick" or (user == owner and user in EDITORS)
    todo_of_owner = {"type": "todo", "id": "7240d0db", "properties": {"ownerID": EMAILS[owner]}}
    request = {
        "subject": {"type": "user", "id": EMAILS[user]},
        "action": {"name": action},
        "resource": todo_of_owner,
    }
    assert todo.evaluate(request)["decision"] is expected


@pytest.mark.parametrize("resource", [{"type": "todo", "id": "1"}, {"type": "user", "id": EMAILS["morty"]}])
def test_todo_without_an_owner_is_not_changed_by_an_editor(todo: Pep, resource: dict[str, str]) -> None:
    subject = {"type": "user", "id": EMAILS["morty"]}
    request = {"subject": subject, "action": {"name": "can_update_todo"}, "resource": resource}
    assert todo.evaluate(request)["decision"] is False


@pytest.mark.parametrize("name", ["can_read_user", "can_read_todos", "can_create_todo", "can_update_todo"])
def test_unknown_user_is_denied(todo: Pep, name: str) -> None:
    resource = {"type": "user" if name == "can_read_user" else "todo", "id": "1"}
    request = {
        "subject": {"type": "user", "id": "mallory"},
        "action": {"name": name},
        "resource": resource,
    }
    assert todo.evaluate(request)["decision"] is False


def test_default_resource_may_be_empty_if_each_evaluation_has_its_own(todo: Pep) -> None:
    """The scenario's page sends `resource: {}` and `context: {}` as defaults."""
    mine, yours = (
        {"resource": {"type": "todo", "id": "1", "properties": {"ownerID": EMAILS[name]}}}
        for name in ("morty", "rick")
    )
    decisions = todo.evaluate_all(
        subject={"type": "user", "id": EMAILS["morty"]},
        action={"name": "can_update_todo"},
        resource={},
        context={},
        evaluations=[yours, mine],
    )
    assert decisions == [{"decision": False}, {"decision": True}]


def test_search_finds_the_users_who_may_create_todos(todo: Pep) -> None:
    request = {
        "subject": {"type": "user"},
        "action": {"name": "can_create_todo"},
        "resource": {"type": "todo", "id": "1"},
    }
    found = todo.search(SUBJECTS, request)
    assert {one for one in found if "@" in one} == {EMAILS[name] for name in EDITORS}
    assert len(found) == 6


def test_example_program_confirms_the_published_decisions(todo: Pep) -> None:
    file = DATA / "decisions-authorization-api-1_0-02.json"
    program = [sys.executable, str(EXAMPLES / "evaluate.py"), str(file)]
    env = os.environ | {"TOOLGATE_URL": todo.owner.url, "TOOLGATE_API_KEY": todo.key}
    ran = subprocess.run(program, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (0, "43 of 43 requests were decided as expected\n"), ran.stderr
