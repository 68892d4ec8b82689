"""`approval_ttl_seconds`: a permission whose requests wait longer or shorter than others (decisions §5)."""

from datetime import datetime, timedelta

import pytest
from support.gateway import Owner
from support.shapes import complaints

DAY = timedelta(days=1)


def waits(owner: Owner, agent: str, n: int) -> timedelta:
    approval = owner.check(agent, "db.drop", {"n": n}).json()["approval_id"]
    shown = owner.http.get(f"/api/approvals/{approval}").json()
    return datetime.fromisoformat(shown["expires_at"]) - datetime.fromisoformat(shown["created_at"])


def test_a_permissions_requests_wait_as_long_as_it_says(acme: Owner, bot: str) -> None:
    """Set, changed and taken back, each new request follows; null is the gateway's own time."""
    permission = acme.permit(bot, "db.drop", requires_approval=True, approval_ttl_seconds=60)
    path = f"/api/permissions/{permission}"
    assert waits(acme, bot, 1) == timedelta(seconds=60)
    assert acme.http.put(path, json={"approval_ttl_seconds": 120}).json()["approval_ttl_seconds"] == 120
    assert waits(acme, bot, 2) == timedelta(seconds=120)
    assert waits(acme, bot, 1) == timedelta(seconds=60)
    assert acme.http.put(path, json={"approval_ttl_seconds": None}).json()["approval_ttl_seconds"] is None
    assert waits(acme, bot, 3) == DAY


@pytest.mark.parametrize("seconds", [0, -1, 30 * 24 * 3600 + 1, 1.5, "60", True])
def test_a_wrong_time_is_named(acme: Owner, bot: str, seconds: object) -> None:
    """Whole seconds, from one to thirty days of them, or nothing is granted or changed."""
    permission = acme.permit(bot, "db.drop", requires_approval=True)
    body = {"approval_ttl_seconds": seconds}
    granted = acme.http.post(f"/api/agents/{bot}/permissions", json={"action": "x", **body})
    assert list(complaints(granted)) == ["approval_ttl_seconds"]
    changed = acme.http.put(f"/api/permissions/{permission}", json=body)
    assert list(complaints(changed)) == ["approval_ttl_seconds"]
    assert waits(acme, bot, 1) == DAY
