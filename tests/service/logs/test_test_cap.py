"""How much the test environment holds (decisions §8)."""

from collections.abc import Iterator
from functools import partial

import httpx
import pytest
from support.crowd import together
from support.gateway import LiveGateway, Owner
from support.tables import execute, rows
from support.upkeep import ago_text
from support.waiting import until

TEST = {"environment": "test"}
CAP = 20_000


class Rehearsal:
    """An organization's test environment with one agent."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.agent = owner.http.post("/api/agents", json={"name": "t"}, params=TEST).json()["id"]
        self.key = owner.http.get("/api/organization/test-key").json()["api_key"]

    def log(self, size: int = 500) -> httpx.Response:
        body = {"agent_id": self.agent, "action": "a", "status": "success", "context": {"x": "x" * size}}
        return self.owner.http.post("/sdk/log", json=body, headers={"X-API-Key": self.key})


def held(gateway: LiveGateway, owner: Owner) -> int:
    query = "SELECT log_bytes FROM environments WHERE organization_id = ? AND name = 'test'"
    return int(rows(gateway, query, owner.user["organization_id"])[0][0])


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway whose test environments hold little, and which does its upkeep often."""
    env = {"TOOLGATE_TEST_LOG_BYTES": str(CAP), "TOOLGATE_MAINTENANCE_INTERVAL_SECONDS": "1"}
    with LiveGateway(tmp_path_factory.mktemp("tight"), env=env) as gateway:
        yield gateway


def test_a_full_test_log_refuses_and_production_goes_on(tight: LiveGateway) -> None:
    """403 with an error that says how full it is and the cure, until old entries are removed."""
    with Owner(tight.url) as owner:
        rehearsal = Rehearsal(owner)
        while (answer := rehearsal.log()).status_code == 200:
            pass
        assert answer.status_code == 403
        detail = answer.json()["detail"]
        assert (detail["error"], detail["limit_type"]) == ("test_log_full", "test_log_bytes")
        used = held(tight, owner)
        assert f"{used}/{CAP}" in detail["message"]
        assert "TOOLGATE_TEST_LOG_BYTES" in detail["message"]
        assert CAP - 2_000 < used <= CAP
        assert owner.log(owner.agent(), "a", context={"x": "x" * 60_000}).status_code == 200
        where = "WHERE organization_id = ? AND environment = 'test'"
        organization = owner.user["organization_id"]
        execute(tight, f"UPDATE log_entries SET created_at = ? {where}", ago_text(days=8), organization)
        until(lambda: held(tight, owner) == 0)
        assert rehearsal.log().status_code == 200


def test_the_cap_is_exact_under_concurrency(tight: LiveGateway) -> None:
    """Of thirty simultaneous entries as many are stored as fit, and the count is theirs."""
    with Owner(tight.url) as owner:
        rehearsal = Rehearsal(owner)
        assert rehearsal.log().status_code == 200
        size = held(tight, owner)
        answers = together(*[partial(rehearsal.log)] * 30)
        stored = 1 + sum(answer.status_code == 200 for answer in answers)
        assert stored == CAP // size
        assert held(tight, owner) == stored * size


def test_a_batch_is_cut_where_the_log_is_full(tight: LiveGateway) -> None:
    """The entries that fit are stored, those after them refused; a smaller one may still fit."""
    with Owner(tight.url) as owner:
        rehearsal = Rehearsal(owner)
        entry = {"agent_id": rehearsal.agent, "action": "a", "status": "success"}
        fat = entry | {"context": {"x": "x" * 15_000}}
        answer = owner.http.post(
            "/sdk/logs", json={"entries": [fat, fat, entry]}, headers={"X-API-Key": rehearsal.key}
        )
        assert [one["status"] for one in answer.json()["results"]] == [200, 403, 200]
