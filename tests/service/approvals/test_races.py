"""Many at once about one approval, at one gateway and at two: whoever comes first, nothing happens twice (decisions §5).

Every other round all of them ask the same gateway. Races of anything against anything are in
`tests/service/durability/test_races.py`.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.crowd import meanwhile, send_until_decided, together
from support.databases import finished
from support.gateway import LiveGateway, Owner
from support.insight import execute, move_into, rows
from support.people import ACTION, Board
from support.wire import Heard, Wire

from toolgate_service.approvals.service import expire_approvals
from toolgate_service.core.clock import utcnow, wire
from toolgate_service.db.database import open_database

ROUNDS = pytest.mark.parametrize("rounds", [3, pytest.param(200, marks=pytest.mark.slow)])
CROWD = 50


class Arena:
    """Two gateways on one database, and an organization's admins.

    Attributes:
        gateways: both of them.
        people: the admins.
        number: which round it is.
    """

    def __init__(self, gateways: Sequence[LiveGateway], people: Sequence[Owner]) -> None:
        self.gateways = gateways
        self.people = people
        self.number = 0

    def board(self, **permission: object) -> Board:
        """Begin another round with a new agent."""
        self.number += 1
        agent = self.people[0].agent()
        return Board(
            self.people, agent, self.people[0].permit(agent, ACTION, requires_approval=True, **permission)
        )

    def url(self, turn: int) -> str:
        """Return where somebody asks: in every other round all ask the same gateway."""
        return self.gateways[turn % 2 if self.number % 2 else 0].url

    def check(self, board: Board, turn: int, context: object = None, **fields: object) -> Heard:
        """Check as one of a crowd."""
        body = {"agent_id": board.agent, "action": ACTION, "context": context, **fields}
        return self.send(0, turn, "/sdk/check", body)

    def send(self, person: int, turn: int, path: str, body: object = None) -> Heard:
        """Send a POST as one of the people."""
        with Wire.of(self.people[person], self.url(turn)) as connection:
            heard = send_until_decided(lambda: connection.send("POST", path, body))
        assert heard.status < 500, heard.raw
        return heard


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """Two gateways, started at the same moment on one database, and three admins."""
    folder: Path = tmp_path_factory.mktemp("arena")
    env = {"TOOLGATE_MANAGEMENT_REQUESTS_PER_MINUTE": "1000000"}
    gateways = [LiveGateway(folder, env=env), LiveGateway(folder, env=env)]
    with ExitStack() as stack:
        for gateway in gateways:
            stack.callback(gateway.stop)
        together(*(gateway.start for gateway in gateways))
        people = [stack.enter_context(Owner(gateways[0].url)) for _ in range(3)]
        for other in people[1:]:
            move_into(gateways[0], other, people[0])
        yield Arena(gateways, people)


def allowed(heard: Sequence[Heard]) -> list[Heard]:
    return [one for one in heard if one.json()["allowed"]]


@ROUNDS
def test_of_fifty_equal_checks_one_passes(arena: Arena, rounds: int) -> None:
    """After one approval exactly one passes, with the decision that the approval keeps; the others wait as one."""
    for number in range(rounds):
        board = arena.board()
        context = {"n": number}
        approval = board.ask(context)
        board.approved(approval)
        heard = together(*(partial(arena.check, board, turn, context) for turn in range(CROWD)))
        [passed] = allowed(heard)
        [(state, decision)] = rows(
            arena.gateways[0], "SELECT status, decision_id FROM approvals WHERE id = ?", approval
        )
        assert (state, decision) == ("consumed", passed.headers["X-Decision-ID"])
        held = Counter(one.json()["approval_id"] for one in heard if one is not passed)
        assert list(held.values()) == [CROWD - 1], held
        assert approval not in held


@ROUNDS
def test_of_fifty_checks_a_grant_lets_as_many_through_as_it_counts(arena: Arena, rounds: int) -> None:
    """As many pass as there are uses, each on record with its own decision; the others are held."""
    chance = random.Random(rounds)
    for _ in range(rounds):
        board, uses = arena.board(), chance.randint(1, 9)
        first = board.ask({"order": 0, "to": "ann"})
        board.approved(first, grant={"uses": uses, "seconds": 600, "except_fields": ["order"]})
        contexts = [{"order": chance.randint(1, 12), "to": "ann"} for _ in range(CROWD)]
        heard = together(
            *(partial(arena.check, board, turn, context) for turn, context in enumerate(contexts))
        )
        decisions = {one.headers["X-Decision-ID"] for one in allowed(heard)}
        assert (len(allowed(heard)), len(decisions)) == (uses, uses)
        [grant] = board.grants(agent_id=board.agent)
        assert (grant["uses_left"], grant["status"]) == (0, "exhausted")
        query = "SELECT decision_id FROM approvals WHERE grant_id = ? AND status = 'consumed'"
        assert {decision for (decision,) in rows(arena.gateways[0], query, grant["id"])} == decisions


@ROUNDS
def test_of_two_votes_at_once_the_second_approves(arena: Arena, rounds: int) -> None:
    """Two of two approve while it is asked for: both count, one of them as the last, and one check passes at most."""
    for _ in range(rounds):
        board = arena.board(required_approvals=2)
        approval = board.ask()
        path = f"/api/approvals/{approval}/approve"
        works: list[Callable[[], Heard]] = [
            partial(arena.check, board, turn, approval_id=approval) for turn in range(4)
        ]
        works[1:1] = [partial(arena.send, 0, 0, path)]
        works[3:3] = [partial(arena.send, 1, 1, path)]
        heard = together(*works)
        votes = [heard[1], heard[3]]
        assert sorted((one.status, one.json()["status"]) for one in votes) == [
            (200, "approved"),
            (200, "pending"),
        ]
        passed = allowed([one for one in heard if one not in votes])
        assert len(passed) <= 1
        assert board.allowed() == (not passed)
        assert board.shown(approval)["status"] == "consumed"
        assert len(board.shown(approval)["votes"]) == 2


@ROUNDS
def test_one_person_at_once_is_one_vote(arena: Arena, rounds: int) -> None:
    """The same user's approvals at both gateways are one vote, and let nothing through."""
    for _ in range(rounds):
        board = arena.board(required_approvals=2)
        approval = board.ask()
        works = [partial(arena.send, 0, turn, f"/api/approvals/{approval}/approve") for turn in range(4)]
        assert Counter(one.status for one in together(*works)) == {200: 1, 409: 3}
        assert board.shown(approval)["status"] == "pending"
        assert not board.allowed()


@ROUNDS
def test_of_two_edits_at_once_one_wins(arena: Arena, rounds: int) -> None:
    """One takes the place of what was asked, the other is a conflict and leaves nothing behind."""
    for _ in range(rounds):
        board = arena.board()
        approval = board.ask({"amount": 9})
        path = f"/api/approvals/{approval}/approve"
        heard = together(*(partial(arena.send, by, by, path, {"context": {"amount": by}}) for by in range(2)))
        assert sorted(one.status for one in heard) == [200, 409]
        query = "SELECT id, status FROM approvals WHERE replaces = ?"
        [(successor, state)] = rows(arena.gateways[0], query, approval)
        assert (state, board.shown(approval)["replaced_by"]) == ("approved", successor)
        context = board.shown(successor)["context"]
        checks = [partial(arena.check, board, turn, context, approval_id=successor) for turn in range(6)]
        assert len(allowed(together(*checks))) == 1


@ROUNDS
@pytest.mark.parametrize("how", ["cancel", "revoke", "permission", "agent"])
def test_what_is_taken_away_is_used_or_taken(arena: Arena, rounds: int, how: str) -> None:
    """Used before it was taken away, or taken away and never used: the state and every answer say the same."""
    for _ in range(rounds):
        board = arena.board()
        terms: dict[str, Any] = {"grant": {"uses": 1, "seconds": 600, "except_fields": ["order"]}}
        # What waits is approved by the grant.
        approval = board.ask({"order": 2})
        board.approved(board.ask({"order": 1}), **terms if how == "revoke" else {"context": {"order": 3}})
        if how != "revoke":
            board.approved(approval)
        works = [partial(arena.check, board, turn, {"order": 2}, approval_id=approval) for turn in range(5)]
        works[3:3] = [_taking_away(arena, board, approval, how)]
        heard = together(*works)
        taken = heard.pop(3)
        state = board.shown(approval)["status"]
        assert state == ("consumed" if allowed(heard) else "cancelled")
        assert len(allowed(heard)) <= 1
        if how in {"cancel", "revoke"}:
            assert taken.status == (409 if state == "consumed" else 200), taken.raw
        assert not board.allowed({"order": 2}, approval_id=approval)


def _taking_away(arena: Arena, board: Board, approval: str, how: str) -> Callable[[], Heard]:
    match how:
        case "cancel":
            return partial(arena.send, 0, 1, f"/sdk/approvals/{approval}/cancel")
        case "revoke":
            [grant] = board.grants(agent_id=board.agent)
            return partial(arena.send, 1, 1, f"/api/grants/{grant['id']}/revoke")

    def delete() -> Heard:
        with Wire.of(arena.people[0], arena.url(1)) as connection:
            path = f"permissions/{board.permission}" if how == "permission" else f"agents/{board.agent}"
            return connection.send("DELETE", f"/api/{path}")

    return delete


# As many as it takes to come near to where both come together, on a machine that is busy as well.
@pytest.mark.parametrize("rounds", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_what_runs_out_is_approved_in_time_or_has_expired(arena: Arena, rounds: int) -> None:
    """Approved while the job marks what has run out: one of both, told once, and it passes only if it was approved."""
    ended, ahead = Counter[str](), timedelta(milliseconds=20)
    with meanwhile([partial(_expire_all_the_time, arena.gateways[0].database_url)]):
        for _ in range(rounds):
            board = arena.board()
            approval = board.ask()
            until = wire(utcnow() + ahead)
            execute(arena.gateways[0], "UPDATE approvals SET expires_at = ? WHERE id = ?", until, approval)
            answer = arena.send(0, 1, f"/api/approvals/{approval}/approve")
            state = "approved" if answer.status == 200 else "expired"
            assert board.shown(approval)["status"] == state, answer.raw
            assert board.allowed(approval_id=approval) == (state == "approved")
            ended[state] += 1
            # Nearer to where both come together.
            ahead = ahead * 0.7 if state == "approved" else ahead * 1.5
    assert min(ended["approved"], ended["expired"]) >= rounds / 10, ended


def _expire_all_the_time(url: str, enough: threading.Event) -> None:
    async def expire() -> None:
        database = open_database(url)
        await database.start()
        try:
            while not enough.is_set():
                await expire_approvals(database, 100)
        finally:
            await database.close()

    finished(expire())
