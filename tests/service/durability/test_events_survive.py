"""SIGKILL at any moment: every event of an acknowledged change arrives, and none of a change that never was."""

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from support.crowd import together
from support.gateway import LiveGateway, Owner
from support.hooked import Hook
from support.receiver import Answer, Receiver
from support.standard_webhooks import is_signed
from support.waiting import until
from support.wire import GONE, Wire

ENV = {"TOOLGATE_WEBHOOKS_ALLOW_PRIVATE": "true", "TOOLGATE_WEBHOOK_POLL_SECONDS": "0.05"}
CLIENTS = 3
ROUNDS = 3
MORE = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12)]

Killed = Callable[[], object]


def _change_until_killed(owner: Owner, client: int, turn: int, agent: str, heard: Killed) -> list[str]:
    """Create agents and log entries until nobody answers; return the names of those acknowledged."""
    acknowledged: list[str] = []
    with Wire.of(owner) as wire:
        for number in range(10_000):
            name = f"{turn}-{client}-{number}"
            try:
                if number % 2:
                    assert wire.send("POST", "/api/agents", {"name": name}).status == 201
                else:
                    assert wire.log(agent, name).status == 200
            except GONE:
                return acknowledged
            acknowledged.append(name)
            heard()
    raise AssertionError("the gateway was never killed")


# The kills amid approvals hold the same in every run.
@pytest.mark.parametrize("seed", [pytest.param(1, marks=pytest.mark.slow), *MORE])
def test_events_arrive_whenever_the_gateway_is_killed(seed: int, tmp_path: Path) -> None:
    """At least once, under one id each, validly signed; nothing is told that is not in the database."""
    moments = random.Random(seed)
    with (
        Receiver(default=Answer(204)) as receiver,
        LiveGateway(tmp_path, env=ENV) as gateway,
        Owner(gateway.url) as owner,
    ):
        agent = owner.agent()
        hook = Hook(owner, receiver, "agent.created", "log.created")
        acknowledged: set[str] = set()
        for turn in range(ROUNDS):
            process, left = gateway.process, [moments.randint(5, 80)]
            assert process is not None

            def heard(left: list[int] = left, kill: Killed = process.kill) -> None:
                left[0] -= 1
                if left[0] == 0:
                    kill()

            works = [
                lambda client=client, turn=turn, heard=heard: _change_until_killed(
                    owner, client, turn, agent, heard
                )
                for client in range(CLIENTS)
            ]
            for names in together(*works):
                acknowledged.update(names)
            gateway.kill()
            gateway.start()
        until(lambda: not hook.deliveries(status="pending"), seconds=90)
        stored = {one["name"] for one in owner.http.get("/api/agents").json()} | {
            entry["action"] for entry in _whole_log(owner)
        }
        _judge(receiver, hook, acknowledged, stored)


def _whole_log(owner: Owner) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    answer = owner.http.get("/api/logs", params={"limit": 100})
    while True:
        found += answer.json()
        if "next" not in answer.links:
            return found
        answer = owner.http.get(answer.links["next"]["url"])


def _judge(receiver: Receiver, hook: Hook, acknowledged: set[str], stored: set[str]) -> None:
    ids: defaultdict[str, set[str]] = defaultdict(set)
    bodies: defaultdict[str, set[bytes]] = defaultdict(set)
    for got in receiver.got:
        assert is_signed(hook.secret, got.headers, got.body)
        data = got.event["data"]
        name = data["agent"]["name"] if "agent" in data else data["log"]["action"]
        ids[name].add(got.id)
        bodies[got.id].add(got.body)
    assert acknowledged
    assert acknowledged <= ids.keys(), "an event was lost"
    assert ids.keys() <= stored, "something was told that never was"
    assert ids.keys() >= stored - {"bot"}, "a change was stored without its event"
    assert Counter(map(len, ids.values())).keys() == {1}, "one change has one event"
    assert Counter(map(len, bodies.values())).keys() == {1}, "an event is the same each time"
