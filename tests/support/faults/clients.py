"""Twenty clients: what they do, and what they hold the gateway to while everything fails."""

import random
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from support.faults.ledger import Ledger
from support.gateway import Owner
from support.wire import GONE, Heard, Wire

#: how long a client that was refused, or not answered, waits before it goes on
PAUSE = 0.05
RATE_PAUSE = 0.01
#: what shares one window
COUNTED = ("/sdk/check", "/sdk/log")


@dataclass
class Board:
    """What clients know of each other.

    Attributes:
        approved: calls that a person has approved: the approval and the call's number.
    """

    approved: deque[tuple[str, int]] = field(default_factory=lambda: deque(maxlen=8))


class Client:
    """One of the twenty: a connection that is renewed when it breaks, and a chance of its own."""

    def __init__(self, owner: Owner, ledger: Ledger, number: int, enough: threading.Event) -> None:
        self.owner = owner
        self.ledger = ledger
        self.number = number
        self.chance = random.Random(number)
        self.wire = Wire.of(owner)
        self._enough = enough

    def go_on(self, work: Callable[["Client", int], None]) -> None:
        """Do a piece of work again and again."""
        with self.wire:
            turn = 0
            while not self._enough.is_set():
                turn += 1
                work(self, turn)

    def send(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Heard | None:
        """Send a request once; None for an unknown outcome."""
        try:
            heard = self.wire.send(method, path, body, headers)
        except GONE:
            self.wire.close()
            self.ledger.heard(0)
            self._enough.wait(PAUSE)
            return None
        self.ledger.heard(heard.status)
        window = heard.headers.get("X-RateLimit-Reset")
        if window is not None and path in COUNTED and heard.status not in {429, 503}:
            self.ledger.counted(self.owner.user["organization_id"], window)
        if heard.status >= 500 and heard.status != 503:
            self.ledger.lie(f"{method} {path} was answered with {heard.status}: {heard.raw[:200]!r}")
        if heard.status == 503:
            self._enough.wait(PAUSE)
        return heard

    def insist(self, *sent: object, wanted: frozenset[int]) -> Heard | None:
        """Send a request until one of the statuses comes; None if it is enough before."""
        while not self._enough.is_set():
            heard = self.send(*sent)  # type: ignore[arg-type]  # as `send` takes them
            if heard is not None and heard.status in wanted:
                return heard
        return None

    def check(self, agent: str, action: str, **context: object) -> Heard | None:
        """Ask once."""
        heard = self.send(
            "POST", "/sdk/check", {"agent_id": agent, "action": action, "context": context or None}
        )
        return heard if heard is not None and heard.status == 200 else None


def logging(agent: str) -> Callable[[Client, int], None]:
    """Return the work of writing entries down; most are sent again until they are acknowledged, some never again."""

    def work(client: Client, turn: int) -> None:
        key = f"{client.number}-{turn}"
        body = {"agent_id": agent, "action": "amid.faults", "status": "success", "context": {"key": key}}
        client.ledger.keys.add(key)
        for _ in range(client.chance.choice((1, 5, 5, 5))):
            heard = client.send("POST", "/sdk/log", body, {"Idempotency-Key": key})
            if heard is not None and heard.status == 200:
                client.ledger.acknowledged(key, heard.json()["id"])
                return

    return work


def approving(agent: str, board: Board) -> Callable[[Client, int], None]:
    """Return the work of asking, deciding, and racing with others for what was approved."""

    def race(client: Client, approval_id: str, number: int) -> None:
        heard = client.check(agent, "files.delete", number=number)
        if heard is None:
            return
        told = heard.json()
        if told["allowed"]:
            client.ledger.passed(approval_id, heard.headers["X-Decision-ID"])
        elif told["approval_id"] is not None:
            # Somebody was first: what is asked for anew nobody will decide, and only so many may wait.
            client.send("POST", f"/sdk/approvals/{told['approval_id']}/cancel")

    def work(client: Client, turn: int) -> None:
        number = client.number * 1_000_000 + turn
        heard = client.check(agent, "files.delete", number=number)
        approval_id = None if heard is None else heard.json()["approval_id"]
        if heard is not None and heard.json()["allowed"]:
            client.ledger.lie(f"files.delete {number} passed without an approval")
        if approval_id is None:
            return
        decided = client.insist(
            "POST", f"/api/approvals/{approval_id}/approve", {}, wanted=frozenset((200, 400, 404, 409))
        )
        if decided is not None:
            board.approved.append((approval_id, number))
        for one in list(board.approved):
            race(client, *one)

    return work


def revoking(agent: str) -> Callable[[Client, int], None]:
    """Return the work of granting, using and taking away, again and again."""

    def work(client: Client, turn: int) -> None:
        action = f"granted.once.{client.number}.{turn}"
        granted = client.insist(
            *("POST", f"/api/agents/{agent}/permissions", {"action": action}),
            wanted=frozenset((201, 400, 409)),
        )
        if granted is None or granted.status != 201:
            # Its own first try may have gone through unanswered: what it is called nobody has told.
            return
        client.ledger.granted.add(action)
        client.check(agent, action)
        permission = granted.json()["id"]
        gone = client.insist("DELETE", f"/api/permissions/{permission}", wanted=frozenset((204, 404)))
        if gone is None:
            return
        client.ledger.revoked.append(action)
        for _ in range(4):
            _must_be_refused(client, agent, action)

    return work


def watching(agent: str) -> Callable[[Client, int], None]:
    """Return the work of asking for what was taken away, by others too."""

    def work(client: Client, _turn: int) -> None:
        revoked = client.ledger.revoked
        if revoked:
            _must_be_refused(client, agent, client.chance.choice(revoked[-50:]))

    return work


def _must_be_refused(client: Client, agent: str, action: str) -> None:
    heard = client.check(agent, action)
    if heard is not None:
        client.ledger.checked += 1
        if heard.json()["allowed"]:
            client.ledger.lie(f"{action} was allowed after its revocation was acknowledged")


def hammering(agent: str, pause: threading.Event) -> Callable[[Client, int], None]:
    """Return the work of asking more often than the plan allows."""

    def work(client: Client, _turn: int) -> None:
        client.send("POST", "/sdk/check", {"agent_id": agent, "action": "files.read"})
        pause.wait(RATE_PAUSE)

    return work


def filling(agent: str, pause: threading.Event) -> Callable[[Client, int], None]:
    """Return the work of making more agents, and more entries, than the free plan has."""

    def work(client: Client, turn: int) -> None:
        if turn % 20 == 0:
            made = client.send("POST", "/api/agents", {"name": f"agent {turn}"})
            if made is not None and made.status == 201:
                client.ledger.agents_made += 1
                client.insist("DELETE", f"/api/agents/{made.json()['id']}", wanted=frozenset((204, 404)))
        entry = {"agent_id": agent, "action": "within.the.month", "status": "success"}
        heard = client.send("POST", "/sdk/log", entry)
        if heard is not None and heard.status == 200:
            client.ledger.stored += 1
        pause.wait(RATE_PAUSE)

    return work


@dataclass
class Crowd:
    """The twenty, and whose they are."""

    acme: Owner
    frugal: list[Owner]
    ledger: Ledger
    enough: threading.Event = field(default_factory=threading.Event)

    def works(self) -> list[Callable[[], None]]:
        """Return what each of them does, to be done on a thread of its own."""
        agent, board = self.acme.agent("in the storm"), Board()
        self.acme.permit(agent, "files.delete", requires_approval=True)
        made = [
            *[(self.acme, logging(agent))] * 6,
            *[(self.acme, approving(agent, board))] * 4,
            *[(self.acme, revoking(agent))] * 4,
            *[(self.acme, watching(agent))] * 2,
        ]
        for owner in self.frugal:
            its = owner.agent("frugal")
            owner.permit(its, "files.read")
            made += [(owner, hammering(its, self.enough)), (owner, filling(its, self.enough))]
        return [
            partial(Client(owner, self.ledger, number, self.enough).go_on, work)
            for number, (owner, work) in enumerate(made, 1)
        ]
