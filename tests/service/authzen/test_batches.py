"""Several evaluations in one request: when the evaluation stops, which decisions have a context, limits."""

import pytest
from support.authzen import ALICE, BOB, EVALUATIONS, READ, RECORD, WRITE, Pep
from support.budgets import amounts, create

PERMIT = {"subject": ALICE}
DENY = {"subject": BOB}
BROKEN = {"subject": {"type": "user"}}


def decide(pep: Pep, semantic: str | None, *items: object) -> list[bool]:
    options = {} if semantic is None else {"options": {"evaluations_semantic": semantic}}
    found = pep.evaluate_all(action=WRITE, resource=RECORD, evaluations=list(items), **options)
    return [one["decision"] for one in found]


@pytest.mark.parametrize("semantic", ["execute_all", None])
def test_execute_all_decides_every_evaluation(pep: Pep, semantic: str | None) -> None:
    assert decide(pep, semantic, PERMIT, DENY, BROKEN, PERMIT) == [True, False, False, True]


def test_deny_on_first_deny_stops_after_the_first_denial(pep: Pep) -> None:
    assert decide(pep, "deny_on_first_deny", PERMIT, PERMIT, DENY, PERMIT) == [True, True, False]
    assert decide(pep, "deny_on_first_deny", PERMIT, PERMIT) == [True, True]


def test_deny_on_first_deny_stops_after_an_invalid_evaluation(pep: Pep) -> None:
    assert decide(pep, "deny_on_first_deny", PERMIT, BROKEN, PERMIT) == [True, False]


def test_permit_on_first_permit_stops_after_the_first_permit(pep: Pep) -> None:
    assert decide(pep, "permit_on_first_permit", DENY, BROKEN, PERMIT, PERMIT) == [False, False, True]
    assert decide(pep, "permit_on_first_permit", DENY, DENY) == [False, False]


@pytest.mark.parametrize("item", [None, 1, "x", [], [{}]])
def test_item_that_is_not_an_object_is_a_failed_evaluation(pep: Pep, item: object) -> None:
    assert decide(pep, None, item, PERMIT) == [False, True]


@pytest.mark.parametrize("items", [{}, "x", 1, True])
def test_evaluations_must_be_an_array(pep: Pep, items: object) -> None:
    answer = pep.post(EVALUATIONS, {"evaluations": items})
    assert (answer.status_code, answer.json()) == (400, "evaluations: must be an array")


@pytest.mark.parametrize("options", [1, "x", [], {"toolgate": 1}, {"toolgate": {"explain": 1}}])
def test_options_must_be_objects(pep: Pep, options: object) -> None:
    answer = pep.post(EVALUATIONS, {"subject": ALICE, "options": options, "evaluations": [{}]})
    assert answer.status_code == 400


def test_denials_have_a_context_on_demand(pep: Pep) -> None:
    entities = {"subject": BOB, "action": WRITE, "resource": RECORD}
    [denied] = pep.evaluate_all(**entities, evaluations=[{}])
    assert denied == {"decision": False}
    [explained] = pep.evaluate_all(**entities, evaluations=[{}], options={"toolgate": {"explain": True}})
    assert explained["context"]["reason"] == "no_permission"


def test_held_evaluations_always_have_a_context(own: Pep) -> None:
    own.owner.permit(own.agent, "record.write", requires_approval=True)
    entities = {"subject": BOB, "action": WRITE, "resource": RECORD}
    one, other = own.evaluate_all(**entities, evaluations=[{}, {"resource": RECORD | {"id": "2"}}])
    assert one["context"]["reason"] == other["context"]["reason"] == "approval_required"
    assert one["context"]["approval_id"] != other["context"]["approval_id"]


def test_evaluations_after_the_deciding_one_are_not_enforced(own: Pep) -> None:
    own.owner.permit(own.agent, "record.read")
    budget = create(own.owner, measure="count", limit=10, actions=["record.*"])
    own.evaluate_all(
        subject=ALICE,
        resource=RECORD,
        options={"evaluations_semantic": "deny_on_first_deny"},
        evaluations=[{"action": READ}, {"action": WRITE}, {"action": READ}],
    )
    assert amounts(own.owner, budget) == (0, 1, 9)


def test_evaluations_of_one_request_share_a_budget(own: Pep) -> None:
    own.owner.permit(own.agent, "record.read")
    create(own.owner, measure="count", limit=2, actions=["record.*"])
    found = own.evaluate_all(subject=ALICE, action=READ, resource=RECORD, evaluations=[{}] * 4)
    assert [one["decision"] for one in found] == [True, True, False, False]


def test_more_evaluations_than_the_maximum_are_rejected(pep: Pep) -> None:
    entities = {"subject": ALICE, "action": READ, "resource": RECORD}
    assert len(pep.evaluate_all(**entities, evaluations=[{}] * 100)) == 100
    answer = pep.post(EVALUATIONS, entities | {"evaluations": [{}] * 101})
    assert answer.status_code == 400
    assert answer.json() == "evaluations: must contain at most 100 evaluations, not 101"


def test_every_evaluation_counts_towards_the_rate_limit(pep: Pep) -> None:
    entities = {"subject": ALICE, "action": READ, "resource": RECORD}
    bodies: list[dict[str, object]] = [dict(entities), {**entities, "evaluations": [{}] * 20}]
    before, after = (int(pep.post(EVALUATIONS, body).headers["X-RateLimit-Remaining"]) for body in bodies)
    # In another minute, the count starts again.
    assert before - after == 20 or after > before - 20
