"""Access evaluations of AuthZEN mappings, without a proxy."""

from typing import Any

import pytest

from toolgate_integrations.mcp_proxy.authzen.checks import to_check
from toolgate_integrations.mcp_proxy.authzen.defaults import DEFAULT_MAPPINGS
from toolgate_integrations.mcp_proxy.authzen.errors import MappingError
from toolgate_integrations.mcp_proxy.authzen.mapping import Evaluation, Identity, resolve

CLAIMS = {
    "sub": "alice",
    "client_id": "assistant",
    "aud": ["https://other.example.com", "https://mcp.example.com"],
}
ALICE = Identity("alice", "https://mcp.example.com", CLAIMS)
PARAMS = {
    "name": "get_customer",
    "arguments": {"id": "cust-12345", "case": None, "amount": 12, "list": [1, "a"]},
}
SUBJECT = {"type": "identity", "id": "$token.sub"}


def evaluation(**members: Any) -> dict[str, Any]:
    """Return a mapping with one evaluation, with other members where they are given."""
    valid = {
        "subject": SUBJECT,
        "action": {"name": "read"},
        "resource": {"type": "customer", "id": "$params.arguments.id"},
    }
    return {"evaluation": {**valid, **members}}


def context_of(value: object) -> Any:
    """Return what a value in the context of a mapping results in."""
    [found] = resolve(evaluation(context={"it": value}), PARAMS, ALICE)
    return found.context.get("it", "absent")


def refused(mapping: object, params: dict[str, Any] = PARAMS, identity: Identity | None = ALICE) -> str:
    """Return the message of the mapping error."""
    with pytest.raises(MappingError) as error:
        resolve(mapping, params, identity)
    return str(error.value)


def test_example_of_the_draft() -> None:
    mapping = evaluation(context={"agent": "$token.?client_id", "id": "$params.arguments.id"})
    assert resolve(mapping, PARAMS, ALICE) == [
        Evaluation(
            {"type": "identity", "id": "alice"},
            {"name": "read"},
            {"type": "customer", "id": "cust-12345"},
            {"agent": "assistant", "id": "cust-12345"},
        )
    ]


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ("literal", "literal"),
        (10, 10),
        (True, True),
        ("$$50", "$50"),
        ("$$$50", "$$50"),
        ("a$params.name", "a$params.name"),
        ("$params.name", "get_customer"),
        ("$params['name'] + '!'", "get_customer!"),
        ("$params.arguments.amount > 10 ? 'high' : 'standard'", "high"),
        ("$params.arguments.list", [1, "a"]),
        ("$params.arguments.case", None),
        ("$token.?client_id", "assistant"),
        ("$token.?azp", "absent"),
        ("$params.arguments.?nothing.?more", "absent"),
        ("$params.arguments.?case", None),
        ("$token.?azp.orValue('none')", "none"),
        ("$params.arguments.list.exists(x, x == 'a')", True),
        ({"deep": ["$token.sub", "$token.?azp"]}, {"deep": ["alice"]}),
    ],
)
def test_values(value: object, result: object) -> None:
    assert context_of(value) == result


@pytest.mark.parametrize(
    "value",
    [
        "$params.arguments.nothing",
        "$other",
        "$params.name +",
        "$",
        "$1 / 0",
        "$1.0 / 0.0",
        "$b'bytes'",
        "$timestamp('2026-01-01T00:00:00Z')",
        "$type(1)",
        "$[token.?sub]",
        "${'a': token.?sub}",
        "$optional.of(optional.of(1))",
        "${1: 'a'}",
        "$params.name.?length",
        "$params.?arguments.optMap(x, [x, x])",
        "$params.arguments.list.map(x, params.arguments.list.map(y, y))",
        "$params.arguments.list.map(x, 'a' + params.name)",
        "$params.arguments.list.exists(x, params.name.matches('a'))",
        "$" + "1 + " * 1000 + "1",
        "$params.name\0",
        "$(((" * 200 + ")))" * 200,
    ],
)
def test_expression_without_a_json_value_is_a_mapping_error(value: str) -> None:
    refused(evaluation(context={"it": value}))


@pytest.mark.parametrize(
    "mapping",
    [
        None,
        [],
        "evaluation",
        {},
        {"evaluation": {}, "evaluations": {}},
        {"search": {}},
        {"evaluation": []},
        {"evaluations": {}},
        {"evaluations": {"evaluations": []}},
        {"evaluations": {"evaluations": "$params.arguments.list"}},
        {"evaluations": {"evaluations": [[]]}},
        evaluation(more={}),
        evaluation(action={}),
        evaluation(action={"name": "read", "soft": True}),
        evaluation(action={"name": "read", "properties": []}),
        evaluation(action={"name": "$token.?azp"}),
        evaluation(action="$token.?azp"),
        evaluation(resource=None),
        evaluation(resource={"type": "customer", "id": ""}),
        evaluation(resource={"type": "customer", "id": "$params.arguments.amount"}),
        evaluation(resource={"type": "customer", "id": "$params.arguments.case"}),
        evaluation(context=[]),
        evaluation(context={"it": ["a"] * 1000}),
    ],
)
def test_malformed_mapping_is_a_mapping_error(mapping: object) -> None:
    refused(mapping)


def test_subject_of_another_user_is_a_mapping_error() -> None:
    assert "subject.id" in refused(evaluation(subject={"type": "identity", "id": "bob"}))
    assert "subject.id" in refused(evaluation(subject={"id": "$params.arguments.id"}))


def test_subject_inside_an_entry_is_a_mapping_error() -> None:
    entry = {"subject": SUBJECT, "action": {"name": "read"}, "resource": {"type": "a", "id": "b"}}
    assert "subject" in refused({"evaluations": {"subject": SUBJECT, "evaluations": [entry]}})


def test_request_without_a_token_is_a_mapping_error() -> None:
    refused(evaluation(), identity=None)
    assert "token" in refused(evaluation(subject={"type": "identity", "id": "alice"}), identity=None)


@pytest.mark.parametrize("subject", [{}, {"type": "user"}, {"id": "$token.sub"}, "$token.?absent"])
def test_missing_subject_is_the_subject_of_the_token(subject: object) -> None:
    [found] = resolve(evaluation(subject=subject), PARAMS, ALICE)
    assert found.subject["id"] == "alice"
    assert found.subject["type"] == ("user" if subject == {"type": "user"} else "identity")


def test_entries_replace_whole_defaults() -> None:
    mapping = {
        "evaluations": {
            "action": {"name": "read", "properties": {"soft": True}},
            "resource": {"type": "file", "id": "a"},
            "context": {"common": 1},
            "options": {"evaluations_semantic": "permit_on_first_permit"},
            "evaluations": [
                {},
                {"action": {"name": "write"}, "resource": {"type": "file", "id": "b"}, "context": {}},
            ],
        }
    }
    first, second = resolve(mapping, PARAMS, ALICE)
    assert (first.action, first.resource) == (
        {"name": "read", "properties": {"soft": True}},
        {"type": "file", "id": "a"},
    )
    assert (second.action, second.resource) == ({"name": "write"}, {"type": "file", "id": "b"})
    assert (first.context, second.context) == ({"agent": "assistant", "common": 1}, {"agent": "assistant"})


@pytest.mark.parametrize("unusable", ["\0", "\ud800", 2**70, float("inf"), "a" * 100_000, ["a"] * 30_000])
def test_arguments_that_cel_cannot_represent_are_a_mapping_error(unusable: object) -> None:
    refused(evaluation(), {"name": "get_customer", "arguments": {"id": "a", "other": unusable}})


@pytest.mark.parametrize(("values", "expressions"), [(1_500, 1), (10, 11)])
def test_expensive_comprehensions_are_a_mapping_error(values: int, expressions: int) -> None:
    """One that reads all values for each of them would take seconds."""
    expression = "$params.arguments.list.all(x, params.arguments.list == params.arguments.list)"
    context = {str(number): expression for number in range(expressions)}
    params = {"name": "get_customer", "arguments": {"id": "a", "list": [1] * values}}
    assert "too expensive" in refused(evaluation(context=context), params)


@pytest.mark.parametrize(
    ("method", "params", "action"),
    [
        ("initialize", {"protocolVersion": "2025-11-25"}, "bank.mcp_server.initialize"),
        ("resources/read", {"uri": "file:///a"}, "bank.resource.resources/read"),
        ("prompts/get", {"name": "greet"}, "bank.prompt.prompts/get"),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "greet"}},
            "bank.prompt.completion/complete",
        ),
        (
            "completion/complete",
            {"ref": {"type": "ref/resource", "uri": "a:b"}},
            "bank.resource.completion/complete",
        ),
        ("logging/setLevel", {"level": "info"}, "bank.mcp_server.logging/setLevel"),
        ("tasks/get", {"taskId": "t1"}, "bank.task.tasks/get"),
    ],
)
def test_default_mappings(method: str, params: dict[str, Any], action: str) -> None:
    [found] = resolve(DEFAULT_MAPPINGS[method], params, ALICE)
    assert to_check(found, "bank").action == action
    assert found.subject == {"type": "identity", "id": "alice"}
    assert found.context["agent"] == "assistant"


def test_server_is_identified_by_one_audience() -> None:
    """Also if the claim is a list."""
    [found] = resolve(DEFAULT_MAPPINGS["tools/list"], {}, ALICE)
    assert found.resource == {"type": "mcp_server", "id": "https://mcp.example.com"}


def test_actions_contain_no_wildcards() -> None:
    [found] = resolve(evaluation(action={"name": "*"}), PARAMS, ALICE)
    assert to_check(found, "bank").action == "bank.customer.%2A"


def test_properties_of_the_action_cannot_hide_an_entity() -> None:
    action = {"name": "read", "properties": {"subject": "bob", "soft": True}}
    [found] = resolve(evaluation(action=action, context={"time": "now", "note": 1}), PARAMS, ALICE)
    assert to_check(found, "bank").arguments == {
        "soft": True,
        "subject": {"type": "identity", "id": "alice"},
        "action": {"name": "read", "properties": {"subject": "bob"}},
        "resource": {"type": "customer", "id": "cust-12345"},
        "context": {"agent": "assistant", "note": 1},
    }
