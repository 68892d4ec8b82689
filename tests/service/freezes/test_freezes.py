"""Freezes: created, listed, lifted, and the checks that they deny."""

import functools
import threading
from collections.abc import Iterator, Mapping

import httpx
import pytest
from support.crowd import together
from support.gateway import LiveGateway, Owner
from support.shapes import MOMENT, UUID7, refused

UNKNOWN = "01890000-0000-7000-8000-000000000000"
REASON = "Refunds were paid twice"
#: freezes in the test of concurrent checks
ROUNDS = 3


@pytest.fixture
def acme(gateway: LiveGateway) -> Iterator[Owner]:
    """A new organization for each test, because a freeze denies all its calls."""
    with Owner(gateway.url) as owner:
        yield owner


def freeze(owner: Owner, **fields: str) -> str:
    answer = owner.http.post("/api/freeze", json={"reason": REASON, **fields})
    assert answer.status_code == 201, answer.text
    freeze_id: str = answer.json()["id"]
    return freeze_id


def lift(owner: Owner, freeze_id: str) -> None:
    assert owner.http.post(f"/api/freeze/{freeze_id}/lift").status_code == 200


def outcome(owner: Owner, agent: str, action: str, **fields: object) -> tuple[bool, str]:
    answer = owner.check(agent, action, **fields)
    assert answer.status_code == 200, answer.text
    return answer.json()["allowed"], answer.headers["x-reason-code"]


ALLOWED, FROZEN = (True, "allowed"), (False, "frozen")


def test_freeze_contains_who_froze_when_and_why(acme: Owner, bot: str) -> None:
    answer = acme.http.post("/api/freeze", json={"agent_id": bot, "action": "stripe.*", "reason": REASON})
    assert answer.status_code == 201
    made = answer.json()
    assert UUID7.fullmatch(made["id"])
    assert MOMENT.fullmatch(made["created_at"])
    assert {name: value for name, value in made.items() if name not in {"id", "created_at"}} == {
        "agent_id": bot,
        "action": "stripe.*",
        "reason": REASON,
        "created_by": acme.user["id"],
        "lifted_by": None,
        "lifted_at": None,
    }
    assert acme.http.get("/api/freeze").json() == [made]
    assert acme.http.get(f"/api/freeze/{made['id']}").json() == made


@pytest.mark.parametrize("in_cache", [True, False], ids=["cached", "first"])
@pytest.mark.parametrize(
    ("fields", "denied"),
    [
        ({}, {("bot", "stripe.refund"), ("bot", "mail.send"), ("eve", "stripe.refund")}),
        ({"agent_id": "bot"}, {("bot", "stripe.refund"), ("bot", "mail.send")}),
        ({"action": "stripe.refund"}, {("bot", "stripe.refund"), ("eve", "stripe.refund")}),
        ({"action": "stripe.*"}, {("bot", "stripe.refund"), ("eve", "stripe.refund")}),
        ({"action": "str*"}, {("bot", "stripe.refund"), ("eve", "stripe.refund")}),
        ({"action": "stripe"}, set()),
        ({"action": "stripe.refund.*"}, set()),
        ({"action": "mail.send", "agent_id": "eve"}, set()),
        ({"action": "mail.*", "agent_id": "bot"}, {("bot", "mail.send")}),
    ],
    ids=["organization", "agent", "action", "prefix", "part", "beginning", "longer", "other", "both"],
)
def test_next_check_of_a_matching_call_is_denied(
    acme: Owner, fields: Mapping[str, str], denied: set[tuple[str, str]], *, in_cache: bool
) -> None:
    agents = {name: acme.agent(name) for name in ("bot", "eve")}
    calls = [("bot", "stripe.refund"), ("bot", "mail.send"), ("eve", "stripe.refund")]
    for name, action in calls:
        acme.permit(agents[name], action)
        if in_cache:
            assert outcome(acme, agents[name], action) == ALLOWED
    named = {key: agents.get(value, value) for key, value in fields.items()}
    made = freeze(acme, **named)
    for name, action in calls:
        expected = FROZEN if (name, action) in denied else ALLOWED
        assert outcome(acme, agents[name], action) == expected
    lift(acme, made)
    assert {outcome(acme, agents[name], action) for name, action in calls} == {ALLOWED}


def test_reason_is_in_the_denial(acme: Owner, bot: str) -> None:
    acme.permit(bot, "a.b")
    freeze(acme)
    assert acme.check(bot, "a.b").json() == {
        "allowed": False,
        "requires_approval": False,
        "reason": f"Calls are frozen: {REASON}",
        "approval_id": None,
    }


def test_freeze_applies_to_both_environments(acme: Owner) -> None:
    scope = {"environment": "test"}
    agent = acme.http.post("/api/agents", json={"name": "tester"}, params=scope).json()["id"]
    path = f"/api/agents/{agent}/permissions"
    assert acme.http.post(path, json={"action": "a.b"}, params=scope).status_code == 201
    key = acme.http.get("/api/organization/test-key").json()["api_key"]
    freeze(acme)
    body = {"agent_id": agent, "action": "a.b", "context": {}}
    answer = acme.http.post("/sdk/check", json=body, headers={"X-API-Key": key})
    assert answer.headers["x-reason-code"] == "frozen"


def test_approved_call_is_denied_while_it_is_frozen_and_runs_once_afterwards(acme: Owner, bot: str) -> None:
    acme.permit(bot, "a.b", requires_approval=True)
    approval = acme.check(bot, "a.b", {"n": 1}).json()["approval_id"]
    assert acme.http.post(f"/api/approvals/{approval}/approve").status_code == 200
    made = freeze(acme, action="a.*")
    assert outcome(acme, bot, "a.b", context={"n": 1}) == FROZEN
    lift(acme, made)
    assert outcome(acme, bot, "a.b", context={"n": 1}) == (True, "approved")
    assert outcome(acme, bot, "a.b", context={"n": 1}) == (False, "approval_required")


def test_frozen_call_creates_no_approval_request(acme: Owner, bot: str) -> None:
    acme.permit(bot, "a.b", requires_approval=True)
    freeze(acme, agent_id=bot)
    assert outcome(acme, bot, "a.b") == FROZEN
    assert acme.http.get("/api/approvals").json() == []


def test_oldest_of_several_freezes_names_the_reason_and_all_must_be_lifted(acme: Owner, bot: str) -> None:
    acme.permit(bot, "a.b")
    first = freeze(acme)
    answer = acme.http.post("/api/freeze", json={"action": "a.b", "reason": "Second"})
    assert acme.check(bot, "a.b").json()["reason"] == f"Calls are frozen: {REASON}"
    lift(acme, first)
    assert acme.check(bot, "a.b").json()["reason"] == "Calls are frozen: Second"
    lift(acme, answer.json()["id"])
    assert outcome(acme, bot, "a.b") == ALLOWED


def test_lifted_freeze_is_listed_apart_and_cannot_be_lifted_again(acme: Owner) -> None:
    made = freeze(acme)
    lift(acme, made)
    assert acme.http.get("/api/freeze").json() == []
    [lifted] = acme.http.get("/api/freeze", params={"status": "lifted"}).json()
    assert (lifted["id"], lifted["lifted_by"]) == (made, acme.user["id"])
    refused(acme.http.post(f"/api/freeze/{made}/lift"), 409, "Freeze was already lifted")


def test_other_organization_is_neither_frozen_nor_able_to_see_or_lift(
    gateway: LiveGateway, acme: Owner, bot: str
) -> None:
    with Owner(gateway.url, organization="Other") as other:
        agent = other.agent()
        other.permit(agent, "a.b")
        made = freeze(acme)
        assert outcome(other, agent, "a.b") == ALLOWED
        assert other.http.get("/api/freeze").json() == []
        refused(other.http.get(f"/api/freeze/{made}"), 404, "Freeze not found")
        refused(other.http.post(f"/api/freeze/{made}/lift"), 404, "Freeze not found")
        refused(other.http.post("/api/freeze", json={"agent_id": bot, "reason": "x"}), 404, "Agent not found")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"reason": ""},
        {"reason": "  "},
        {"reason": "x", "action": "*"},
        {"reason": "x", "action": "a*b"},
        {"reason": "x", "action": "a.?"},
        {"reason": "x", "action": ""},
        {"reason": "x", "agent": "bot"},
        {"reason": 1},
    ],
    ids=str,
)
def test_invalid_freeze_is_rejected_and_freezes_nothing(acme: Owner, body: Mapping[str, object]) -> None:
    assert acme.http.post("/api/freeze", json=body).status_code == 400
    assert acme.http.get("/api/freeze").json() == []


def test_unknown_agent_and_freeze_are_not_found(acme: Owner) -> None:
    refused(acme.http.post("/api/freeze", json={"agent_id": UNKNOWN, "reason": "x"}), 404, "Agent not found")
    refused(acme.http.post(f"/api/freeze/{UNKNOWN}/lift"), 404, "Freeze not found")


@pytest.mark.parametrize("fields", [{}, {"action": "a.*"}], ids=["all calls", "prefix"])
def test_no_check_that_starts_after_the_freeze_is_allowed_by_any_replica(
    gateway: LiveGateway, acme: Owner, bot: str, fields: Mapping[str, str]
) -> None:
    """Clients check without pause at each replica; every check that starts after the response to the freeze is denied.

    Each replica has allowed checks before, so that its cache contains the permission.
    """
    acme.permit(bot, "a.b")
    urls = gateway.replica_urls * 3
    for _ in range(ROUNDS):
        is_frozen = threading.Event()
        all_ready = threading.Barrier(len(urls) + 1, timeout=60)
        together(
            *(functools.partial(_check_until_denied, acme, bot, url, is_frozen, all_ready) for url in urls),
            functools.partial(_freeze_and_lift, acme, fields, is_frozen, all_ready),
        )


def _check_until_denied(
    acme: Owner, bot: str, url: str, is_frozen: threading.Event, all_ready: threading.Barrier
) -> None:
    body = {"agent_id": bot, "action": "a.b"}
    late: list[str] = []
    with httpx.Client(base_url=url, headers={"X-API-Key": acme.key}, timeout=30) as client:
        for _ in range(2):
            assert client.post("/sdk/check", json=body).json()["allowed"]
        all_ready.wait()
        while len(late) < 10:
            starts_after = is_frozen.is_set()
            code = client.post("/sdk/check", json=body).headers["x-reason-code"]
            if starts_after:
                late.append(code)
        all_ready.wait()
    assert late == ["frozen"] * 10


def _freeze_and_lift(
    acme: Owner,
    fields: Mapping[str, str],
    is_frozen: threading.Event,
    all_ready: threading.Barrier,
) -> None:
    all_ready.wait()
    made = freeze(acme, **fields)
    is_frozen.set()
    all_ready.wait()
    lift(acme, made)


def test_only_one_of_parallel_lifts_succeeds(acme: Owner) -> None:
    made = freeze(acme)
    answers = together(*[lambda: acme.http.post(f"/api/freeze/{made}/lift").status_code] * 8)
    assert sorted(answers) == [200] + [409] * 7
