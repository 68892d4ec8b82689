"""An approval request is judged by the stricter of the terms it was asked under and the current ones."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from support.gateway import LiveGateway, Owner
from support.insight import execute, move_into
from support.shapes import complaints


@dataclass(frozen=True)
class Three:
    """Three admins of one organization; the first created the agent and its permission for `pay`."""

    maker: Owner
    second: Owner
    third: Owner
    agent: str

    def permit(self, by: Owner | None = None, **fields: object) -> str:
        """Create the permission, which requires approval."""
        return (by or self.maker).permit(self.agent, "pay", requires_approval=True, **fields)

    def ask(self, **context: object) -> str:
        """Return the id of a held check's approval request."""
        approval: str = self.maker.check(self.agent, "pay", context).json()["approval_id"]
        assert approval is not None
        return approval

    def allowed(self, **context: object) -> bool:
        """Return whether a check passes."""
        return bool(self.maker.check(self.agent, "pay", context).json()["allowed"])


@pytest.fixture
def three(gateway: LiveGateway) -> Iterator[Three]:
    with (
        Owner(gateway.url, organization="Three") as maker,
        Owner(gateway.url) as second,
        Owner(gateway.url) as third,
    ):
        move_into(gateway, second, maker)
        move_into(gateway, third, maker)
        yield Three(maker, second, third, maker.agent())


def change(by: Owner, permission: str, **fields: object) -> None:
    answer = by.http.put(f"/api/permissions/{permission}", json=fields)
    assert answer.status_code == 200, answer.text


def approve(by: Owner, approval: str, **body: object) -> httpx.Response:
    return by.http.post(f"/api/approvals/{approval}/approve", json=body)


def refused(answer: httpx.Response) -> bool:
    return answer.status_code == 403 and "separation of duties" in answer.json()["detail"]


def shown(by: Owner, approval: str) -> dict[str, Any]:
    found: dict[str, Any] = by.http.get(f"/api/approvals/{approval}").json()
    return found


def test_creator_switches_separation_off_and_may_not_approve(three: Three) -> None:
    permission = three.permit(separation_of_duties=True)
    approval = three.ask()
    change(three.maker, permission, separation_of_duties=False)
    assert refused(approve(three.maker, approval))
    found = shown(three.maker, approval)
    assert (found["status"], found["votes"], found["separation_of_duties"]) == ("pending", [], True)
    assert approve(three.second, approval).status_code == 200
    assert three.allowed()


def test_request_asked_without_separation_is_not_exempt_from_it(three: Three) -> None:
    permission = three.permit()
    approval = three.ask()
    assert shown(three.maker, approval)["separation_of_duties"] is False
    change(three.second, permission, separation_of_duties=True)
    assert refused(approve(three.maker, approval))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"separation_of_duties": True}, {"separation_of_duties": False}),
        ({"max_amount": 50}, {"max_amount": 5000}),
        ({"max_amount": 50}, {"max_amount": None}),
        ({"max_amount": 50, "amount_required": True}, {"amount_required": False}),
        ({"required_approvals": 2}, {"required_approvals": 1}),
        ({}, {"requires_approval": False}),
    ],
)
def test_user_who_loosens_the_permission_may_not_approve(
    three: Three, before: dict[str, object], after: dict[str, object]
) -> None:
    permission = three.permit(**({"separation_of_duties": True} | before))
    change(three.second, permission, **after)
    # Taking it back does not undo it.
    change(three.third, permission, requires_approval=True, separation_of_duties=True)
    approval = three.ask(amount=40)
    assert refused(approve(three.second, approval))
    assert approve(three.third, approval).status_code == 200
    if before.get("required_approvals") != 2:
        assert three.allowed(amount=40)


@pytest.mark.parametrize(
    "after",
    [
        {"max_amount": 20},
        {"amount_required": True},
        {"required_approvals": 1},
        {"separation_of_duties": True},
        {"approval_ttl_seconds": 60},
        {},
    ],
)
def test_user_who_tightens_the_permission_may_approve(three: Three, after: dict[str, object]) -> None:
    permission = three.permit(separation_of_duties=True, max_amount=50)
    change(three.second, permission, **after)
    approval = three.ask(amount=10)
    assert approve(three.second, approval).status_code == 200
    assert three.allowed(amount=10)


def test_vote_of_a_user_who_loosens_the_permission_later_no_longer_counts(three: Three) -> None:
    permission = three.permit(separation_of_duties=True, max_amount=50)
    approval = three.ask(amount=40)
    assert approve(three.second, approval).status_code == 200
    change(three.second, permission, max_amount=5000)
    named = three.maker.check(three.agent, "pay", {"amount": 40}, approval_id=approval).json()
    assert named["allowed"] is False
    assert "separation of duties" in named["reason"]


def test_lowered_quorum_does_not_count_for_requests_asked_before(three: Three) -> None:
    permission = three.permit(required_approvals=2)
    approval = three.ask()
    change(three.maker, permission, required_approvals=1)
    assert approve(three.maker, approval).json()["status"] == "pending"
    assert approve(three.second, approval).json()["status"] == "approved"


def test_raised_maximum_approves_no_more_than_was_asked_under(three: Three) -> None:
    """Neither the requester nor another person may edit a request beyond the maximum it was asked under."""
    permission = three.permit(max_amount=50, amount_required=True)
    approval = three.ask(amount=40)
    change(three.maker, permission, max_amount=5000, amount_required=False)
    for context in ({"amount": 4000}, {"other": 1}):
        assert list(complaints(approve(three.maker, approval, context=context))) == ["context"]
    assert shown(three.maker, approval)["status"] == "pending"
    assert approve(three.maker, approval, context={"amount": 45}).status_code == 200


def test_edited_request_keeps_the_terms(three: Three) -> None:
    permission = three.permit(separation_of_duties=True, required_approvals=2)
    approval = three.ask(amount=40)
    successor = approve(three.second, approval, context={"amount": 30}).json()["replaced_by"]
    change(three.maker, permission, separation_of_duties=False, required_approvals=1)
    assert refused(approve(three.maker, successor))
    assert shown(three.maker, successor)["status"] == "pending"
    assert approve(three.third, successor).json()["status"] == "approved"


def test_temporary_approval_keeps_the_terms_of_its_request(three: Three) -> None:
    permission = three.permit(separation_of_duties=True)
    approval = three.ask(n=1)
    change(three.maker, permission, separation_of_duties=False)
    grant = {"uses": 5, "seconds": 600, "except_fields": ["n"]}
    assert refused(approve(three.maker, approval, grant=grant))
    assert approve(three.second, approval, grant=grant).status_code == 200
    assert three.allowed(n=1)
    assert three.allowed(n=2)
    # The user who gave it loosens the permission: whoever did may not have approved.
    change(three.maker, permission, separation_of_duties=True)
    change(three.second, permission, required_approvals=1, separation_of_duties=False)
    assert not three.allowed(n=3)


@pytest.mark.parametrize("waits_before", [True, False])
def test_temporary_approval_does_not_cover_requests_under_stricter_terms(
    three: Three, waits_before: bool
) -> None:
    """A grant that a maker gave once separation was off lets no request through that was asked while it was on."""
    permission = three.permit(separation_of_duties=True)
    strict = three.ask(n=1) if waits_before else None
    change(three.second, permission, separation_of_duties=False)
    grant = {"uses": 5, "seconds": 600, "except_fields": ["n"]}
    assert approve(three.maker, three.ask(n=2), grant=grant).status_code == 200
    assert three.allowed(n=3)
    assert three.allowed(n=1) is not waits_before
    if strict is not None:
        assert shown(three.maker, strict)["status"] == "pending"


def test_recreated_permission_revives_nothing(three: Three) -> None:
    permission = three.permit(separation_of_duties=True)
    approval = three.ask()
    assert three.second.http.delete(f"/api/permissions/{permission}").status_code == 204
    three.permit(three.second)
    assert approve(three.second, approval).status_code == 409
    assert three.ask() != approval


def test_agents_creator_is_stored_with_the_request(gateway: LiveGateway, three: Three) -> None:
    three.permit(three.second, separation_of_duties=True)
    approval = three.ask()
    values = (three.third.user["id"], three.agent)
    assert execute(gateway, "UPDATE agents SET created_by = ? WHERE id = ?", *values) == 1
    assert refused(approve(three.maker, approval))
    assert refused(approve(three.third, approval))


def test_request_of_an_older_gateway_is_judged_by_the_current_terms(
    gateway: LiveGateway, three: Three
) -> None:
    three.permit(separation_of_duties=True)
    approval = three.ask()
    erase = (
        "UPDATE approvals SET separation_of_duties = NULL, makers = NULL, amount_required = NULL WHERE id = ?"
    )
    assert execute(gateway, erase, approval) == 1
    assert shown(three.maker, approval)["separation_of_duties"] is False
    assert refused(approve(three.maker, approval))
    assert approve(three.second, approval).status_code == 200
    assert three.allowed()


def test_loosening_and_approving_at_once_never_lets_a_maker_approve(three: Three) -> None:
    permission = three.permit(separation_of_duties=True)
    with ThreadPoolExecutor(6) as pool:
        for n in range(5):
            approval = three.ask(n=n)
            looser = pool.submit(change, three.maker, permission, separation_of_duties=False)
            answers = list(pool.map(lambda one: approve(three.maker, one), [approval] * 5))
            looser.result()
            assert all(map(refused, answers))
            assert shown(three.maker, approval)["status"] == "pending"
            change(three.maker, permission, separation_of_duties=True)


def test_request_asked_again_under_stricter_terms_keeps_them(three: Three) -> None:
    permission = three.permit()
    approval = three.ask()
    change(three.second, permission, separation_of_duties=True, required_approvals=2)
    assert three.ask() == approval
    change(three.second, permission, separation_of_duties=False, required_approvals=1)
    assert refused(approve(three.maker, approval))
    # The second admin loosened the permission and is one of its makers now, so a third and a fourth must approve.
    assert refused(approve(three.second, approval))
    assert approve(three.third, approval).status_code == 200
    assert shown(three.maker, approval)["status"] == "pending"
    assert shown(three.maker, approval)["required_approvals"] == 2


def test_request_asked_again_under_a_lower_limit_keeps_it_for_edits(three: Three) -> None:
    permission = three.permit()
    approval = three.ask(amount=5)
    change(three.second, permission, max_amount=10, amount_required=True)
    assert three.ask(amount=5) == approval
    change(three.second, permission, max_amount=None, amount_required=False)
    for context in ({"amount": 11}, {}):
        assert approve(three.third, approval, context=context).status_code == 400
    assert approve(three.third, approval, context={"amount": 9}).status_code == 200


def test_dry_run_does_not_change_the_terms_of_a_request(three: Three) -> None:
    permission = three.permit()
    approval = three.ask()
    change(three.second, permission, separation_of_duties=True)
    dry = {"agent_id": three.agent, "action": "pay", "context": {}, "dry_run": True}
    answer = three.maker.http.post("/sdk/check", json=dry, headers={"X-API-Key": three.maker.key})
    assert answer.json()["allowed"] is False
    assert shown(three.maker, approval)["separation_of_duties"] is False
