"""Permissions: granted, listed, changed (spec §2-4)."""

from collections import Counter
from functools import partial

import pytest
from support.crowd import together
from support.gateway import Owner
from support.shapes import MOMENT, REQUIRED, UUID7, complaints, refused

UNKNOWN = "01890000-0000-7000-8000-000000000000"
DUPLICATE = "Permission already exists for this action"


def test_a_new_permission_has_the_fields_of_the_specification(acme: Owner, bot: str) -> None:
    """POST answers 201 with the permission as the listing shows it (spec §2, §4)."""
    path = f"/api/agents/{bot}/permissions"
    assert (acme.http.get(path).status_code, acme.http.get(path).json()) == (200, [])
    answer = acme.http.post(
        path, json={"action": "stripe.refund", "requires_approval": True, "max_amount": 50}
    )
    assert answer.status_code == 201
    permission = answer.json()
    assert UUID7.fullmatch(permission["id"])
    assert MOMENT.fullmatch(permission["created_at"])
    assert {name: value for name, value in permission.items() if name not in {"id", "created_at"}} == {
        "agent_id": bot,
        "action": "stripe.refund",
        "requires_approval": True,
        "max_amount": 50,
        "amount_required": False,
        "required_approvals": 1,
        "separation_of_duties": False,
        "approval_ttl_seconds": None,
    }
    assert acme.http.get(path).json() == [permission]


def test_the_defaults_are_those_of_the_specification(acme: Owner, bot: str) -> None:
    """Without more than an action, no approval is required and no maximum set (spec §2)."""
    permission = acme.http.post(f"/api/agents/{bot}/permissions", json={"action": "a"}).json()
    assert (permission["requires_approval"], permission["max_amount"]) == (False, None)


def test_permissions_are_listed_newest_first(acme: Owner, bot: str) -> None:
    """The listing is whole and ordered by creation, descending (decisions §2)."""
    made = [acme.permit(bot, f"action.{number}") for number in range(60)]
    listed = acme.http.get(f"/api/agents/{bot}/permissions").json()
    assert [permission["id"] for permission in listed] == made[::-1]


def test_one_permission_per_action(acme: Owner, bot: str) -> None:
    """A second permission for an action is 400, whatever else it says, and leaves the first (spec §7)."""
    first = acme.permit(bot, "a.b", max_amount=1)
    path = f"/api/agents/{bot}/permissions"
    refused(acme.http.post(path, json={"action": "a.b", "max_amount": 2}), 400, DUPLICATE)
    assert [(one["id"], one["max_amount"]) for one in acme.http.get(path).json()] == [(first, 1)]
    assert acme.permit(bot, "A.B") != first
    assert acme.permit(acme.agent(), "a.b") != first


def test_parallel_equal_permissions_leave_one(acme: Owner, bot: str) -> None:
    """Of eight simultaneous equal grants one succeeds and seven are duplicates (spec §2)."""
    path = f"/api/agents/{bot}/permissions"
    answers = together(*[partial(acme.http.post, path, json={"action": "race"})] * 8)
    assert Counter(answer.status_code for answer in answers) == {201: 1, 400: 7}
    assert {answer.json().get("detail") for answer in answers} == {None, DUPLICATE}
    assert len(acme.http.get(path).json()) == 1


@pytest.mark.parametrize("action", ["x", "a" * 255, "!~", "stripe.refund:v2/eu", "[+]"])
def test_any_visible_ascii_is_an_action(acme: Owner, bot: str, action: str) -> None:
    """An action is 1-255 visible ASCII characters without wildcards, kept as it is."""
    answer = acme.http.post(f"/api/agents/{bot}/permissions", json={"action": action})
    assert (answer.status_code, answer.json()["action"]) == (201, action)
    assert acme.check(bot, action).json()["allowed"] is True


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "action"),
        ({"action": None}, "action"),
        ({"action": ""}, "action"),
        ({"action": "two words"}, "action"),
        ({"action": " padded"}, "action"),
        ({"action": "grüße"}, "action"),
        ({"action": "tab\there"}, "action"),
        ({"action": "a" * 256}, "action"),
        ({"action": 5}, "action"),
        ({"action": "*"}, "action"),
        ({"action": "stripe.*"}, "action"),
        ({"action": "stripe.refun?"}, "action"),
        ({"action": "a", "requires_approval": "yes"}, "requires_approval"),
        ({"action": "a", "requires_approval": 1}, "requires_approval"),
        ({"action": "a", "amount_required": 0}, "amount_required"),
        ({"action": "a", "maximum": 5}, "maximum"),
        ({"action": "a", "agent_id": UNKNOWN}, "agent_id"),
    ],
)
def test_a_wrong_field_is_named_and_grants_nothing(acme: Owner, bot: str, body: object, field: str) -> None:
    """Wrong and unknown fields are 400 under their names, and nothing is granted (decisions §2)."""
    path = f"/api/agents/{bot}/permissions"
    found = complaints(acme.http.post(path, json=body))
    assert list(found) == [field]
    assert body or found["action"] == [REQUIRED]
    assert acme.http.get(path).json() == []


def test_a_change_changes_what_was_sent_alone(acme: Owner, bot: str) -> None:
    """PUT answers 200 with the permission; an explicit null lifts the maximum (decisions §3)."""
    permission = acme.permit(bot, "a", max_amount=10)
    path = f"/api/permissions/{permission}"
    [before] = acme.http.get(f"/api/agents/{bot}/permissions").json()
    for change in (
        {"requires_approval": True},
        {"max_amount": 5},
        {"amount_required": True},
        {"max_amount": None},
        {},
    ):
        before |= change
        answer = acme.http.put(path, json=change)
        assert (answer.status_code, answer.json()) == (200, before)
    assert acme.http.get(f"/api/agents/{bot}/permissions").json() == [before]


def test_wildcards_are_refused_with_the_reason(acme: Owner, bot: str) -> None:
    found = complaints(acme.http.post(f"/api/agents/{bot}/permissions", json={"action": "stripe.*"}))
    assert "match actions exactly" in found["action"][0]
    assert acme.check(bot, "stripe.*").json()["reason"] == "Agent has no permission for action 'stripe.*'"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"requires_approval": None}, "requires_approval"),
        ({"amount_required": None}, "amount_required"),
        ({"max_amount": -1}, "max_amount"),
        ({"action": "other"}, "action"),
        ({"agent_id": UNKNOWN}, "agent_id"),
    ],
)
def test_a_wrong_change_is_named_and_changes_nothing(acme: Owner, bot: str, body: object, field: str) -> None:
    """A permission's action and agent are not changed; wrong values are 400 under their names."""
    permission = acme.permit(bot, "a", max_amount=10)
    before = acme.http.get(f"/api/agents/{bot}/permissions").json()
    assert list(complaints(acme.http.put(f"/api/permissions/{permission}", json=body))) == [field]
    assert acme.http.get(f"/api/agents/{bot}/permissions").json() == before


def test_a_change_of_anothers_permission_is_not_found(acme: Owner, rival: Owner, bot: str) -> None:
    """PUT on an unknown or foreign permission is 404 (decisions §2)."""
    permission = acme.permit(bot, "a")
    for http, which in ((rival.http, permission), (acme.http, UNKNOWN)):
        answer = http.put(f"/api/permissions/{which}", json={"requires_approval": True})
        refused(answer, 404, "Permission not found")
    assert acme.check(bot, "a").json()["allowed"] is True


@pytest.mark.parametrize("given", ["60", "60.0", "6e1"])
def test_a_whole_number_may_be_written_as_any(acme: Owner, bot: str, given: str) -> None:
    """60, 60.0 and 6e1 are one number (decisions §4); 60.5 is no number of seconds."""
    path = f"/api/agents/{bot}/permissions"
    body = '{"action": "a", "approval_ttl_seconds": %s}'
    assert list(complaints(acme.http.post(path, content=body % "60.5"))) == ["approval_ttl_seconds"]
    assert acme.http.post(path, content=body % given).json()["approval_ttl_seconds"] == 60
