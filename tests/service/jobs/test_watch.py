"""What the clock does to requests for approval: people are reminded once, then they run out, and each is told of."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest
from support.gateway import LiveGateway
from support.insight import execute, rows
from support.people import Board, board
from support.waiting import until

from toolgate_service.approvals.service import expire_approvals, remind
from toolgate_service.core.clock import from_wire, utcnow, wire
from toolgate_service.core.ids import new_id
from toolgate_service.db.database import Database, open_database


@pytest.fixture(scope="module")
def resting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway that looks after its approvals once an hour: the tests do."""
    env = {"TOOLGATE_APPROVAL_WATCH_SECONDS": "3600"}
    with LiveGateway(tmp_path_factory.mktemp("resting"), env=env) as found:
        yield found


@pytest.fixture
def told(resting: LiveGateway) -> Iterator[Board]:
    """An organization with a webhook that wants to know everything, and switched off deliveries."""
    with board(resting, 1) as found:
        subscribe(resting, found)
        yield found


@pytest.fixture
async def databases(resting: LiveGateway) -> AsyncIterator[list[Database]]:
    """The database as three gateways see it."""
    opened = [open_database(resting.database_url) for _ in range(3)]
    for database in opened:
        await database.start()
    # What another test left behind is none of this one's.
    await expire_approvals(opened[0], 100)
    await remind(opened[0], 100)
    yield opened
    for database in opened:
        await database.close()


def subscribe(gateway: LiveGateway, found: Board) -> None:
    user = found.people[0].user
    statement = (
        "INSERT INTO webhooks (id, organization_id, environment, kind, url, include_context, is_active, created_by, "
        "created_at) VALUES (?, ?, 'production', 'standard', 'https://receiver.invalid/', ?, ?, ?, ?)"
    )
    values = (new_id(), user["organization_id"], False, True, user["id"], wire(utcnow()))
    execute(gateway, statement, *values)


def events(gateway: LiveGateway, found: Board, approval: str) -> list[str]:
    query = "SELECT kind, payload FROM events WHERE organization_id = ? ORDER BY created_at, id"
    organization = found.people[0].user["organization_id"]
    return [kind for kind, payload in rows(gateway, query, organization) if approval in payload]


def move(gateway: LiveGateway, approval: str, column: str, seconds: float) -> None:
    moment = wire(utcnow() + timedelta(seconds=seconds))
    assert execute(gateway, f"UPDATE approvals SET {column} = ? WHERE id = ?", moment, approval) == 1


async def test_people_are_reminded_once(resting: LiveGateway, told: Board, databases: list[Database]) -> None:
    """A request that will soon run out is told of once, whoever looks, however often, also three at the same time."""
    approval = told.ask()
    assert await remind(databases[0], 10) == 0
    move(resting, approval, "remind_at", -1)
    reminded = await asyncio.gather(*(remind(database, 10) for database in databases))
    assert sorted(reminded) == [0, 0, 1]
    assert await remind(databases[0], 10) == 0
    assert events(resting, told, approval) == ["approval.requested", "approval.reminder"]
    assert told.shown(approval)["status"] == "pending"


@pytest.mark.parametrize("how", ["approve", "deny", "cancel", "expire"])
async def test_nobody_is_reminded_of_what_is_no_longer_pending(
    resting: LiveGateway, told: Board, databases: list[Database], how: str
) -> None:
    """A request that was decided, withdrawn or has run out is not told of again."""
    approval = told.ask()
    match how:
        case "approve":
            told.approved(approval)
        case "deny":
            told.deny(approval)
        case "cancel":
            owner = told.people[0]
            path = f"/sdk/approvals/{approval}/cancel"
            assert owner.http.post(path, headers={"X-API-Key": owner.key}).status_code == 200
        case _:
            move(resting, approval, "remind_at", -2)
            move(resting, approval, "expires_at", -1)
    assert await remind(databases[0], 10) == 0
    assert "approval.reminder" not in events(resting, told, approval)


@pytest.mark.parametrize("state", ["pending", "approved"])
async def test_what_ran_out_is_told_of_once(
    resting: LiveGateway, told: Board, databases: list[Database], state: str
) -> None:
    """Past its time a request is written down as expired, by exactly one of three that look."""
    approval = told.ask()
    if state == "approved":
        told.approved(approval)
    assert await expire_approvals(databases[0], 10) == 0
    move(resting, approval, "expires_at", -1)
    expired = await asyncio.gather(*(expire_approvals(database, 10) for database in databases))
    assert sorted(expired) == [0, 0, 1]
    assert Counter(events(resting, told, approval))["approval.expired"] == 1
    assert rows(resting, "SELECT status FROM approvals WHERE id = ?", approval) == [("expired",)]


async def test_an_equal_check_that_comes_first_tells_of_it(
    resting: LiveGateway, told: Board, databases: list[Database]
) -> None:
    """A check that is held anew writes down that the earlier request ran out; nobody does so again."""
    approval = told.ask()
    move(resting, approval, "expires_at", -1)
    assert told.ask() != approval
    assert events(resting, told, approval) == ["approval.requested", "approval.expired"]
    assert await expire_approvals(databases[0], 10) == 0


async def test_many_run_out_in_batches(resting: LiveGateway, told: Board, databases: list[Database]) -> None:
    """More than fit into one transaction all run out, each told of once."""
    approvals = [told.ask({"n": number}) for number in range(25)]
    for approval in approvals:
        move(resting, approval, "expires_at", -1)
    assert await expire_approvals(databases[0], 10) == 25
    assert all(events(resting, told, one)[-1] == "approval.expired" for one in approvals)


@pytest.mark.parametrize(("waits", "ahead"), [(24 * 3600, 3600), (7200, 1800), (60, 15)])
def test_when_people_are_reminded(resting: LiveGateway, told: Board, waits: int, ahead: int) -> None:
    """An hour before the end, or in the last quarter of a shorter life."""
    told.change(approval_ttl_seconds=waits)
    approval = told.ask()
    [(remind_at,)] = rows(resting, "SELECT remind_at FROM approvals WHERE id = ?", approval)
    moment = from_wire(remind_at) if isinstance(remind_at, str) else remind_at
    assert from_wire(told.shown(approval)["expires_at"]) - moment == timedelta(seconds=ahead)


def test_a_gateway_looks_after_them_by_itself(gateway: LiveGateway) -> None:
    """A request that has run out is written down as expired without anybody asking."""
    with board(gateway, 1) as found:
        approval = found.ask()
        move(gateway, approval, "expires_at", -1)
        until(lambda: rows(gateway, "SELECT status FROM approvals WHERE id = ?", approval) == [("expired",)])
