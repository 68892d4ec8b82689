"""POST /sdk/log: what is recorded and what is answered (spec §4, decisions §6)."""

import httpx
import pytest
from support.gateway import LiveGateway, Owner
from support.insight import rows
from support.shapes import MOMENT, UUID7, refused

ANSWER = {"id", "agent_id", "organization_id", "action", "status", "context", "created_at"}
UNKNOWN = "01890000-0000-7000-8000-000000000000"


@pytest.mark.parametrize("status", ["success", "failed", "pending", "denied"])
def test_the_answer_has_exactly_the_fields_of_the_specification(acme: Owner, bot: str, status: str) -> None:
    """Each of the four statuses is recorded and answered with the seven fields of spec §4."""
    answer = acme.log(bot, "mail.send", status, context={"to": "x"})
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "application/json"
    entry = answer.json()
    assert set(entry) == ANSWER
    assert UUID7.fullmatch(entry["id"])
    assert MOMENT.fullmatch(entry["created_at"])
    assert (entry["agent_id"], entry["action"], entry["status"]) == (bot, "mail.send", status)
    assert (entry["organization_id"], entry["context"]) == (acme.user["organization_id"], {"to": "x"})
    [listed] = acme.entries(agent_id=bot)
    assert {name: listed[name] for name in ANSWER} == entry


@pytest.mark.parametrize("context", [None, {}, {"a": [1, {"b": None}], "é": "\n\t\"'"}])
def test_the_context_comes_back_as_it_went_in(acme: Owner, bot: str, context: object) -> None:
    """Absent is null, empty is empty, nested is nested: in the answer and in the listing."""
    assert acme.log(bot, "a", context=context).json()["context"] == context
    assert acme.entries(agent_id=bot)[0]["context"] == context


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("100.10", "100.1"),
        ("9007199254740993", "9007199254740993"),
        ("0.1", "0.1"),
        ("1e2", "100"),
        ("-0.0", "0"),
        ("1e400", "1" + "0" * 400),
        ("-1e-400", "-0." + "0" * 399 + "1"),
        ("9" * 400, "9" * 400),
        ("0." + "9" * 399, "0." + "9" * 399),
    ],
)
def test_numbers_are_kept_digit_by_digit(acme: Owner, bot: str, given: str, shown: str) -> None:
    """No number of a context is rounded, and the longest that is accepted can be read again (decisions §2)."""
    body = f'{{"agent_id": "{bot}", "action": "a", "status": "success", "context": {{"n": {given}}}}}'
    answer = acme.http.post("/sdk/log", content=body, headers={"X-API-Key": acme.key})
    assert f'"context":{{"n":{shown}}}' in answer.text
    assert f'"context":{{"n":{shown}}}' in acme.http.get("/api/logs", params={"agent_id": bot}).text


def test_the_optional_fields_are_kept(acme: Owner, bot: str) -> None:
    """What decisions §6 adds is stored and listed."""
    extra = {"decision_id": "d", "approval_id": "a", "call_id": "c", "run_id": "r"}
    acme.log(bot, "a", occurred_at="2026-01-31T12:00:00+02:00", **extra)
    [entry] = acme.entries(agent_id=bot)
    assert {name: entry[name] for name in extra} == extra
    assert entry["occurred_at"] == "2026-01-31T10:00:00.000000Z"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000000Z"),
        ("2026-01-31T12:00:00.123456789Z", "2026-01-31T12:00:00.123456Z"),
        ("2026-01-31T12:00:00", "2026-01-31T12:00:00.000000Z"),
        ("2026-01-31", "2026-01-31T00:00:00.000000Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000000Z"),
        ("0999-12-31T23:59:59Z", "0999-12-31T23:59:59.000000Z"),
        ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"),
    ],
)
def test_when_it_happened_is_any_moment(acme: Owner, bot: str, given: str, shown: str) -> None:
    """`occurred_at` is an ISO 8601 moment, UTC where it says no offset, and can be read again."""
    assert acme.log(bot, "a", occurred_at=given).status_code == 200
    assert acme.entries(agent_id=bot)[0]["occurred_at"] == shown


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("2001:DB8:0:0::1", "2001:DB8:0:0::1"),
        ("::ffff:203.0.113.7", "::ffff:203.0.113.7"),
        (None, "127.0.0.1"),
    ],
)
def test_the_address_is_the_callers_or_the_peers(
    acme: Owner, bot: str, given: str | None, shown: str
) -> None:
    """`ip_address` is the caller's if given, otherwise the address of the connection (decisions §6)."""
    acme.log(bot, "a", ip_address=given)
    assert acme.entries(agent_id=bot)[0]["ip_address"] == shown


def test_the_address_seen_is_stored_as_well(gateway: LiveGateway, acme: Owner, bot: str) -> None:
    """What the caller says does not hide where the request came from, nor which key it used (decisions §6)."""
    acme.log(bot, "a", ip_address="203.0.113.7")
    query = (
        "SELECT e.address_seen, k.last_four FROM log_entries e JOIN api_keys k ON k.id = e.key_id "
        "WHERE e.agent_id = ?"
    )
    assert rows(gateway, query, bot) == [("127.0.0.1", acme.key[-4:])]


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP"])
def test_a_forwarded_address_is_not_believed(acme: Owner, bot: str, header: str) -> None:
    """No proxy is configured, so that nobody may say whence a request came (decisions §6)."""
    headers = {"X-API-Key": acme.key, header: "203.0.113.9"}
    body = {"agent_id": bot, "action": "a", "status": "success"}
    assert acme.http.post("/sdk/log", json=body, headers=headers).status_code == 200
    assert acme.entries(agent_id=bot)[0]["ip_address"] == "127.0.0.1"


def test_unknown_foreign_and_deleted_agents_are_not_found(acme: Owner, rival: Owner, bot: str) -> None:
    """Logging for an agent that does not exist, or not here, is 404 and stores nothing (spec §7)."""
    foreign = rival.agent()
    acme.http.delete(f"/api/agents/{bot}")
    for agent in (UNKNOWN, "x", foreign, bot):
        refused(acme.log(agent, "a"), 404, "Agent not found")
        refused(with_key(acme, agent), 404, "Agent not found")
    assert rival.entries(agent_id=foreign) == []
    assert acme.entries(agent_id=bot) == []


def with_key(owner: Owner, agent: str) -> httpx.Response:
    body = {"agent_id": agent, "action": "a", "status": "success"}
    headers = {"X-API-Key": owner.key, "Idempotency-Key": "not found"}
    return owner.http.post("/sdk/log", json=body, headers=headers)


def test_an_inactive_agent_can_be_logged_for(acme: Owner, bot: str) -> None:
    """What happened before the switch is still recorded, and so is the denial after it (decisions §6)."""
    acme.http.put(f"/api/agents/{bot}", json={"status": "inactive"})
    assert acme.log(bot, "a", "denied").status_code == 200


def test_any_action_can_be_logged(acme: Owner, bot: str) -> None:
    """A log entry needs no permission: it says what was done or tried."""
    assert acme.log(bot, "never.granted", "denied").status_code == 200


def test_an_entry_keeps_the_status_it_was_given(acme: Owner, bot: str) -> None:
    """A status is what the caller said: no operation and no later entry changes it (spec §3)."""
    entry = acme.log(bot, "a", "pending").json()["id"]
    for method in ("PUT", "PATCH", "POST", "DELETE"):
        for path in (f"/api/logs/{entry}", f"/sdk/log/{entry}", "/api/logs"):
            answer = acme.http.request(method, path, json={"id": entry, "status": "success"})
            assert answer.status_code in {404, 405}
    acme.log(bot, "a", "success")
    assert [one["status"] for one in acme.entries(agent_id=bot)] == ["success", "pending"]
    assert acme.entries(agent_id=bot)[1]["id"] == entry
