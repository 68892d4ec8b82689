"""Requirements of the AuthZEN Authorization API 1.0 that a client can verify: one test for each MUST, named after it."""

import json
from typing import Any

import httpx
import pytest
from support.authzen import (
    ACTIONS,
    ALICE,
    ARCHIVED,
    BOB,
    ENDPOINTS,
    EVALUATION,
    EVALUATIONS,
    READ,
    READING,
    RECORD,
    RESOURCES,
    SUBJECTS,
    VALID,
    WRITE,
    Pep,
)

DENIED = {"subject": BOB, "action": WRITE, "resource": RECORD}
WRONG_VALUES: tuple[object, ...] = (None, 123, True, 1.5, [], {}, ["alice"])


def without(body: dict[str, Any], entity: str, member: str | None = None) -> dict[str, Any]:
    """Return a copy of a body without an entity, or without one of its members."""
    copy: dict[str, Any] = json.loads(json.dumps(body))
    if member is None:
        del copy[entity]
    else:
        del copy[entity][member]
    return copy


#: endpoint, entity and member that a request must have
REQUIRED = [
    *((EVALUATION, *where) for where in (("subject", None), ("action", None), ("resource", None))),
    *((EVALUATION, "subject", member) for member in ("type", "id")),
    *((EVALUATION, "resource", member) for member in ("type", "id")),
    (EVALUATION, "action", "name"),
    *((SUBJECTS, *where) for where in (("subject", None), ("action", None), ("resource", None))),
    (SUBJECTS, "subject", "type"),
    (SUBJECTS, "action", "name"),
    *((SUBJECTS, "resource", member) for member in ("type", "id")),
    *((RESOURCES, *where) for where in (("subject", None), ("action", None), ("resource", None))),
    *((RESOURCES, "subject", member) for member in ("type", "id")),
    (RESOURCES, "action", "name"),
    (RESOURCES, "resource", "type"),
    *((ACTIONS, *where) for where in (("subject", None), ("resource", None))),
    *((ACTIONS, "subject", member) for member in ("type", "id")),
    *((ACTIONS, "resource", member) for member in ("type", "id")),
]


@pytest.mark.parametrize(("path", "entity", "member"), REQUIRED)
def test_omitted_required_attribute_must_return_bad_request(
    pep: Pep, path: str, entity: str, member: str | None
) -> None:
    answer = pep.post(path, without(VALID[path], entity, member))
    assert answer.status_code == 400
    name = entity if member is None else f"{entity}.{member}"
    assert answer.json() == f"{name}: This field is required"


@pytest.mark.parametrize("value", WRONG_VALUES)
@pytest.mark.parametrize(
    ("entity", "member"),
    [("subject", "type"), ("subject", "id"), ("action", "name"), ("resource", "type"), ("resource", "id")],
)
def test_type_id_and_name_must_be_strings(pep: Pep, entity: str, member: str, value: object) -> None:
    body = json.loads(json.dumps(READING))
    body[entity][member] = value
    assert pep.post(EVALUATION, body).status_code == 400


@pytest.mark.parametrize("value", [123, "alice", True, [], [ALICE]])
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("member", ["subject", "resource", "context"])
def test_entities_must_be_objects(pep: Pep, path: str, member: str, value: object) -> None:
    assert pep.post(path, VALID[path] | {member: value}).status_code == 400


@pytest.mark.parametrize("value", [123, "x", False, 0, "", [], [1]])
@pytest.mark.parametrize("entity", ["subject", "action", "resource"])
def test_properties_must_be_an_object(pep: Pep, entity: str, value: object) -> None:
    body = READING | {entity: READING[entity] | {"properties": value}}
    assert pep.post(EVALUATION, body).status_code == 400


@pytest.mark.parametrize("path", ENDPOINTS)
def test_context_may_be_omitted_or_empty(pep: Pep, path: str) -> None:
    expected = pep.post(path, VALID[path]).json()
    assert pep.post(path, VALID[path] | {"context": {}}).json() == expected
    assert pep.post(path, VALID[path] | {"context": None}).json() == expected


@pytest.mark.parametrize("body", [READING, DENIED])
def test_response_must_have_a_boolean_decision(pep: Pep, body: dict[str, Any]) -> None:
    assert pep.evaluate(body)["decision"] is (body is READING)


def test_denied_request_must_have_the_status_200(pep: Pep) -> None:
    answer = pep.post(EVALUATION, DENIED)
    assert (answer.status_code, answer.json()["decision"]) == (200, False)


def test_decision_context_must_be_an_object(pep: Pep) -> None:
    assert isinstance(pep.evaluate(DENIED)["context"], dict)


@pytest.mark.parametrize("path", ENDPOINTS)
def test_successful_response_must_be_a_json_object_with_status_200(pep: Pep, path: str) -> None:
    answer = pep.post(path, VALID[path])
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
    assert isinstance(answer.json(), dict)


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(
    "media_type", ["application/json", "application/json; charset=utf-8", "Application/JSON"]
)
def test_request_with_the_content_type_json_must_be_accepted(pep: Pep, path: str, media_type: str) -> None:
    content = json.dumps(VALID[path])
    answer = pep.http.post(path, content=content, headers={"Content-Type": media_type})
    assert answer.status_code == 200


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("media_type", ["text/plain", "application/xml", "application/jsonx", ""])
def test_request_with_another_content_type_must_return_bad_request(
    pep: Pep, path: str, media_type: str
) -> None:
    content = json.dumps(VALID[path])
    answer = pep.http.post(path, content=content, headers={"Content-Type": media_type})
    assert (answer.status_code, answer.json()) == (400, "Content-Type: must be application/json")


@pytest.mark.parametrize("path", ENDPOINTS)
def test_request_without_content_type_must_return_bad_request(pep: Pep, path: str) -> None:
    answer = pep.http.post(path, content=json.dumps(VALID[path]))
    assert answer.status_code == 400


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"null", b"[]", b'"subject"', b"{'a': 1}", b'{"a": NaN}', b"\xff", b'{"a":1,"a":2}'],
)
def test_body_must_be_a_json_object(pep: Pep, path: str, content: bytes) -> None:
    answer = pep.http.post(path, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert answer.json().startswith("body: ")


@pytest.mark.parametrize("path", ENDPOINTS)
def test_unknown_members_must_be_ignored(pep: Pep, path: str) -> None:
    unknown = {"foo": "bar", "futureField": {"nested": True}}
    body = {
        name: value | unknown if isinstance(value, dict) else value for name, value in VALID[path].items()
    }
    options = {"options": unknown, "page": unknown}
    assert pep.post(path, body | unknown | options).json() == pep.post(path, VALID[path]).json()


@pytest.mark.parametrize("path", ENDPOINTS)
def test_order_of_members_must_not_matter(pep: Pep, path: str) -> None:
    reverse = {
        name: dict(reversed(value.items())) if isinstance(value, dict) else value
        for name, value in reversed(VALID[path].items())
    }
    assert pep.post(path, reverse).json() == pep.post(path, VALID[path]).json()


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer ak_" + "0" * 37}, {"Authorization": "Basic YTpi"}]
)
def test_missing_or_wrong_credentials_must_return_unauthorized(
    anyone: httpx.Client, path: str, headers: dict[str, str]
) -> None:
    answer = anyone.post(path, json=VALID[path], headers=headers)
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert isinstance(answer.json(), str)


@pytest.mark.parametrize("path", ENDPOINTS)
def test_body_of_an_error_must_be_a_message_string(pep: Pep, path: str) -> None:
    answer = pep.post(path, {})
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "application/json")
    assert "subject: This field is required" in answer.json()


@pytest.mark.parametrize("path", ENDPOINTS)
def test_requests_must_be_posted(pep: Pep, path: str) -> None:
    answer = pep.http.get(path)
    assert (answer.status_code, answer.headers["Allow"], answer.json()) == (405, "POST", "Method Not Allowed")


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(
    "request_id", ["bfe9eb29-ab87-4ca3-be83-a1d5d8305716", 'two words, {and} "more"', "a" * 1000, "\xe4\xf6"]
)
def test_request_id_must_be_returned_unchanged(pep: Pep, path: str, request_id: str) -> None:
    headers = {b"X-Request-ID": request_id.encode("latin-1")}
    for body in (VALID[path], {}):
        answer = pep.http.post(path, json=body, headers=headers)
        [value] = [value for name, value in answer.headers.raw if name.lower() == b"x-request-id"]
        assert value == request_id.encode("latin-1")


def test_request_id_must_be_returned_with_an_authentication_error(anyone: httpx.Client) -> None:
    answer = anyone.post(EVALUATION, json=READING, headers={"X-Request-ID": "id 1"})
    assert answer.headers["X-Request-ID"] == "id 1"


def test_request_without_request_id_must_not_fail(pep: Pep) -> None:
    assert pep.post(EVALUATION, READING).headers["X-Request-ID"]


@pytest.mark.parametrize("missing", ["subject", "action", "resource"])
def test_key_that_evaluations_omit_must_be_a_default(pep: Pep, missing: str) -> None:
    """The item is a failed evaluation, and the other items are decided."""
    [failed, decided] = pep.evaluate_all(
        **without(READING, missing), evaluations=[{}, {missing: READING[missing]}]
    )
    message = f"{missing}: This field is required"
    assert failed == {"decision": False, "context": {"error": {"status": 400, "message": message}}}
    assert decided == {"decision": True}


def test_key_of_an_evaluation_must_override_the_default_as_a_whole(pep: Pep) -> None:
    """Without the properties of the default, bob is no admin."""
    admin = {"subject": BOB | {"properties": {"role": "admin"}}, "action": WRITE, "resource": RECORD}
    archived = RECORD | {"properties": {"status": "archived"}}
    [default, whole, broken] = pep.evaluate_all(
        **admin | {"resource": archived},
        evaluations=[{}, {"resource": RECORD}, {"subject": {"properties": {"role": "admin"}}}],
    )
    assert [default["decision"], whole["decision"], broken["decision"]] == [True, False, False]
    assert broken["context"]["error"]["status"] == 400


def test_decisions_must_be_in_the_order_of_the_evaluations(pep: Pep) -> None:
    items = [{"action": READ}, {"action": WRITE}] * 20
    decisions = pep.evaluate_all(subject=BOB, resource=RECORD, evaluations=items)
    assert [one["decision"] for one in decisions] == [True, False] * 20


@pytest.mark.parametrize("semantic", ["EXECUTE_ALL", "all", "", 1, True, [], {}])
def test_evaluations_semantic_must_be_one_of_three_values(pep: Pep, semantic: object) -> None:
    body = VALID[EVALUATIONS] | {"options": {"evaluations_semantic": semantic}}
    answer = pep.post(EVALUATIONS, body)
    assert answer.status_code == 400
    assert "execute_all, deny_on_first_deny, permit_on_first_permit" in answer.json()


@pytest.mark.parametrize(("path", "entity"), [(SUBJECTS, "subject"), (RESOURCES, "resource")])
def test_id_of_the_searched_entity_must_be_ignored(pep: Pep, path: str, entity: str) -> None:
    expected = pep.search(path, VALID[path])
    for identifier in ("record-1", "nobody", 5, None):
        assert pep.search(path, VALID[path] | {entity: VALID[path][entity] | {"id": identifier}}) == expected


@pytest.mark.parametrize(
    ("path", "members"), [(SUBJECTS, {"type", "id"}), (RESOURCES, {"type", "id"}), (ACTIONS, {"name"})]
)
def test_results_must_contain_only_entities_of_the_searched_type(
    pep: Pep, path: str, members: set[str]
) -> None:
    results = pep.post(path, VALID[path]).json()["results"]
    assert results
    for one in results:
        assert one.keys() == members
        assert one.get("type") in {None, "user", "record"}


@pytest.mark.parametrize("path", [SUBJECTS, RESOURCES, ACTIONS])
def test_incomplete_response_must_have_a_page_with_a_token(pep: Pep, path: str) -> None:
    page = pep.post(path, VALID[path] | {"page": {"limit": 1}}).json()["page"]
    assert page["next_token"]
    assert page["count"] == 1


@pytest.mark.parametrize("path", [SUBJECTS, RESOURCES, ACTIONS])
def test_token_after_the_last_page_must_be_empty(pep: Pep, path: str) -> None:
    page = {"limit": 100}
    assert pep.post(path, VALID[path] | {"page": page}).json()["page"]["next_token"] == ""


@pytest.mark.parametrize(
    "change", [{"subject": {"type": "robot"}}, {"action": WRITE}, {"resource": ARCHIVED}]
)
def test_entities_must_be_identical_on_every_page(pep: Pep, change: dict[str, object]) -> None:
    token = pep.post(SUBJECTS, VALID[SUBJECTS] | {"page": {"limit": 1}}).json()["page"]["next_token"]
    answer = pep.post(SUBJECTS, VALID[SUBJECTS] | change | {"page": {"limit": 1, "token": token}})
    assert answer.status_code == 400
    assert "belongs to another search" in answer.json()


@pytest.mark.parametrize("change", [{"limit": 2}, {"properties": {"sort": "id"}}])
def test_parameters_of_the_page_must_be_identical_on_every_page(pep: Pep, change: dict[str, object]) -> None:
    token = pep.post(SUBJECTS, VALID[SUBJECTS] | {"page": {"limit": 1}}).json()["page"]["next_token"]
    answer = pep.post(SUBJECTS, VALID[SUBJECTS] | {"page": {"token": token} | change})
    assert answer.status_code == 400


@pytest.mark.parametrize("limit", [-1, "1", 1.5, True, [], {}])
def test_limit_must_be_a_whole_number(pep: Pep, limit: object) -> None:
    assert pep.post(SUBJECTS, VALID[SUBJECTS] | {"page": {"limit": limit}}).status_code == 400
