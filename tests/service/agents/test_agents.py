"""Agents: created, read, changed, deleted (spec §2-4)."""

import pytest
from support.gateway import LiveGateway, Owner
from support.insight import rows
from support.shapes import MOMENT, REQUIRED, UUID7, complaints, refused

FIELDS = {"id", "name", "description", "status", "created_at", "created_by"}
UNKNOWN = "01890000-0000-7000-8000-000000000000"


def test_a_new_agent_has_exactly_the_fields_of_the_specification(acme: Owner) -> None:
    """POST answers 201 with an active agent made by the caller; GET shows the same (spec §2, §4)."""
    answer = acme.http.post("/api/agents", json={"name": "refund-bot", "description": "Refunds orders"})
    assert answer.status_code == 201
    agent = answer.json()
    assert set(agent) == FIELDS
    assert UUID7.fullmatch(agent["id"])
    assert MOMENT.fullmatch(agent["created_at"])
    assert (agent["name"], agent["description"]) == ("refund-bot", "Refunds orders")
    assert (agent["status"], agent["created_by"]) == ("active", acme.user["id"])
    shown = acme.http.get(f"/api/agents/{agent['id']}")
    assert (shown.status_code, shown.json()) == (200, agent)
    assert agent in acme.http.get("/api/agents").json()


def test_the_description_is_optional(acme: Owner) -> None:
    """An agent without a description has null for one."""
    assert acme.http.post("/api/agents", json={"name": "plain"}).json()["description"] is None


def test_agents_are_listed_newest_first_and_whole(newcomer: Owner) -> None:
    """GET /api/agents returns all agents, by creation, descending (decisions §2)."""
    assert newcomer.http.get("/api/agents").json() == []
    made = [newcomer.agent(f"bot-{number}") for number in range(60)]
    listed = newcomer.http.get("/api/agents").json()
    assert [agent["id"] for agent in listed] == made[::-1]
    assert listed[0] == newcomer.http.get(f"/api/agents/{made[-1]}").json()


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("x", "x"),
        ("n" * 100, "n" * 100),
        ("  trimmed  ", "trimmed"),
        (" " * 200 + "x", "x"),
        ("Größe 大きい", "Größe 大きい"),
        ("👩‍💻 helper", "👩‍💻 helper"),
        ("全角　空白", "全角　空白"),
        ('"quoted" <b>&amp;</b>', '"quoted" <b>&amp;</b>'),
        ("e\u0301", "e\u0301"),
    ],
)
def test_any_printable_name_is_kept(acme: Owner, given: str, kept: str) -> None:
    """A name is 1-100 printable characters of any script after trimming, not normalised (decisions §2)."""
    answer = acme.http.post("/api/agents", json={"name": given})
    assert (answer.status_code, answer.json()["name"]) == (201, kept)


def test_names_are_not_unique(acme: Owner) -> None:
    """Two agents may share a name (decisions §2)."""
    assert acme.agent("same") != acme.agent("same")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": " \t "}, "name"),
        ({"name": "n" * 101}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "a\u202eb"}, "name"),
        ({"name": "\u200d"}, "name"),
        ({"name": None}, "name"),
        ({"name": 7}, "name"),
        ({"name": ["x"]}, "name"),
        ({"name": "x", "description": "d" * 1001}, "description"),
        ({"name": "x", "description": 7}, "description"),
        ({"name": "x", "description": "bell\u0007"}, "description"),
        ({"name": "x", "status": "inactive"}, "status"),
        ({"name": "x", "created_by": "me"}, "created_by"),
        ({"name": "x", "id": UNKNOWN}, "id"),
    ],
)
def test_a_wrong_field_is_named_and_creates_nothing(acme: Owner, body: object, field: str) -> None:
    """Wrong and unknown fields are 400 under their names, and no agent is made (decisions §2)."""
    before = acme.http.get("/api/agents").json()
    found = complaints(acme.http.post("/api/agents", json=body))
    assert list(found) == [field]
    assert body or found["name"] == [REQUIRED]
    assert acme.http.get("/api/agents").json() == before


def test_a_change_changes_what_was_sent_alone(acme: Owner) -> None:
    """PUT answers 200 with the agent; what was left out stays (spec §4, decisions §3)."""
    before = acme.http.post("/api/agents", json={"name": "a", "description": "d"}).json()
    path = f"/api/agents/{before['id']}"
    for change in ({"name": "b"}, {"description": "e"}, {"status": "inactive"}, {"description": None}, {}):
        before |= change
        answer = acme.http.put(path, json=change)
        assert (answer.status_code, answer.json()) == (200, before)
        assert acme.http.get(path).json() == before


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"status": "paused"}, "status"),
        ({"status": None}, "status"),
        ({"status": True}, "status"),
        ({"name": ""}, "name"),
        ({"name": None}, "name"),
        ({"organization_id": "x"}, "organization_id"),
        ({"name": "x", "created_at": "2020-01-01"}, "created_at"),
    ],
)
def test_a_wrong_change_is_named_and_changes_nothing(acme: Owner, bot: str, body: object, field: str) -> None:
    """Wrong and unknown fields of a change are 400 under their names (decisions §2)."""
    before = acme.http.get(f"/api/agents/{bot}").json()
    assert list(complaints(acme.http.put(f"/api/agents/{bot}", json=body))) == [field]
    assert acme.http.get(f"/api/agents/{bot}").json() == before


def test_states_follow_the_specification(acme: Owner, bot: str) -> None:
    """Active → inactive → active, each as often as one likes (spec §3)."""
    for status in ("inactive", "inactive", "active", "active"):
        answer = acme.http.put(f"/api/agents/{bot}", json={"status": status})
        assert (answer.status_code, answer.json()["status"]) == (200, status)


def test_a_deleted_agent_is_gone_with_its_permissions(gateway: LiveGateway, acme: Owner, bot: str) -> None:
    """DELETE is 204 without a body; agent and permissions are gone, and again it is 404 (spec §3)."""
    permission = acme.permit(bot, "x.y")
    answer = acme.http.delete(f"/api/agents/{bot}")
    assert (answer.status_code, answer.content) == (204, b"")
    path = f"/api/agents/{bot}"
    for gone in (
        acme.http.get(path),
        acme.http.put(path, json={"status": "active"}),
        acme.http.delete(path),
        acme.http.get(f"{path}/permissions"),
        acme.http.post(f"{path}/permissions", json={"action": "x.y"}),
    ):
        refused(gone, 404, "Agent not found")
    assert bot not in {agent["id"] for agent in acme.http.get("/api/agents").json()}
    refused(acme.http.delete(f"/api/permissions/{permission}"), 404, "Permission not found")
    assert rows(gateway, "SELECT 1 FROM permissions WHERE agent_id = ?", bot) == []


def test_an_inactive_agent_can_be_deleted(acme: Owner, bot: str) -> None:
    """Inactive agents are removed like active ones (spec §3)."""
    acme.http.put(f"/api/agents/{bot}", json={"status": "inactive"})
    assert acme.http.delete(f"/api/agents/{bot}").status_code == 204


@pytest.mark.parametrize("agent_id", [UNKNOWN, "x", "%F0%9F%A4%96", "'%20OR%201=1"])
def test_an_unknown_agent_is_not_found(acme: Owner, agent_id: str) -> None:
    """Any id that is nobody's is 404 `Agent not found` (spec §7)."""
    for method in ("GET", "PUT", "DELETE"):
        content = b"{}" if method == "PUT" else None
        refused(acme.http.request(method, f"/api/agents/{agent_id}", content=content), 404, "Agent not found")


def test_a_foreign_agent_is_not_found_and_untouched(acme: Owner, rival: Owner, bot: str) -> None:
    """Another organization's agent is 404 on every path, and stays as it is (decisions §2)."""
    before = acme.http.get(f"/api/agents/{bot}").json()
    path = f"/api/agents/{bot}"
    for answer in (
        rival.http.get(path),
        rival.http.put(path, json={"name": "stolen"}),
        rival.http.delete(path),
        rival.http.get(f"{path}/permissions"),
        rival.http.post(f"{path}/permissions", json={"action": "x"}),
    ):
        refused(answer, 404, "Agent not found")
    assert bot not in {agent["id"] for agent in rival.http.get("/api/agents").json()}
    assert acme.http.get(path).json() == before
