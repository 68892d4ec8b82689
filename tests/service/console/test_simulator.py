"""Simulator: explained decisions that change nothing."""

import json
import re

import pytest
from support.console import Reader, text_of
from support.gateway import LiveGateway, Owner
from support.tables import rows

#: tables that a check may change
TABLES = (
    "approvals",
    "approval_votes",
    "grants",
    "log_entries",
    "idempotency_keys",
    "audit_entries",
    "events",
)


def tried(reader: Reader, agent: str, **fields: str) -> str:
    answer = reader.submit(f"/console/agents/{agent}/try", token=reader.token(), **fields)
    assert answer.status_code == 200, answer.text
    return answer.text


def answer_in(page: str) -> dict[str, object]:
    """Return the API's response that a page shows."""
    found = re.search(r'aria-label="API response">(.*?)</pre>', page, re.DOTALL)
    assert found, page
    answer: dict[str, object] = json.loads(text_of(found[1]))
    return answer


def everything(gateway: LiveGateway, owner: Owner) -> list[list[tuple[object, ...]]]:
    organization = owner.user["organization_id"]
    return [
        rows(gateway, f"SELECT * FROM {table} WHERE organization_id = ? ORDER BY 1, 2", organization)
        for table in TABLES
    ]


def test_each_state_of_a_held_check_is_explained(gateway: LiveGateway, newcomer: Owner) -> None:
    """Unasked, pending, approved, consumed, denied, temporarily approved."""
    agent = newcomer.agent()
    newcomer.permit(agent, "pay", requires_approval=True, max_amount=50)
    context = {"to": "Ann", "amount": 5}
    fields = {"action": "pay", "amount": "5.0", "arguments": '{"to": "Ann"}'}

    def same(words: str) -> dict[str, object]:
        before = everything(gateway, newcomer)
        page = tried(reader, agent, **fields)
        assert everything(gateway, newcomer) == before
        assert words in text_of(page)
        explained = answer_in(page)
        answered: dict[str, object] = newcomer.check(agent, "pay", context).json()
        assert explained | {"approval_id": None} == answered | {"approval_id": None}
        assert explained["approval_id"] in {None, answered["approval_id"]}
        return answered

    def decide(what: str, **body: object) -> None:
        answer = newcomer.http.post(f"/api/approvals/{asked['approval_id']}/{what}", json=body)
        assert answer.status_code == 200, answer.text

    with Reader.of(newcomer.url, newcomer.email) as reader:
        asked = same("A real check would create a new approval request")
        assert same("is already pending") == asked
        decide("approve")
        assert same("A real check would use this approval")["allowed"]
        asked = same("A real check would create a new approval request")
        decide("approve", grant={"uses": 2, "seconds": 900})
        same("A real check would use this approval")
        same("A real check would use one of its remaining calls")
        same("A real check would use one of its remaining calls")
        asked = same("A real check would create a new approval request")
        decide("deny", note="Not today")
        assert same("Denied by a person: Not today")["reason"] == "Denied by a person: Not today"
        newcomer.http.put(f"/api/agents/{agent}", json={"status": "inactive"})
        page = text_of(tried(reader, agent, **fields))
        assert "Agent is inactive" in page
        assert "The agent has a permission" not in page


def test_the_quorum_is_explained(maya: Reader, acme: Owner) -> None:
    agent = acme.agent()
    acme.permit(agent, "pay", requires_approval=True, required_approvals=2)
    assert "A real check would create a new approval request, which requires 2 approvals." in text_of(
        tried(maya, agent, action="pay")
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"action": "free"}, "has no maximum amount"),
        ({"action": "other"}, "Agent has no permission for action 'other'"),
        (
            {"action": "pay", "amount": "9.5"},
            "The amount 9.5 does not exceed the permission's maximum of 10.",
        ),
        ({"action": "pay", "amount": "10.000001"}, "Amount 10.000001 is above the maximum of 10"),
        ({"action": "pay", "arguments": '{"amount": "9"}'}, "must be a non-negative number, not '9'"),
        ({"action": "pay"}, "context.amount is required"),
        ({"action": "free", "approval_id": "x"}, "does not belong to this agent, action and context"),
    ],
)
def test_decisions_are_explained(maya: Reader, acme: Owner, fields: dict[str, str], words: str) -> None:
    """The deciding step gives the reason, and the response equals the check's."""
    agent = acme.agent()
    acme.permit(agent, "free")
    acme.permit(agent, "pay", max_amount=10, amount_required=True)
    page = tried(maya, agent, **fields)
    assert words in text_of(page)
    context = json.loads(fields.get("arguments", "{}"))
    if "amount" in fields:
        context["amount"] = float(fields["amount"])
    named = {"approval_id": fields["approval_id"]} if "approval_id" in fields else {}
    assert answer_in(page) == acme.check(agent, fields["action"], context, **named).json()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"action": ""}, "action: "),
        ({"action": "a b"}, "must be 1-255 visible ASCII"),
        ({"action": "a", "arguments": "{"}, "arguments: is not valid JSON"),
        ({"action": "a", "arguments": "[1]"}, "must be a JSON object"),
        ({"action": "a", "arguments": '{"a":1,"a":2}'}, "arguments: "),
        ({"action": "a", "amount": "ten"}, "'ten' is not a number"),
        ({"action": "a", "amount": "1", "arguments": '{"amount":1}'}, "enter the amount only once"),
        ({"action": "a", "arguments": '{"a":"' + "x" * 66_000 + '"}'}, "must not be larger than 65536 bytes"),
        ({"action": "a", "run_id": "x" * 256}, "run_id: "),
    ],
)
def test_an_invalid_check_is_refused(maya: Reader, bot: str, fields: dict[str, str], words: str) -> None:
    """400 with the typed values."""
    answer = maya.submit(f"/console/agents/{bot}/try", token=maya.token(), **fields)
    assert (answer.status_code, words in text_of(answer.text)) == (400, True), text_of(answer.text)[:2000]
    assert "Decided here" not in answer.text


def test_hostile_arguments_are_escaped(maya: Reader, bot: str) -> None:
    """In the form and in the reason."""
    hostile = "</textarea><script>alert(1)</script>\u202e"
    answer = maya.submit(
        f"/console/agents/{bot}/try",
        token=maya.token(),
        action="<script>",
        arguments=json.dumps({"a": hostile}),
        run_id=hostile[:-1],
    )
    assert answer.status_code == 200
    assert "<script>alert" not in answer.text
    assert "no permission for action '<script>'" in text_of(answer.text)
    assert "U+202E" in answer.text or "\\u202e" in answer.text


def test_simulating_does_not_count_against_the_rate(free_gateway: LiveGateway, frugal: Owner) -> None:
    """Beyond the rate the refusal is explained."""
    agent = frugal.agent()
    frugal.permit(agent, "a")
    with Reader.of(free_gateway.url, frugal.email) as reader:
        for _ in range(3):
            tried(reader, agent, action="a")
        left = int(frugal.check(agent, "a").headers["X-RateLimit-Remaining"])
        # If a minute has ended meanwhile, more requests are left.
        assert left == 99
        # A minute may end between check and simulation, but not three times in a row.
        refused = any(
            "The check fails with status 429" in text_of(tried(reader, agent, action="a"))
            for _ in range(3)
            if not all(frugal.check(agent, "a").status_code == 200 for _ in range(101))
        )
        assert refused
