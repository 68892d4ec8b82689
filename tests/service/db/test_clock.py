"""On PostgreSQL the database's clock counts, whatever a gateway's own one shows (decisions §12)."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from support.gateway import LiveGateway, Owner
from support.tables import rows

pytestmark = pytest.mark.postgresql_only("an SQLite gateway has one clock, its own")

#: more than a request for approval, an approval and an idempotency key last
AHEAD = 25
#: puts a gateway's clocks forward before anything of it is loaded
FORWARD = f"""
import time
from datetime import timedelta

from toolgate_service.core import clock

_now, _time, _time_ns = clock.utcnow, time.time, time.time_ns
clock.utcnow = lambda: _now() + timedelta(hours={AHEAD})
time.time = lambda: _time() + {AHEAD} * 3600
time.time_ns = lambda: _time_ns() + {AHEAD} * 3600 * 10**9
"""


@pytest.fixture(scope="module")
def hurrying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway whose clock is more than a day ahead."""
    folder = tmp_path_factory.mktemp("hurrying")
    (folder / "sitecustomize.py").write_text(FORWARD)
    with LiveGateway(folder, env={"PYTHONPATH": str(folder)}, prefix=()) as gateway:
        yield gateway


@pytest.fixture
def early(hurrying: LiveGateway) -> Iterator[Owner]:
    """An organization on it."""
    with Owner(hurrying.url) as owner:
        yield owner


def is_now(moment: str) -> bool:
    return abs(datetime.fromisoformat(moment) - datetime.now(UTC)) < timedelta(minutes=5)


def test_the_gateway_of_these_tests_is_ahead(early: Owner) -> None:
    """It knows it itself: not ready, for the clocks differ."""
    answer = early.http.get("/health/ready")
    assert (answer.status_code, "clock" in answer.json()["detail"]) == (503, True)


def test_everything_is_made_at_the_databases_moment(hurrying: LiveGateway, early: Owner) -> None:
    """Users, agents, permissions, approvals, entries, sessions and the audit: each `created_at` is the server's."""
    agent = early.agent()
    early.permit(agent, "held", requires_approval=True)
    early.log(agent, "a")
    approval = early.check(agent, "held").json()["approval_id"]
    shown = [
        early.http.get("/auth/me").json(),
        early.http.get("/api/organization").json(),
        *early.http.get("/api/agents").json(),
        *early.http.get(f"/api/agents/{agent}/permissions").json(),
        *early.entries(),
        early.http.get(f"/api/approvals/{approval}").json(),
        *early.http.get("/api/audit").json(),
    ]
    assert len(shown) >= 9
    assert [one for one in shown if not is_now(one["created_at"])] == []
    for table in ("sessions", "api_keys"):
        found = rows(
            hurrying,
            f"SELECT created_at FROM {table} WHERE organization_id = ?",
            early.user["organization_id"],
        )
        assert found
        assert all(is_now(moment) for (moment,) in found)


def test_nothing_runs_out_by_the_gateways_clock(early: Owner) -> None:
    """A request waits, an approval passes, a key is remembered and a window ends by the server's clock."""
    agent = early.agent()
    early.permit(agent, "held", requires_approval=True)
    first = early.check(agent, "held").json()["approval_id"]
    assert early.http.get(f"/api/approvals/{first}").json()["status"] == "pending"
    assert early.check(agent, "held").json()["approval_id"] == first
    decided = early.http.post(f"/api/approvals/{first}/approve")
    assert (decided.status_code, is_now(decided.json()["decided_at"])) == (200, True)
    answer = early.check(agent, "held")
    assert answer.json()["allowed"] is True
    assert abs(int(answer.headers["X-RateLimit-Reset"]) - datetime.now(UTC).timestamp()) < 70
    assert _logged(early, agent).content == _logged(early, agent).content


def _logged(owner: Owner, agent: str) -> httpx.Response:
    body = {"agent_id": agent, "action": "a", "status": "success"}
    headers = {"X-API-Key": owner.key, "Idempotency-Key": agent}
    return owner.http.post("/sdk/log", json=body, headers=headers)
