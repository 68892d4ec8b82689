"""SIGKILL at any moment: what was acknowledged is there, once; what was not may be sent again."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.crowd import together
from support.gateway import LiveGateway, Owner
from support.killing import Executioner
from support.wire import GONE, Wire

CLIENTS = 4
ROUNDS = 5
MORE = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 13)]


@dataclass
class Sent:
    """What the clients of one round sent: the keys acknowledged with their entry's id, and the others."""

    acknowledged: dict[str, str] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)


def _log_until_killed(owner: Owner, agent: str, action: str, client: int, killer: Executioner) -> Sent:
    sent = Sent()
    with Wire.of(owner) as wire:
        for number in range(10_000):
            key = f"{action}-{client}-{number}"
            sent.unknown.add(key)
            try:
                answer = wire.log(agent, action, key=key, key_sent=key)
            except GONE:
                return sent
            assert answer.status == 200, answer.raw
            killer.heard()
            sent.unknown.discard(key)
            sent.acknowledged[key] = answer.json()["id"]
    raise AssertionError("the gateway was never killed")


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), *MORE])
def test_no_acknowledged_entry_is_lost(seed: int, tmp_path: Path) -> None:
    """Killed while four clients log, the gateway has every acknowledged entry once, and retries leave one each."""
    moments = random.Random(seed)
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner:
        agent = owner.agent()
        for turn in range(ROUNDS):
            action = f"round.{turn}"
            killer = Executioner(gateway, moments.randint(1, 150))
            works = [
                _later(_log_until_killed, owner, agent, action, client, killer) for client in range(CLIENTS)
            ]
            sent = together(*works)
            gateway.kill()
            gateway.start()
            acknowledged = {key: entry for one in sent for key, entry in one.acknowledged.items()}
            unknown = {key for one in sent for key in one.unknown}
            assert acknowledged
            assert unknown
            with Wire.of(owner) as wire:
                found = {entry["context"]["key_sent"]: entry["id"] for entry in wire.entries(action)}
                counted = Counter(entry["context"]["key_sent"] for entry in wire.entries(action))
                assert acknowledged.items() <= found.items()
                assert set(counted.values()) == {1}
                assert counted.keys() <= acknowledged.keys() | unknown
                for key in unknown | set(list(acknowledged)[:5]):
                    again = wire.log(agent, action, key=key, key_sent=key)
                    assert again.status == 200
                    assert again.headers.get("Idempotency-Replayed") == ("true" if key in found else None)
                    assert again.json()["id"] == found.get(key, again.json()["id"])
                after = Counter(entry["context"]["key_sent"] for entry in wire.entries(action))
            assert after == dict.fromkeys(acknowledged.keys() | unknown, 1)


def _later(work: Callable[..., Sent], *arguments: object) -> Callable[[], Sent]:
    return lambda: work(*arguments)


@dataclass
class Changed:
    """What one round acknowledged of changes that are no log entries."""

    agents: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    approved: list[int] = field(default_factory=list)
    allowed: list[int] = field(default_factory=list)


def _create_agents(owner: Owner, changed: Changed, killer: Executioner) -> None:
    with Wire.of(owner) as wire:
        for number in range(10_000):
            try:
                answer = wire.send("POST", "/api/agents", {"name": f"made-{number}"})
            except GONE:
                return
            assert answer.status == 201, answer.raw
            killer.heard()
            changed.agents.append(answer.json()["id"])


def _delete_permissions(
    owner: Owner, permissions: dict[str, str], changed: Changed, killer: Executioner
) -> None:
    with Wire.of(owner) as wire:
        for action, permission in permissions.items():
            try:
                answer = wire.send("DELETE", f"/api/permissions/{permission}")
            except GONE:
                return
            assert answer.status == 204, answer.raw
            killer.heard()
            changed.deleted.append(action)


def _approve(owner: Owner, approvals: list[str], changed: Changed, killer: Executioner) -> None:
    with Wire.of(owner) as wire:
        for number, approval in enumerate(approvals):
            try:
                answer = wire.send("POST", f"/api/approvals/{approval}/approve", {})
            except GONE:
                return
            assert answer.status == 200, answer.raw
            killer.heard()
            changed.approved.append(number)


def _consume(owner: Owner, agent: str, action: str, many: int, changed: Changed, killer: Executioner) -> None:
    with Wire.of(owner) as wire:
        for number in range(many):
            try:
                allowed = wire.allowed(agent, action, number=number)
            except GONE:
                return
            assert allowed
            killer.heard()
            changed.allowed.append(number)


MANY = 40


@pytest.mark.parametrize("seed", [1, *MORE])
def test_acknowledged_changes_and_decisions_stay(seed: int, tmp_path: Path) -> None:
    """Killed amid changes, the gateway keeps each acknowledged one: agent, deletion, approval, and one use of it."""
    moments = random.Random(seed)
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner, Wire.of(owner) as wire:
        agent = owner.agent()
        owner.permit(agent, "asked.first", requires_approval=True)
        owner.permit(agent, "used.once", requires_approval=True)
        permissions = {f"taken.{number}": owner.permit(agent, f"taken.{number}") for number in range(MANY)}
        asked = [wire.check(agent, "asked.first", number=n).json()["approval_id"] for n in range(MANY)]
        usable = [wire.check(agent, "used.once", number=n).json()["approval_id"] for n in range(MANY)]
        for approval in usable:
            assert wire.send("POST", f"/api/approvals/{approval}/approve", {}).status == 200

        changed, killer = Changed(), Executioner(gateway, moments.randint(4, 2 * MANY))
        together(
            lambda: _create_agents(owner, changed, killer),
            lambda: _delete_permissions(owner, permissions, changed, killer),
            lambda: _approve(owner, asked, changed, killer),
            lambda: _consume(owner, agent, "used.once", MANY, changed, killer),
        )
        gateway.kill()
        gateway.start()
        with Wire.of(owner) as heir:
            names = {one["id"]: one["name"] for one in heir.send("GET", "/api/agents").json()}
            assert set(changed.agents) <= names.keys()
            assert len(names) <= len(changed.agents) + 2
            for action in changed.deleted:
                assert not heir.allowed(agent, action)
            states = [_state(heir, approval) for approval in asked]
            assert {states[number] for number in changed.approved} <= {"approved"}
            assert states.count("approved") <= len(changed.approved) + 1
            for number in changed.approved:
                uses = [heir.allowed(agent, "asked.first", number=number) for _ in range(2)]
                assert uses == [True, False]
            states = [_state(heir, approval) for approval in usable]
            assert {states[number] for number in changed.allowed} <= {"consumed"}
            assert states.count("consumed") <= len(changed.allowed) + 1
            for number in changed.allowed:
                assert not heir.allowed(agent, "used.once", number=number)


def _state(wire: Wire, approval: str) -> str:
    answer = wire.send("GET", f"/sdk/approvals/{approval}")
    assert answer.status == 200, answer.raw
    state = answer.json()["status"]
    assert isinstance(state, str)
    return state
