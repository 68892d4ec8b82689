"""Requests that race for one approval, and whether what came of them could have come of some order of them.

Every request takes effect at one moment between its beginning and its end: if no order of the requests explains all
answers, two of them have seen each other half done.
"""

import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

from support.gateway import Owner
from support.reference.checking import Question, check, keep_answer
from support.reference.deciding import approve, deny, refusal
from support.reference.facts import Agent, Approval, Permission, Tenant
from support.reference.world import World
from support.wire import Heard, Wire

ACTION = "db.drop"
NOW = datetime.now(UTC)
PERSON = "the admin"

#: what somebody does: its name, and the check that it is, if it is one
Deed: TypeAlias = tuple[str, Question | None]


@dataclass(frozen=True, slots=True)
class Happened:
    """A request that was answered.

    Attributes:
        deed: what was done.
        seen: what the answer says.
        began: when the request was sent.
        ended: when its answer was there.
    """

    deed: Deed
    seen: Any
    began: float
    ended: float


class Race:
    """An agent whose `db.drop` waits for a person, at the gateway and in the reference."""

    def __init__(self, owner: Owner, *, approved: bool) -> None:
        self.owner = owner
        self.tenant = Tenant(owner.user["organization_id"], "production")
        agent = Agent(owner.agent(), self.tenant, "bot", None)
        permission = Permission(
            owner.permit(agent.id, ACTION, requires_approval=True), ACTION, True, None, False
        )
        agent.permissions[ACTION] = permission
        self.agent, self.permission = agent, permission
        self.question = Question(agent.id, ACTION)
        self.approval_id: str = owner.check(agent.id, ACTION).json()["approval_id"]
        self.world = World(agents=[agent])
        check(self.world, self.tenant, self.question, NOW)
        [self.approval] = self.world.approvals
        self.approval.id = self.approval_id
        if approved:
            assert owner.http.post(f"/api/approvals/{self.approval_id}/approve").status_code == 200
            approve(self.world, self.approval, PERSON, None, NOW)

    def deeds(self) -> list[Deed]:
        """Return what may be done."""
        asking = [
            self.question,
            self.question,
            replace(self.question, approval_id=self.approval_id),
            replace(self.question, idempotency_key="attempt"),
            replace(self.question, call_id="call"),
            replace(self.question, approval_id=self.approval_id, call_id="call"),
        ]
        others = ["approve", "approve", "deny", "cancel", "off", "on", "unpermit", "delete", "read", "read"]
        return [("ask", question) for question in asking] + [(name, None) for name in others]

    def do(self, deed: Deed, url: str) -> Happened:
        """Do something at one of the gateways."""
        with Wire.of(self.owner, url) as wire:
            began = time.monotonic()
            heard = self._send(wire, deed)
            ended = time.monotonic()
        assert heard.status < 500, heard.raw
        assert heard.status != 429, "the rate limit rejected a request of the race"
        return Happened(deed, _seen(deed, heard), began, ended)

    def _send(self, wire: Wire, deed: Deed) -> Heard:
        name, question = deed
        if question is not None:
            key = {"Idempotency-Key": question.idempotency_key} if question.idempotency_key else {}
            return wire.send_raw("POST", "/sdk/check", question.body, key)
        method, path, body = {
            "approve": ("POST", f"/api/approvals/{self.approval_id}/approve", None),
            "deny": ("POST", f"/api/approvals/{self.approval_id}/deny", None),
            "cancel": ("POST", f"/sdk/approvals/{self.approval_id}/cancel", None),
            "read": ("GET", f"/sdk/approvals/{self.approval_id}", None),
            "off": ("PUT", f"/api/agents/{self.agent.id}", {"status": "inactive"}),
            "on": ("PUT", f"/api/agents/{self.agent.id}", {"status": "active"}),
            "unpermit": ("DELETE", f"/api/permissions/{self.permission.id}", None),
            "delete": ("DELETE", f"/api/agents/{self.agent.id}", None),
            "list": ("GET", f"/api/approvals?agent_id={self.agent.id}", None),
        }[name]
        return wire.send(method, path, body)


def _seen(deed: Deed, heard: Heard) -> Any:
    """Return what an answer says, without what no order decides."""
    match deed[0]:
        case "ask":
            told = heard.json()
            decision_id = heard.headers["X-Decision-ID"] if told["allowed"] else None
            return (
                told["allowed"],
                told["requires_approval"],
                told["approval_id"],
                told["reason"],
                decision_id,
            )
        case "read":
            return heard.json()["status"]
        case "list":
            return {one["id"]: one["status"] for one in heard.json()}
    return heard.status


def explained(race: Race, history: Sequence[Happened]) -> bool:
    """Say whether some order explains a history; what ended before another began stands before it."""
    return _explained(race, race.world, list(history))


def _explained(race: Race, world: World, left: list[Happened]) -> bool:
    if not left:
        return True
    first_end = min(one.ended for one in left)
    for one in left:
        if one.began > first_end:
            continue
        after = deepcopy(world)
        if _fits(race, after, one) and _explained(race, after, [other for other in left if other is not one]):
            return True
    return False


def _fits(race: Race, world: World, one: Happened) -> bool:
    """Say whether a world gives an answer, and change it accordingly."""
    name, question = one.deed
    if question is not None:
        return _fits_check(race, world, question, one.seen)
    agent, approval = world.agents[0], world.approvals[0]
    expected: Callable[[], Any] = {
        "approve": lambda: _approve(world, approval),
        "deny": lambda: deny(world, approval, PERSON, None, NOW) or 200,
        "cancel": lambda: 200 if world.withdraw(approval, NOW) else 409,
        "read": lambda: approval.state(NOW),
        "off": lambda: _switch(world, agent, active=False),
        "on": lambda: _switch(world, agent, active=True),
        "unpermit": lambda: _unpermit(world, agent),
        "delete": lambda: _delete(world, agent),
        "list": lambda: {every.id: every.state(NOW) for every in world.approvals},
    }[name]
    return bool(expected() == one.seen)


def _fits_check(race: Race, world: World, question: Question, seen: Any) -> bool:
    allowed, held, approval_id, reason, decision_id = seen
    outcome = check(world, race.tenant, question, NOW)
    if (outcome.kind == "allowed", outcome.kind == "held") != (allowed, held):
        return False
    if outcome.why and outcome.why not in reason.lower():
        return False
    if outcome.used is not None:
        keep_answer(world, race.tenant, question, outcome, decision_id, NOW)
    if outcome.approval is not None and not outcome.approval.id:
        if _known(world.approvals, approval_id):
            return False
        outcome.approval.id = approval_id
    expected_id = outcome.approval.id if outcome.approval else None
    return approval_id == expected_id and outcome.decision_id in {None, decision_id}


def _known(approvals: Sequence[Approval], approval_id: str) -> bool:
    return any(one.id == approval_id for one in approvals)


def _approve(world: World, approval: Approval) -> int:
    refused = refusal(world, approval, PERSON, NOW)
    if refused is None:
        approve(world, approval, PERSON, None, NOW)
    return refused or 200


def _switch(world: World, agent: Agent, *, active: bool) -> int:
    if agent.deleted:
        return 404
    world.switch(agent, active=active, now=NOW)
    return 200


def _unpermit(world: World, agent: Agent) -> int:
    permission = agent.permissions.get(ACTION)
    if permission is None:
        return 404
    world.delete_permission(agent, permission, NOW)
    return 204


def _delete(world: World, agent: Agent) -> int:
    if agent.deleted:
        return 404
    world.delete_agent(agent, NOW)
    return 204
