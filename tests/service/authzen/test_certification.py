"""The certification scenario of AuthZEN 1.0, with the policy in `examples/authzen/certification.policy.yaml`.

The names of the tests contain the sections of the scenario. What the scenario repeats from the specification is in
`test_requirements.py`.
"""

from typing import Any

import pytest
from support.authzen import (
    ACTIONS,
    ADMIN,
    ALICE,
    ARCHIVED,
    BOB,
    EVALUATIONS,
    READ,
    READING,
    RECORD,
    RESOURCES,
    SUBJECTS,
    WRITE,
    Pep,
)

ACTIVE = RECORD | {"properties": {"status": "active"}}
CONTEXT = {"time": "2025-06-27T18:03-07:00", "ip": "192.168.1.1"}


def delete(*, soft: bool) -> dict[str, Any]:
    return {"name": "delete", "properties": {"soft": soft}}


FIXTURE = [
    (ALICE, READ, RECORD, True),
    (ALICE, WRITE, RECORD, True),
    (BOB, READ, RECORD, True),
    (BOB, WRITE, RECORD, False),
    (ALICE, WRITE, ARCHIVED, False),
    (ALICE, WRITE, RECORD | {"properties": {"status": "archived"}}, False),
    (ADMIN, WRITE, ARCHIVED, True),
    (ALICE, delete(soft=True), RECORD, True),
    (ALICE, delete(soft=False), RECORD, False),
]


@pytest.mark.parametrize("context", [None, {}, CONTEXT])
@pytest.mark.parametrize(("subject", "action", "resource", "expected"), FIXTURE)
def test_fixture_decisions(
    pep: Pep, subject: object, action: object, resource: object, expected: bool, context: object
) -> None:
    request = {"subject": subject, "action": action, "resource": resource, "context": context}
    assert pep.evaluate(request)["decision"] is expected


def test_basic_request_with_additional_properties(pep: Pep) -> None:
    request = {
        "subject": ALICE | {"properties": {"department": "Sales", "role": "manager"}},
        "action": READ | {"properties": {"method": "GET"}},
        "resource": RECORD | {"properties": {"status": "active", "owner": "bob"}},
    }
    assert pep.evaluate(request)["decision"] is True


def test_basic_idempotency(pep: Pep) -> None:
    assert [pep.evaluate(READING) for _ in range(5)] == [{"decision": True}] * 5


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            {"subject": BOB, "resource": RECORD, "evaluations": [{"action": READ}, {"action": WRITE}]},
            [True, False],
        ),
        (
            {
                "subject": ALICE,
                "action": WRITE,
                "evaluations": [{"resource": ACTIVE}, {"resource": ARCHIVED}],
            },
            [True, False],
        ),
        (
            {"action": WRITE, "resource": ARCHIVED, "evaluations": [{"subject": ALICE}, {"subject": ADMIN}]},
            [False, True],
        ),
        ({"evaluations": [READING, {"subject": BOB, "action": WRITE, "resource": RECORD}]}, [True, False]),
        (
            {
                "subject": ALICE,
                "action": WRITE,
                "resource": ACTIVE,
                "evaluations": [{}, {"resource": ARCHIVED}],
            },
            [True, False],
        ),
        (
            {
                "subject": ALICE,
                "action": READ,
                "context": CONTEXT,
                "evaluations": [
                    {"resource": RECORD},
                    {"resource": RECORD, "context": {"source": "batch-override"}},
                ],
            },
            [True, True],
        ),
        (
            {
                "subject": ALICE,
                "action": READ,
                "options": {"evaluations_semantic": "execute_all"},
                "evaluations": [{"resource": RECORD}, {}],
            },
            [True, False],
        ),
    ],
)
def test_batch_requests(pep: Pep, body: dict[str, object], expected: list[bool]) -> None:
    assert [one["decision"] for one in pep.evaluate_all(**body)] == expected


@pytest.mark.parametrize("more", [{}, {"evaluations": []}, {"evaluations": None}])
def test_batch_without_evaluations_is_a_single_evaluation(pep: Pep, more: dict[str, object]) -> None:
    assert pep.post(EVALUATIONS, READING | more).json() == {"decision": True}


@pytest.mark.parametrize("more", [{}, {"context": CONTEXT}, {"page": {"limit": 10}}])
def test_subject_search(pep: Pep, more: dict[str, object]) -> None:
    request = {"subject": {"type": "user"}, "action": READ, "resource": RECORD}
    assert pep.search(SUBJECTS, request | more) == ["alice", "bob"]


def test_subject_search_ignores_the_id(pep: Pep) -> None:
    assert pep.search(SUBJECTS, READING) == ["alice", "bob"]


def test_subject_search_with_resource_properties(pep: Pep) -> None:
    request = {"subject": {"type": "user"}, "action": WRITE, "resource": ARCHIVED}
    assert pep.search(SUBJECTS, request) == ["bob"]


@pytest.mark.parametrize("more", [{}, {"context": CONTEXT}, {"resource": RECORD}])
def test_resource_search(pep: Pep, more: dict[str, object]) -> None:
    request = {"subject": ALICE, "action": READ, "resource": {"type": "record"}}
    assert pep.search(RESOURCES, request | more) == ["record-1", "record-2"]


def test_resource_search_with_subject_properties(pep: Pep) -> None:
    request = {"subject": ADMIN, "action": WRITE, "resource": {"type": "record"}}
    assert pep.search(RESOURCES, request) == ["record-2"]


@pytest.mark.parametrize("more", [{}, {"context": CONTEXT}])
def test_action_search(pep: Pep, more: dict[str, object]) -> None:
    assert pep.search(ACTIONS, {"subject": ALICE, "resource": RECORD} | more) == ["read", "write"]


def test_action_search_with_properties(pep: Pep) -> None:
    assert "write" in pep.search(ACTIONS, {"subject": ADMIN, "resource": ARCHIVED})


def test_search_with_a_page_token(pep: Pep) -> None:
    request = {"subject": {"type": "user"}, "action": READ, "resource": RECORD}
    first = pep.post(SUBJECTS, request | {"page": {"limit": 1}}).json()
    second = pep.post(SUBJECTS, request | {"page": {"token": first["page"]["next_token"]}}).json()
    assert [first["results"], second["results"]] == [[ALICE], [BOB]]
    assert (first["page"]["count"], second["page"]) == (1, {"next_token": "", "count": 1})


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (ACTIONS, {"subject": {"type": "user", "id": "nonexistent-user"}, "resource": RECORD}),
        (SUBJECTS, {"subject": {"type": "spaceship"}, "action": READ, "resource": RECORD}),
        (SUBJECTS, {"subject": {"type": "user"}, "action": READ, "resource": RECORD | {"id": "x"}}),
        (RESOURCES, {"subject": ALICE, "action": READ, "resource": {"type": "spaceship"}}),
        (RESOURCES, {"subject": ALICE | {"id": "x"}, "action": READ, "resource": {"type": "record"}}),
        (ACTIONS, {"subject": ALICE, "resource": {"type": "spaceship", "id": "x"}}),
    ],
)
def test_empty_results(pep: Pep, path: str, body: dict[str, object]) -> None:
    assert pep.post(path, body).json()["results"] == []
