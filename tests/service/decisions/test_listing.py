"""GET /api/decisions and GET /api/decisions/{id}: filters, pages, and tenants."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from support.decisions import decision_id, recorded, write_decisions
from support.gateway import LiveGateway, Owner
from support.pages import pages, walked

PATH = "/api/decisions"
NEWEST = datetime(2026, 6, 1, 12, tzinfo=UTC)
UNKNOWN = "01890000-0000-7000-8000-000000000000"


@pytest.fixture(scope="module")
def archive(gateway: LiveGateway) -> Iterator[tuple[Owner, list[str]]]:
    """An organization with 300 decisions about two agents."""
    with Owner(gateway.url, organization="Archive") as owner:
        agents = [owner.agent("one"), owner.agent("two")]
        write_decisions(gateway, owner, agents, 300, newest=NEWEST)
        yield owner, agents


def test_filters_narrow_the_list_alone_and_together(archive: tuple[Owner, list[str]]) -> None:
    owner, (one, _) = archive

    def number(**params: str) -> int:
        found = walked(owner, PATH, limit=100, **params)
        first = owner.http.get(PATH, params=params)
        assert first.headers["X-Total-Count"] == str(len(found))
        return len(found)

    assert number() == 300
    assert number(agent_id=one) == 150
    assert number(action="action.1") == 100
    assert number(outcome="denied") == number(outcome="allowed") == 100
    assert number(reason_code="no_permission") == 100
    assert number(run_id="run-7") == 6
    assert number(rule_id=UNKNOWN) == 0
    assert number(agent_id=one, outcome="denied") == 50
    assert number(agent_id=one, run_id="run-7") == 0
    assert number(agent_id=one, run_id="run-8") == 6
    assert number(outcome="denied", action="action.0") == 0
    assert number(outcome="denied", action="action.1", reason_code="no_permission", agent_id=one) == 50
    assert number(to="2026-06-01T11:59:59Z") == 298
    assert number(**{"from": "2026-06-01T11:59:59Z"}) == 2
    span = {"from": "2026-06-01T13:59:30+02:00", "to": "2026-06-01T11:59:40"}
    assert number(**span) == 10
    assert number(**span, agent_id=one) == 5
    assert number(environment="test") == 0


@pytest.mark.parametrize(
    "filters", [{"agent_id": "x"}, {"action": "ü"}, {"rule_id": "x"}, {"run_id": "\x01"}], ids=str
)
def test_filter_that_no_record_can_have_finds_nothing(
    archive: tuple[Owner, list[str]], filters: dict[str, str]
) -> None:
    answer = archive[0].http.get(PATH, params=filters)
    assert (answer.status_code, answer.json(), answer.headers["X-Total-Count"]) == (200, [], "0")


@pytest.mark.parametrize(
    "filters",
    [{"outcome": "held"}, {"from": "x"}, {"from": "2026-01-02", "to": "2026-01-02"}, {"limit": "101"}],
    ids=str,
)
def test_invalid_filter_is_refused(archive: tuple[Owner, list[str]], filters: dict[str, str]) -> None:
    for path in (PATH, f"{PATH}/export")[: 1 if "limit" in filters else 2]:
        assert archive[0].http.get(path, params=filters).status_code == 400


@pytest.mark.parametrize("filters", [{}, {"outcome": "denied"}, {"action": "action.2"}], ids=str)
def test_pages_are_newest_first_without_gaps(
    archive: tuple[Owner, list[str]], filters: dict[str, str]
) -> None:
    owner, _ = archive
    everything = walked(owner, PATH, limit=100, **filters)
    times = [one["created_at"] for one in everything]
    assert times == sorted(times, reverse=True)
    assert walked(owner, PATH, limit=7, **filters) == everything
    assert owner.http.get(PATH, params={**filters, "offset": "5", "limit": "3"}).json() == everything[5:8]


def test_rare_matches_are_found_over_several_pages(
    gateway: LiveGateway, newcomer: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page reads 10,000 records; what matches further back is on a later one, and the total is unknown."""
    agents = [newcomer.agent()]
    old = datetime(2020, 1, 1, tzinfo=UTC)
    write_decisions(gateway, newcomer, agents, 3, newest=old)
    write_decisions(gateway, newcomer, agents, 10_500, newest=NEWEST)
    found = list(pages(newcomer, PATH, limit=2, action="action.0", to="2020-06-01"))
    assert [len(one.json()) for one in found] == [1]
    asked = {"action": "action.2", "reason_code": "no_permission"}
    assert walked(newcomer, PATH, limit=100, **asked) == []
    first = newcomer.http.get(PATH, params=asked)
    assert (first.json(), "next" in first.links, "X-Total-Count" in first.headers) == ([], True, False)
    asked = {"rule_id": UNKNOWN}
    found = list(pages(newcomer, PATH, limit=100, **asked))
    assert [len(one.json()) for one in found] == [0, 0]
    oldest: list[dict[str, Any]] = walked(
        newcomer, PATH, limit=100, outcome="approval_required", to="2020-06-01"
    )
    assert len(oldest) == 1
    assert newcomer.http.get(PATH, params={"agent_id": agents[0]}).headers["X-Total-Count"] == "10000+"


def test_other_organization_and_environment_see_nothing(newcomer: Owner, rival: Owner) -> None:
    agent = newcomer.agent()
    made = decision_id(newcomer.check(agent, "a.b"))
    recorded(newcomer, made)
    assert newcomer.http.get(f"{PATH}/{made}").status_code == 200
    assert newcomer.http.get(f"{PATH}/{made}", params={"environment": "test"}).status_code == 404
    assert rival.http.get(f"{PATH}/{made}").status_code == 404
    assert rival.http.get(PATH, params={"agent_id": agent}).json() == []
    assert made not in rival.http.get(f"{PATH}/export").text


@pytest.mark.parametrize("named", ["x", UNKNOWN, "ffffffff-ffff-7fff-bfff-ffffffffffff"])
def test_unknown_decision_is_not_found(newcomer: Owner, named: str) -> None:
    assert newcomer.http.get(f"{PATH}/{named}").status_code == 404
