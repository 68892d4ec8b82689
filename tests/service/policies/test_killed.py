"""Gateways that are killed while they apply a policy: the environment has the old policy or the new one, never a mixture."""

import random
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.gateway import LiveGateway, Owner
from support.policies import VERSION
from support.wire import GONE

ITEMS = 40
#: number of kills in a long run
LONG = 60


def policy_of(number: int) -> dict[str, Any]:
    """Return a policy that shares no item with that of another number, so that applying it changes everything."""
    agents = [
        {"name": f"agent {number} {one}", "permissions": [{"action": "a.b", "max_amount": number}]}
        for one in range(ITEMS)
    ]
    rules = [
        {"name": f"rule {number} {one}", "effect": "forbid", "actions": [f"x{number}.*"]}
        for one in range(ITEMS)
    ]
    budget = {"name": f"budget {number}", "actions": ["a.b"], "window": "day", "limit": number}
    return {"version": VERSION, "agents": agents, "rules": rules, "budgets": [budget]}


@pytest.mark.parametrize(
    "rounds", [pytest.param(2, id="short"), pytest.param(LONG, marks=pytest.mark.slow, id="long")]
)
def test_killed_apply_leaves_the_old_policy_or_the_new_one(tmp_path: Path, rounds: int) -> None:
    moments = random.Random(1)
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner:
        _apply(owner, rounds + 1)
        # The second apply also deletes items, as those below do.
        seconds, applied = _apply(owner, rounds + 2), 0
        for number in range(1, rounds + 1):
            before = owner.http.get("/api/policy").json()
            body = {"policy": policy_of(number), "base": before["digest"]}
            sending = threading.Thread(target=_send, args=(owner, body))
            sending.start()
            time.sleep(moments.random() * seconds * 1.5)
            gateway.kill()
            sending.join()
            gateway.start()
            applied += _verify(owner, before, number)
        # In a long run, some gateways are killed before the commit and some after it.
        assert rounds < LONG or 0 < applied < rounds
        # Nothing is locked: the next policy is applied.
        _apply(owner, rounds + 3)


def _send(owner: Owner, body: dict[str, Any]) -> None:
    try:
        assert owner.http.post("/api/policy/apply", json=body).status_code == 200
    except (*GONE, httpx.TransportError):
        pass


def _apply(owner: Owner, number: int) -> float:
    base = owner.http.get("/api/policy").json()["digest"]
    began = time.monotonic()
    answer = owner.http.post("/api/policy/apply", json={"policy": policy_of(number), "base": base})
    assert answer.status_code == 200, answer.text
    return time.monotonic() - began


def _verify(owner: Owner, before: dict[str, Any], number: int) -> bool:
    """Verify that the policy is the one before or the new one, with its revision, and return whether it is the new one."""
    state = owner.http.get("/api/policy").json()
    planned = owner.http.post("/api/policy/plan", json={"policy": policy_of(number)}).json()
    is_new = planned["changes"] == []
    assert is_new or state["policy"] == before["policy"]
    [latest] = owner.http.get("/api/policy/revisions", params={"limit": 1}).json()
    assert (latest["number"], latest["digest"]) == (state["revision"], state["digest"])
    assert latest["number"] == before["revision"] + is_new
    return is_new
