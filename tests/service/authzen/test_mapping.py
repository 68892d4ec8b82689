"""Translation of access evaluations into checks."""

import json
from typing import Any
from urllib.parse import unquote

import pytest
from support.authzen import EVALUATION, READING, Pep
from support.decisions import recorded

from toolgate_service.authzen.mapping import action_of, agent_of, name_of, to_check
from toolgate_service.authzen.schemas import read_evaluation
from toolgate_service.core.errors import FieldErrors

OTHER = "01890000-0000-7000-8000-000000000000"


def check(**members: object) -> dict[str, Any]:
    """Return the arguments of the check for an evaluation."""
    return dict(to_check(read_evaluation(json.loads(json.dumps(READING | members))), None).context)


@pytest.mark.parametrize(
    ("resource_type", "resource_id", "name", "action"),
    [
        ("tool", "stripe.refund", "call", "stripe.refund"),
        ("tool", "stripe.refund", "tools/call", "stripe.refund"),
        ("todo", "1", "can_read_todos", "todo.can_read_todos"),
        ("Todo", "1", "CAN", "Todo.CAN"),
        ("", "1", "", "."),
        ("my record", "1", "read", "my%20record.read"),
        ("a", "1", "ü", "a.%C3%BC"),
        ("a", "1", "*", "a.%2A"),
        ("a", "1", "b?", "a.b%3F"),
        ("a", "1", "50%", "a.50%25"),
    ],
)
def test_action(resource_type: str, resource_id: str, name: str, action: str) -> None:
    assert action_of(resource_type, resource_id, name) == action


def test_different_names_have_different_actions() -> None:
    names = ["a b", "a%20b", "a%2520b", "a+b", "a\tb", "a\u00a0b"]
    actions = [action_of("record", "1", name) for name in names]
    assert len(set(actions)) == len(names)
    assert [unquote(one) for one in actions] == [f"record.{name}" for name in names]
    assert [name_of("record", one) for one in actions] == names


def test_name_of_an_action_of_another_type_is_none() -> None:
    assert name_of("record", "records.read") is None
    assert name_of("tool", "tool.read") is None


@pytest.mark.parametrize(
    ("resource", "name"),
    [({"type": "tool", "id": ""}, "resource.id"), ({"type": "tool", "id": "x" * 256}, "resource.id")],
)
def test_tool_without_a_valid_action_is_rejected(resource: dict[str, str], name: str) -> None:
    with pytest.raises(FieldErrors) as error:
        check(resource=resource)
    assert list(error.value.fields) == [name]


def test_action_of_a_tool_may_have_255_characters() -> None:
    assert action_of("tool", "x" * 255, "call") == "x" * 255


@pytest.mark.parametrize(
    ("subject", "key_agent", "agent"),
    [
        ({"type": "agent", "id": OTHER}, None, OTHER),
        ({"type": "agent", "id": OTHER}, "own", OTHER),
        ({"type": "user", "id": "ann"}, "own", "own"),
        ({"type": "user", "id": OTHER}, None, ""),
        ({"type": "user", "id": "ann", "properties": {"act": {"sub": OTHER}}}, None, OTHER),
        ({"type": "user", "id": "ann", "properties": {"act": {"sub": OTHER}}}, "own", OTHER),
        ({"type": "user", "id": "ann", "properties": {"act": OTHER}}, "own", "own"),
        ({"type": "user", "id": "ann", "properties": {"act": {"sub": 5}}}, "own", "own"),
    ],
)
def test_agent(subject: dict[str, Any], key_agent: str | None, agent: str) -> None:
    assert agent_of(subject, key_agent) == agent


def test_properties_of_the_action_are_arguments() -> None:
    args = check(action={"name": "read", "properties": {"amount": 5, "to": "ann"}})
    assert args == READING | {"amount": 5, "to": "ann"}


def test_properties_of_the_action_do_not_replace_entities() -> None:
    properties = {"subject": "mallory", "resource": 1, "context": {}, "action": None, "amount": 5}
    args = check(action={"name": "read", "properties": properties})
    amount = properties.pop("amount")
    assert args == READING | {"amount": amount, "action": {"name": "read", "properties": properties}}


def test_empty_properties_and_context_equal_absent_ones() -> None:
    empty = {"subject": READING["subject"] | {"properties": {}}, "context": {}}
    assert check(**empty) == check()
    assert check(context={"time": "now", "toolgate": {}, "approval": {}}) == check()


def test_context_is_an_argument() -> None:
    assert check(context={"ip": "192.0.2.1", "time": "now"})["context"] == {"ip": "192.0.2.1"}


@pytest.mark.parametrize(
    ("extension", "name"),
    [
        (1, "context.toolgate"),
        ([], "context.toolgate"),
        ({"call_id": 1}, "context.toolgate.call_id"),
        ({"run_id": ""}, "context.toolgate.run_id"),
        ({"approval_id": []}, "context.toolgate.approval_id"),
        ({"reason": {}}, "context.toolgate.reason"),
        ({"dry_run": "yes"}, "context.toolgate.dry_run"),
    ],
)
def test_invalid_member_of_the_extension_is_rejected(extension: object, name: str) -> None:
    with pytest.raises(FieldErrors) as error:
        check(context={"toolgate": extension})
    assert list(error.value.fields) == [name]


def test_key_of_an_agent_decides_only_about_this_agent(pep: Pep) -> None:
    for subject in (
        {"type": "agent", "id": OTHER},
        {"type": "user", "id": "alice", "properties": {"act": {"sub": OTHER}}},
    ):
        context = pep.evaluate(READING | {"subject": subject})["context"]
        assert context["reason"] == "agent_not_found"
        assert "another agent" in context["message"]


def test_key_of_the_organization_needs_the_agent_in_the_request(pep: Pep) -> None:
    with Pep(pep.owner, pep.agent, key=pep.owner.key) as organization:
        acting = {"type": "user", "id": "alice", "properties": {"act": {"sub": pep.agent}}}
        assert organization.evaluate(READING | {"subject": acting})["decision"] is True
        denied = organization.evaluate(READING)
        assert (denied["decision"], denied["context"]["reason"]) == (False, "agent_not_found")
        [record] = recorded(pep.owner, denied["context"]["evaluation_id"])
        assert (record["agent_id"], record["outcome"]) == (None, "denied")
        user = {"type": "user", "id": pep.agent}
        assert organization.evaluate(READING | {"subject": user})["decision"] is False


def test_disabled_agent_is_denied(own: Pep) -> None:
    own.owner.http.put(f"/api/agents/{own.agent}", json={"status": "inactive"})
    assert own.evaluate(READING)["context"]["reason"] == "agent_disabled"


@pytest.mark.parametrize("where", ["context", "subject", "resource", "action"])
def test_arguments_beyond_the_limits_of_a_check_are_rejected(pep: Pep, where: str) -> None:
    deep: object = 1
    for _ in range(40):
        deep = [deep]
    for value in ("x" * 70_000, deep):
        body = dict(READING)
        body[where] = {"x": value} if where == "context" else READING[where] | {"properties": {"x": value}}
        answer = pep.post(EVALUATION, body)
        assert answer.status_code == 400
        assert answer.json().startswith("evaluation: must not be ")
