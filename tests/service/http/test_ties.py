"""Lists are ordered by (`created_at`, `id`), descending, also where many things have one moment (decisions §2)."""

from collections.abc import Iterator

import pytest
from support.gateway import LiveGateway, Owner
from support.pages import walked
from support.tables import execute

MOMENT = "2026-11-20T12:00:00.000000Z"
LISTS = {
    "agents": "/api/agents",
    "permissions": "/api/agents/{agent}/permissions",
    "log_entries": "/api/logs",
    "approvals": "/api/approvals",
    "audit_entries": "/api/audit",
}


@pytest.fixture(scope="module")
def twins(gateway: LiveGateway) -> Iterator[tuple[Owner, str]]:
    """An organization whose seven things of every kind were made at one moment, and the agent that has them."""
    with Owner(gateway.url, organization="Twins") as owner:
        agent, *_ = [owner.agent() for _ in range(7)]
        for number in range(7):
            owner.permit(agent, f"held.{number}", requires_approval=True)
            assert owner.check(agent, f"held.{number}").json()["requires_approval"] is True
            assert owner.log(agent, "a").status_code == 200
        for table in LISTS:
            statement = f"UPDATE {table} SET created_at = ? WHERE organization_id = ?"
            assert execute(gateway, statement, MOMENT, owner.user["organization_id"]) >= 7
        yield owner, agent


@pytest.mark.parametrize("kind", LISTS)
def test_what_has_one_moment_is_ordered_by_id(twins: tuple[Owner, str], kind: str) -> None:
    """The larger id comes first, and no page loses or repeats any of them."""
    owner, agent = twins
    path = LISTS[kind].format(agent=agent)
    whole = owner.http.get(path, params={"limit": 100}).json()
    # Reading an organization's key, which pages do not, would add to the audit.
    moments = {thing["created_at"] for thing in whole}
    assert moments == {MOMENT}
    ids = [thing["id"] for thing in whole]
    assert len(ids) >= 7
    assert ids == sorted(ids, reverse=True)
    assert [thing["id"] for thing in walked(owner, path, limit=3)] == ids
