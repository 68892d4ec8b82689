"""What somebody had under way when the right to it was taken away (decisions §9)."""

from collections.abc import Callable, Sequence
from functools import partial

import httpx
from support.crowd import together
from support.gateway import LiveGateway, Owner
from support.insight import rows, set_active
from support.team import Colleague

ROUNDS = 2
#: of everything that a colleague does at the same time
EACH = 3


def everything(owner: Owner, colleague: Colleague) -> Sequence[Callable[[], httpx.Response]]:
    """Return one of every kind of change, to be made by a colleague who is an admin."""
    http = colleague.http
    bot = owner.agent()
    permission = owner.permit(bot, "x.y", requires_approval=True)
    approval = owner.check(bot, "x.y").json()["approval_id"]
    agent = f"/api/agents/{bot}"
    return [
        partial(http.post, "/api/agents", json={"name": "late"}),
        partial(http.put, agent, json={"description": "late"}),
        partial(http.post, f"{agent}/keys"),
        partial(http.post, f"{agent}/permissions", json={"action": f"late.{permission}"}),
        partial(http.put, f"/api/permissions/{permission}", json={"max_amount": 1}),
        partial(http.post, f"/api/approvals/{approval}/deny"),
        partial(http.put, "/api/organization", json={"name": "Late"}),
        partial(http.get, "/api/organization"),
        partial(http.post, "/api/organization/test-key/regenerate"),
    ]


def test_a_removed_users_requests_under_way_change_nothing(gateway: LiveGateway, newcomer: Owner) -> None:
    """Whatever a colleague's changes wait for while they are removed, none happens after the removal."""
    refusals = 0
    for _ in range(ROUNDS):
        with Colleague(newcomer, "admin") as colleague:
            changes = [one for _ in range(EACH) for one in everything(newcomer, colleague)]
            removal = partial(newcomer.http.delete, f"/api/team/{colleague.id}")
            half = len(changes) // 2
            answers = together(*changes[:half], removal, *changes[half:])
            assert answers[half].status_code == 204
            assert {answer.status_code for answer in answers} <= {200, 201, 204, 401, 409}
            refusals += sum(answer.status_code == 401 for answer in answers)
            query = (
                "SELECT kind FROM audit_entries JOIN users ON users.id = audit_entries.user_id "
                "WHERE users.id = ? AND audit_entries.created_at > users.removed_at"
            )
            assert rows(gateway, query, colleague.id) == []
    assert refusals


def test_reading_goes_on_while_the_organization_is_switched_off(
    gateway: LiveGateway, newcomer: Owner
) -> None:
    """What was asked for before the organization became inactive is shown after it as well: it may read."""
    keys = f"/api/agents/{newcomer.agent()}/keys"
    reads = [
        partial(newcomer.http.get, path) for path in ("/api/organization", "/api/organization/test-key", keys)
    ]
    for _ in range(ROUNDS):
        switch_off = partial(set_active, gateway, newcomer, active=False)
        answers = together(*reads * EACH, switch_off, *reads * EACH)
        assert {answer.status_code for answer in answers if answer is not None} == {200}
        set_active(gateway, newcomer, active=True)
