"""GET /api/logs (spec §4)."""

import pytest
from support.gateway import Owner
from support.shapes import complaints

FIELDS = {
    "id",
    "agent_id",
    "organization_id",
    "action",
    "status",
    "context",
    "ip_address",
    "created_at",
}
FOUR = ("success", "failed", "pending", "denied")


@pytest.fixture(scope="module")
def history(acme: Owner) -> dict[str, list[str]]:
    """Two agents with twelve entries each, oldest first: four statuses, three actions."""
    written: dict[str, list[str]] = {}
    for agent in (acme.agent("one"), acme.agent("two")):
        written[agent] = [
            acme.log(agent, f"action.{number % 3}", FOUR[number % 4]).json()["id"] for number in range(12)
        ]
    return written


def ids(owner: Owner, **filters: str | int) -> list[str]:
    return [entry["id"] for entry in owner.entries(**filters)]


def test_an_entry_has_the_fields_of_the_specification(acme: Owner, history: dict[str, list[str]]) -> None:
    """The listing shows a log entry with `ip_address` (spec §2)."""
    entry = acme.entries(limit=1)[0]
    assert set(entry) >= FIELDS
    assert entry["organization_id"] == acme.user["organization_id"]


def test_entries_are_listed_newest_first(acme: Owner, history: dict[str, list[str]]) -> None:
    """By creation, descending (decisions §2)."""
    first, second = history.values()
    assert ids(acme) == (first + second)[::-1]
    moments = [entry["created_at"] for entry in acme.entries()]
    assert moments == sorted(moments, reverse=True)


def test_filters_select_and_combine(acme: Owner, history: dict[str, list[str]]) -> None:
    """`agent_id`, `status` and `action` narrow the listing, alone and together (spec §4)."""
    agent, other = history
    mine = history[agent]
    assert ids(acme, agent_id=agent) == mine[::-1]
    for number, status in enumerate(FOUR):
        assert ids(acme, agent_id=agent, status=status) == mine[number::4][::-1]
    assert ids(acme, agent_id=agent, action="action.1") == mine[1::3][::-1]
    assert ids(acme, agent_id=agent, action="action.1", status="failed") == [mine[1]]
    assert len(ids(acme, status="denied")) == 6
    assert ids(acme, action="ACTION.1") == ids(acme, action="action") == ids(acme, agent_id="x") == []
    assert set(ids(acme, agent_id=other)).isdisjoint(mine)


def test_pages_follow_each_other(acme: Owner, history: dict[str, list[str]]) -> None:
    """`limit` and `offset` cut the listing into pages without gap or overlap (spec §4)."""
    whole = ids(acme)
    pages = [ids(acme, limit=7, offset=offset) for offset in range(0, 28, 7)]
    assert [entry for page in pages for entry in page] == whole
    assert [len(page) for page in pages] == [7, 7, 7, 3]
    assert ids(acme, offset=24) == ids(acme, offset=2**63 - 1) == []


def test_the_default_page_has_fifty_and_the_largest_a_hundred(newcomer: Owner) -> None:
    """`limit` is 50 unless given and at most 100 (spec §4, decisions §2)."""
    agent = newcomer.agent()
    for _ in range(101):
        newcomer.log(agent, "a")
    assert [len(ids(newcomer)), len(ids(newcomer, limit=100)), len(ids(newcomer, limit=1))] == [50, 100, 1]


@pytest.mark.parametrize(
    "params",
    [
        {"limit": 0},
        {"limit": 101},
        {"limit": -1},
        {"limit": "many"},
        {"limit": ""},
        {"offset": -1},
        {"offset": "x"},
        {"offset": 2**63},
        {"status": "done"},
        {"status": ""},
    ],
)
def test_a_wrong_parameter_is_named(acme: Owner, params: dict[str, str | int]) -> None:
    """A parameter out of range is 400 under its name (decisions §2)."""
    assert list(complaints(acme.http.get("/api/logs", params=params))) == list(params)


def test_a_wrong_status_lists_the_four(acme: Owner) -> None:
    """The message says which statuses there are."""
    [message] = complaints(acme.http.get("/api/logs", params={"status": "done"}))["status"]
    assert all(status in message for status in FOUR)


def test_several_wrong_parameters_are_named_together(acme: Owner) -> None:
    """One answer names everything that is wrong."""
    answer = acme.http.get("/api/logs", params={"limit": 0, "offset": -1, "status": "x"})
    assert set(complaints(answer)) == {"limit", "offset", "status"}


def test_another_organization_sees_nothing(acme: Owner, rival: Owner, history: dict[str, list[str]]) -> None:
    """A listing holds the caller's organization alone, also when it is asked for a foreign agent."""
    agent, _ = history
    assert ids(rival, agent_id=agent) == []
    assert set(ids(rival, limit=100)).isdisjoint(ids(acme, limit=100))


def test_a_deleted_agents_entries_stay_with_its_name(newcomer: Owner) -> None:
    """Historical entries are kept when an agent is deleted (spec §3), with id and name (decisions §6)."""
    agent = newcomer.agent("short-lived")
    entry = newcomer.log(agent, "a").json()["id"]
    newcomer.http.delete(f"/api/agents/{agent}")
    [listed] = newcomer.entries(agent_id=agent)
    assert (listed["id"], listed["agent_id"], listed["agent_name"]) == (entry, agent, "short-lived")
