"""Searches: where candidates come from, pages, and tokens that a client forges."""

import base64
import json

import pytest
from support.authzen import ACTIONS, ALICE, READ, RESOURCES, SUBJECTS, VALID, Pep

from toolgate_service.authzen.catalog import ACTION_NAME, RESOURCE_ID, SUBJECT_ID, compared_texts
from toolgate_service.authzen.search import MAX_EVALUATED

TOOL = {"type": "tool", "id": "stripe.refund"}
CALL = {"name": "call"}
JSON = {"Content-Type": "application/json"}


def rule(pep: Pep, when: str, *actions: str, effect: str = "allow") -> None:
    body = {"name": f"{effect} {when}"[:100], "effect": effect, "actions": actions, "when": when}
    answer = pep.owner.http.post("/api/rules", json=body)
    assert answer.status_code == 201, answer.text


@pytest.mark.parametrize(
    ("condition", "subjects"),
    [
        ("args.subject.id == 'ann'", {"ann"}),
        ("'ann' == args.subject.id", {"ann"}),
        ("args.subject.id != 'ann'", {"ann"}),
        ("args.subject.id in ['ann', 'bob']", {"ann", "bob"}),
        ("args['subject']['id'] in ['ann']", {"ann"}),
        ("args['subject'].id == 'ann' || args.subject.id == 'bob'", {"ann", "bob"}),
        ("{'ann': 'x', 'bob': 'y'}[args.subject.id] == args.team", {"ann", "bob"}),
        ("args.subject.id in {'ann': 1}", {"ann"}),
        ("args.subject.type == 'user'", set()),
        ("args.id == 'ann'", set()),
        ("args.subject.id == args.owner", set()),
        ("args.subject.id == 5", set()),
        ("has(args.subject) && args.subject.id.startsWith('a')", set()),
    ],
)
def test_texts_that_a_condition_compares_are_candidates(condition: str, subjects: set[str]) -> None:
    assert set(compared_texts(condition).get(SUBJECT_ID, ())) == subjects


def test_texts_belong_to_the_field_that_they_are_compared_with() -> None:
    texts = compared_texts("args.subject.id == 'a' && args.resource.id in ['b'] && args.action.name != 'c'")
    assert texts == {SUBJECT_ID: {"a"}, RESOURCE_ID: {"b"}, ACTION_NAME: {"c"}}


def test_condition_that_no_longer_compiles_has_no_candidates() -> None:
    assert compared_texts("args.subject.id ==") == {}


def test_agents_are_found(own: Pep) -> None:
    other = own.owner.agent("other")
    for agent in (own.agent, other):
        own.owner.permit(agent, "stripe.refund")
    own.owner.agent("third")
    request = {"subject": {"type": "agent"}, "action": CALL, "resource": TOOL}
    assert own.search(SUBJECTS, request) == [own.agent]
    with Pep(own.owner, own.agent, key=own.owner.key) as organization:
        assert organization.search(SUBJECTS, request) == sorted([own.agent, other])


def test_tools_and_their_actions_are_found(own: Pep) -> None:
    own.owner.permit(own.agent, "stripe.refund", max_amount=5)
    own.owner.permit(own.agent, "db.drop", requires_approval=True)
    rule(own, "args.subject.type == 'agent'", "mail.send", "mail.*")
    agent = {"type": "agent", "id": own.agent}
    request = {"subject": agent, "action": CALL, "resource": {"type": "tool"}}
    assert own.search(RESOURCES, request) == ["mail.send", "stripe.refund"]
    large = request | {"action": CALL | {"properties": {"amount": 6}}}
    assert own.search(RESOURCES, large) == ["mail.send"]
    assert own.search(ACTIONS, {"subject": agent, "resource": TOOL}) == ["call", "tools/call"]


def test_approved_call_is_found(own: Pep) -> None:
    own.owner.permit(own.agent, "stripe.refund", requires_approval=True)
    request = {"subject": ALICE, "action": CALL, "resource": {"type": "tool"}}
    assert own.search(RESOURCES, request) == []
    held = own.evaluate(request | {"resource": TOOL})["context"]["approval_id"]
    own.owner.http.post(f"/api/approvals/{held}/approve")
    assert own.search(RESOURCES, request) == ["stripe.refund"]


def test_ids_of_rules_that_do_not_permit_are_not_found(own: Pep) -> None:
    rule(own, "args.subject.id in ['ann', 'bob', 'eve']", "record.read")
    rule(own, "args.subject.id == 'eve'", "record.read", effect="forbid")
    request = {"subject": {"type": "user"}, "action": READ, "resource": {"type": "record", "id": "1"}}
    assert own.search(SUBJECTS, request) == ["ann", "bob"]


def test_actions_are_found_with_the_names_of_the_evaluation(own: Pep) -> None:
    rule(own, "args.subject.id == 'alice'", "my%20record.read%25", "my%20record.write", "record.delete")
    request = {"subject": ALICE, "resource": {"type": "my record", "id": "1"}}
    assert own.search(ACTIONS, request) == ["read%", "write"]


def test_every_result_is_on_exactly_one_page(own: Pep) -> None:
    ids = [f"user-{number:03}" for number in range(150)]
    rule(own, f"args.subject.id in {json.dumps(ids)} && args.subject.id != 'user-007'", "record.read")
    request = {"subject": {"type": "user"}, "action": READ, "resource": {"type": "record", "id": "1"}}
    ids.remove("user-007")
    for limit in (None, 40, 100, 1000):
        found: list[str] = []
        page: dict[str, object] = {} if limit is None else {"limit": limit}
        while True:
            answer = own.post(SUBJECTS, request | {"page": page}).json()
            assert len(answer["results"]) == answer["page"]["count"] <= min(limit or 50, MAX_EVALUATED)
            found += [one["id"] for one in answer["results"]]
            if not answer["page"]["next_token"]:
                break
            page["token"] = answer["page"]["next_token"]
        assert found == ids


@pytest.mark.parametrize("limit", ["0", "0.0", "0e3"])
def test_whole_number_as_limit_is_accepted_in_every_form(pep: Pep, limit: str) -> None:
    body = json.dumps(VALID[SUBJECTS] | {"page": {"limit": "LIMIT"}}).replace('"LIMIT"', limit)
    answer = pep.http.post(SUBJECTS, content=body, headers=JSON)
    assert (answer.status_code, answer.json().get("results")) == (200, [])


@pytest.mark.parametrize("limit", ["-1", "-1.0", "0.5", "true", '"1"', "1e999999999"])
def test_other_value_as_limit_is_rejected(pep: Pep, limit: str) -> None:
    body = json.dumps(VALID[SUBJECTS] | {"page": {"limit": "LIMIT"}}).replace('"LIMIT"', limit)
    assert pep.http.post(SUBJECTS, content=body, headers=JSON).status_code == 400


def test_page_without_results_has_a_token(pep: Pep) -> None:
    answer = pep.post(SUBJECTS, VALID[SUBJECTS] | {"page": {"limit": 0}}).json()
    assert answer["results"] == []
    assert answer["page"]["next_token"]


def token(*parts: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()


@pytest.mark.parametrize(
    "forged",
    [
        "x",
        "=",
        "ä",
        "W10=",
        token(1, 2, 3),
        token("x", None, "\ud800"),
        token("x", True, ""),
        "W" * 4000,
        token([]),
    ],
)
@pytest.mark.parametrize("path", [SUBJECTS, RESOURCES, ACTIONS])
def test_forged_token_is_rejected(pep: Pep, path: str, forged: str) -> None:
    answer = pep.post(path, VALID[path] | {"page": {"token": forged}})
    assert answer.status_code == 400
    assert answer.json().startswith("page.token: ")


def test_token_with_a_forged_position_is_harmless(own: Pep) -> None:
    own.owner.permit(own.agent, "stripe.refund")
    with Pep(own.owner, own.agent, key=own.owner.key) as organization:
        request = {"subject": {"type": "agent"}, "action": CALL, "resource": TOOL}
        answer = organization.post(SUBJECTS, request | {"page": {"limit": 0}}).json()
        fingerprint, limit, _ = json.loads(base64.urlsafe_b64decode(answer["page"]["next_token"]))
        for after in ("zzz", "\0", "", "00000000-0000-0000-0000-000000000000"):
            page = {"token": token(fingerprint, limit, after)}
            assert organization.post(SUBJECTS, request | {"page": page}).status_code == 200


@pytest.mark.parametrize("path", [SUBJECTS, RESOURCES, ACTIONS])
@pytest.mark.parametrize("depth", [150, 500, 900])
def test_deeply_nested_search_is_invalid(own: Pep, path: str, depth: int) -> None:
    nested = '{"a":' * depth + "1" + "}" * depth
    body = json.dumps(VALID[path] | {"context": {"x": 0}}).replace('{"x": 0}', nested)
    answer = own.http.post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
