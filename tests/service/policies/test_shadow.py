"""Shadow policies: counts and samples of the checks, and that nothing else notices them."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
from support.budgets import create as create_budget
from support.decisions import decision_id
from support.gateway import LiveGateway, Owner
from support.tables import rows
from support.team import Colleague
from support.waiting import until

UNKNOWN = "01890000-0000-7000-8000-000000000000"
UNCHANGED, NEWLY_ALLOWED, NEWLY_HELD, NEWLY_DENIED, NOT_REPLAYABLE = RESULTS = (
    "unchanged", "newly_allowed", "newly_held", "newly_denied", "not_replayable",
)  # fmt: skip


def policy_of(owner: Owner) -> dict[str, Any]:
    """Return the current policy."""
    answer = owner.http.get("/api/policy")
    assert answer.status_code == 200, answer.text
    policy: dict[str, Any] = answer.json()["policy"]
    return policy


def without_permissions(owner: Owner) -> dict[str, Any]:
    """Return the current policy without the permissions of its agents."""
    policy = policy_of(owner)
    for agent in policy["agents"]:
        agent["permissions"] = []
    return policy


def start(owner: Owner, policy: object, message: str = "", **params: str) -> dict[str, Any]:
    answer = owner.http.put("/api/policy/shadow", json={"policy": policy, "message": message}, params=params)
    assert answer.status_code == 200, answer.text
    shadow: dict[str, Any] = answer.json()
    return shadow


def counts(owner: Owner, **params: str) -> dict[str, int]:
    answer = owner.http.get("/api/policy/shadow", params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, int] = answer.json()["counts"]
    return found


def counted(owner: Owner, total: int) -> dict[str, Any]:
    """Wait until the shadow has this number of results, and return it."""

    def find() -> dict[str, Any] | None:
        shadow: dict[str, Any] = owner.http.get("/api/policy/shadow").json()
        return shadow if sum(shadow["counts"].values()) >= total else None

    shadow = until(find)
    assert sum(shadow["counts"].values()) == total
    return shadow


def stored(gateway: LiveGateway, owner: Owner) -> dict[str, int]:
    """Return the counts in the database, for a gateway that has stopped."""
    query = f"SELECT {', '.join(RESULTS)} FROM policy_shadows WHERE organization_id = ?"
    [values] = rows(gateway, query, owner.user["organization_id"])
    return dict(zip(RESULTS, values, strict=True))


class Traffic:
    """Calls of every category under a policy, and the results under `candidate` that they must have."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.agent, self.disabled = owner.agent("bot"), owner.agent("disabled")
        owner.http.put(f"/api/agents/{self.disabled}", json={"status": "inactive"})
        for action in ("free.same", "free.held", "free.denied"):
            owner.permit(self.agent, action)
        for action in ("held.same", "held.free", "held.denied"):
            owner.permit(self.agent, action, requires_approval=True)
        owner.permit(self.agent, "limited", max_amount=50)
        owner.permit(self.agent, "counted")
        create_budget(owner, actions=["counted"], limit=2)
        owner.http.post("/api/freeze", json={"action": "frozen.*", "reason": "x"})
        self.expected: Counter[str] = Counter()
        self.samples: dict[str, str] = {}
        self.answers: list[httpx.Response] = []
        self._number = 0

    def candidate(self) -> dict[str, Any]:
        policy = policy_of(self.owner)
        [bot] = (agent for agent in policy["agents"] if agent["name"] == "bot")
        [disabled] = (agent for agent in policy["agents"] if agent["name"] == "disabled")
        disabled |= {"enabled": True, "permissions": [{"action": "free.same"}]}
        permissions = {one["action"]: one for one in bot["permissions"]}
        del permissions["free.denied"], permissions["held.denied"]
        permissions["held.free"]["requires_approval"] = False
        permissions["limited"]["max_amount"] = 80
        bot["permissions"] = [*permissions.values(), {"action": "new.free"}]
        policy["rules"] = [
            {"name": "hold", "effect": "require_approval", "actions": ["free.held", "new.held"],
             "when": "args.n >= 0"},
        ]  # fmt: skip
        policy["budgets"][0]["limit"] = 5
        return policy

    def check(self, expected: str, code: str, action: str, **context: object) -> httpx.Response:
        """Check a call of the agent that must have this result under the candidate."""
        return self._check(expected, code, self.agent, action, context)

    def _check(
        self, expected: str, code: str, agent: str, action: str, context: dict[str, object], **fields: object
    ) -> httpx.Response:
        self._number += 1
        answer = self.owner.check(agent, action, {"n": self._number} | context, **fields)
        assert answer.headers["x-reason-code"] == code, answer.text
        self.answers.append(answer)
        self.expected[expected] += 1
        if expected not in {UNCHANGED, NOT_REPLAYABLE}:
            self.samples[decision_id(answer)] = expected
        return answer

    def send(self) -> None:
        """Check a call of each category."""
        self.check(UNCHANGED, "allowed", "free.same")
        self.check(NEWLY_HELD, "allowed", "free.held")
        self.check(NEWLY_DENIED, "allowed", "free.denied")
        self.check(UNCHANGED, "approval_required", "held.same")
        self.check(NEWLY_DENIED, "approval_required", "held.denied")
        self.check(NEWLY_ALLOWED, "no_permission", "new.free")
        self.check(NEWLY_HELD, "no_permission", "new.held")
        self.check(UNCHANGED, "no_permission", "other")
        self.check(UNCHANGED, "allowed", "limited", amount=50)
        self.check(NEWLY_ALLOWED, "amount_exceeded", "limited", amount=80)
        self.check(UNCHANGED, "amount_exceeded", "limited", amount=81)
        self.check(UNCHANGED, "frozen", "frozen.call")
        self._check(UNCHANGED, "agent_not_found", UNKNOWN, "free.same", {})
        self._check(NEWLY_ALLOWED, "agent_disabled", self.disabled, "free.same", {})
        self._check(UNCHANGED, "agent_disabled", self.disabled, "other", {})

    def send_once(self) -> None:
        """Check calls whose results depend on earlier calls."""
        for _ in range(2):
            self.check(NOT_REPLAYABLE, "allowed", "counted")
        self.check(NOT_REPLAYABLE, "budget_exceeded", "counted")
        held = self.check(NEWLY_ALLOWED, "approval_required", "held.free", n=0)
        self.owner.http.post(f"/api/approvals/{held.json()['approval_id']}/approve")
        self.check(NEWLY_ALLOWED, "approved", "held.free", n=0)
        held = self.check(UNCHANGED, "approval_required", "held.same", n=0)
        self.owner.http.post(f"/api/approvals/{held.json()['approval_id']}/approve")
        self.check(UNCHANGED, "approved", "held.same", n=0)


def test_counts_equal_the_traffic(tmp_path: Path) -> None:
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner:
        traffic = Traffic(owner)
        start(owner, traffic.candidate())
        for _ in range(3):
            traffic.send()
        traffic.send_once()
        gateway.stop()
        assert stored(gateway, owner) == {name: traffic.expected[name] for name in RESULTS}
        query = "SELECT decision_id, difference FROM policy_shadow_samples WHERE organization_id = ?"
        assert dict(rows(gateway, query, owner.user["organization_id"])) == traffic.samples


def test_responses_are_the_same_with_a_shadow(gateway: LiveGateway) -> None:
    seen = []
    for has_shadow in (False, True):
        with Owner(gateway.url) as owner:
            traffic = Traffic(owner)
            if has_shadow:
                start(owner, traffic.candidate())
            traffic.send()
            traffic.send_once()
            seen.append([_without_ids(answer) for answer in traffic.answers])
    assert seen[0] == seen[1]


def _without_ids(answer: httpx.Response) -> tuple[object, ...]:
    body = answer.json()
    return (
        answer.status_code,
        body | {"approval_id": body["approval_id"] is None},
        sorted(answer.headers),
        answer.headers["x-reason-code"],
    )


def test_sample_names_the_decision_and_the_reason(newcomer: Owner) -> None:
    agent = newcomer.agent()
    newcomer.permit(agent, "pay")
    start(newcomer, without_permissions(newcomer))
    answer = newcomer.check(agent, "pay")
    shadow = counted(newcomer, 1)
    [sample] = shadow["samples"]
    assert sample.pop("created_at") > shadow["created_at"]
    assert sample == {
        "decision_id": decision_id(answer),
        "agent_id": agent,
        "action": "pay",
        "difference": NEWLY_DENIED,
        "reason": "Agent has no permission for action 'pay'",
    }


def test_at_most_100_samples_of_a_kind(newcomer: Owner) -> None:
    agent = newcomer.agent()
    newcomer.permit(agent, "pay")
    start(newcomer, without_permissions(newcomer))
    first = [decision_id(newcomer.check(agent, "pay")) for _ in range(60)]
    counted(newcomer, 60)
    for _ in range(60):
        newcomer.check(agent, "pay")
    shadow = counted(newcomer, 120)
    assert shadow["counts"][NEWLY_DENIED] == 120
    assert len(shadow["samples"]) == 100
    assert set(first) <= {one["decision_id"] for one in shadow["samples"]}


def test_replaced_shadow_counts_from_zero(newcomer: Owner) -> None:
    agent = newcomer.agent()
    newcomer.permit(agent, "pay")
    before = start(newcomer, without_permissions(newcomer), "first")
    for _ in range(3):
        newcomer.check(agent, "pay")
    # Replace the shadow at once, while results of the first one are not stored yet.
    after = start(newcomer, policy_of(newcomer), "second")
    assert after["id"] != before["id"]
    newcomer.check(agent, "pay")
    newcomer.check(agent, "pay")
    shadow = counted(newcomer, 2)
    assert (shadow["message"], shadow["counts"][UNCHANGED], shadow["samples"]) == ("second", 2, [])


def test_current_policy_as_the_shadow_changes_nothing(tmp_path: Path) -> None:
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner:
        traffic = Traffic(owner)
        start(owner, policy_of(owner))
        traffic.send()
        traffic.send_once()
        gateway.stop()
        total = traffic.expected.total()
        assert stored(gateway, owner) == {UNCHANGED: total} | dict.fromkeys(RESULTS[1:], 0)


def test_discarded_shadow_counts_nothing(gateway: LiveGateway, newcomer: Owner) -> None:
    agent = newcomer.agent()
    newcomer.permit(agent, "pay")
    start(newcomer, without_permissions(newcomer))
    newcomer.check(agent, "pay")
    counted(newcomer, 1)
    assert newcomer.http.delete("/api/policy/shadow").status_code == 204
    assert newcomer.check(agent, "pay").json()["allowed"]
    for method in ("GET", "DELETE"):
        assert newcomer.http.request(method, "/api/policy/shadow").status_code == 404
    assert promote(newcomer).status_code == 404
    for table in ("policy_shadows", "policy_shadow_samples"):
        query = f"SELECT count(*) FROM {table} WHERE organization_id = ?"
        assert rows(gateway, query, newcomer.user["organization_id"]) == [(0,)]


def promote(owner: Owner) -> httpx.Response:
    base = owner.http.get("/api/policy").json()["digest"]
    return owner.http.post("/api/policy/shadow/promote", json={"base": base})


def test_shadow_is_not_promoted_over_later_changes(newcomer: Owner) -> None:
    agent = newcomer.agent()
    newcomer.permit(agent, "pay")
    start(newcomer, policy_of(newcomer))
    base = newcomer.http.get("/api/policy").json()["digest"]
    emergency = {"name": "emergency", "effect": "forbid", "actions": ["*"]}
    assert newcomer.http.post("/api/rules", json=emergency).status_code == 201
    answer = newcomer.http.post("/api/policy/shadow/promote", json={"base": base})
    assert answer.status_code == 409, answer.text
    assert newcomer.check(agent, "pay").headers["x-reason-code"] == "forbidden_by_rule"


def test_promoted_shadow_is_the_policy(newcomer: Owner) -> None:
    agent = newcomer.agent()
    newcomer.permit(agent, "pay")
    candidate = without_permissions(newcomer)
    started = start(newcomer, candidate, "No payments")
    # A change that is made in the meantime is replaced too: the shadow is the complete policy.
    newcomer.permit(agent, "other")
    answer = promote(newcomer)
    assert answer.status_code == 200, answer.text
    assert answer.json()["applied"]
    [revision] = newcomer.http.get(
        "/api/policy/revisions", params={"number": answer.json()["revision"]}
    ).json()
    assert (revision["message"], revision["digest"]) == ("No payments", started["digest"])
    assert newcomer.check(agent, "pay").headers["x-reason-code"] == "no_permission"
    assert newcomer.http.get("/api/policy/shadow").status_code == 404
    assert policy_of(newcomer)["agents"] == candidate["agents"]


def test_shadow_that_is_no_longer_valid_stays(newcomer: Owner) -> None:
    first, _second = newcomer.agent("twin"), newcomer.agent("twin")
    policy = policy_of(newcomer)
    start(newcomer, policy)
    newcomer.http.delete(f"/api/agents/{first}")
    answer = promote(newcomer)
    assert answer.status_code == 400, answer.text
    assert counts(newcomer) == dict.fromkeys(RESULTS, 0)


def test_checks_of_others_are_not_counted(gateway: LiveGateway, newcomer: Owner, rival: Owner) -> None:
    agents = [owner.agent() for owner in (newcomer, rival)]
    for owner, agent in zip((newcomer, rival), agents, strict=True):
        owner.permit(agent, "pay")
    start(newcomer, without_permissions(newcomer))
    start(newcomer, {"version": "toolgate.policy/v1"}, environment="test")
    test_key = newcomer.http.get("/api/organization/test-key").json()["api_key"]
    rival.check(agents[1], "pay")
    # The key of the test environment does not see the agent of the production environment.
    body = {"agent_id": agents[0], "action": "pay"}
    newcomer.http.post("/sdk/check", json=body, headers={"X-API-Key": test_key})
    newcomer.check(agents[0], "pay")
    until(lambda: counts(newcomer, environment="test")[UNCHANGED] == 1)
    assert counted(newcomer, 1)["counts"][NEWLY_DENIED] == 1
    query = "SELECT count(*) FROM policy_shadows WHERE organization_id = ?"
    assert rows(gateway, query, rival.user["organization_id"]) == [(0,)]
    assert rival.http.get("/api/policy/shadow").status_code == 404


def test_dry_runs_and_retries_are_not_counted(newcomer: Owner) -> None:
    agent = newcomer.agent()
    newcomer.permit(agent, "pay", requires_approval=True)
    newcomer.permit(agent, "free")
    start(newcomer, policy_of(newcomer))
    held = newcomer.check(agent, "pay", {"n": 1}).json()["approval_id"]
    newcomer.http.post(f"/api/approvals/{held}/approve")
    body = {"agent_id": agent, "action": "pay", "context": {"n": 1}}
    headers = {"X-API-Key": newcomer.key, "Idempotency-Key": "once"}
    for _ in range(3):
        assert newcomer.http.post("/sdk/check", json=body, headers=headers).json()["allowed"]
    newcomer.check(agent, "free", dry_run=True)
    newcomer.check(agent, "pay", {"n": 2}, dry_run=True)
    newcomer.check(agent, "free")
    assert counted(newcomer, 3)["counts"][UNCHANGED] == 3


def test_shadow_follows_changes_of_the_policy(newcomer: Owner) -> None:
    agent = newcomer.agent()
    newcomer.permit(agent, "pay", requires_approval=True)
    start(newcomer, policy_of(newcomer))
    newcomer.check(agent, "pay", {"n": 1})
    counted(newcomer, 1)
    # The agent is renamed: the candidate, which refers to the old name, then has no such agent.
    newcomer.http.put(f"/api/agents/{agent}", json={"name": "renamed"})
    newcomer.check(agent, "pay", {"n": 2})
    shadow = counted(newcomer, 2)
    assert (shadow["counts"][UNCHANGED], shadow["counts"][NEWLY_DENIED]) == (1, 1)


def test_only_an_admin_starts_discards_and_promotes(newcomer: Owner) -> None:
    policy = policy_of(newcomer)
    start(newcomer, policy)
    for role in ("member", "viewer"):
        with Colleague(newcomer, role) as colleague:
            body = {"policy": policy, "message": ""}
            assert colleague.http.put("/api/policy/shadow", json=body).status_code == 403
            assert colleague.http.delete("/api/policy/shadow").status_code == 403
            assert colleague.http.post("/api/policy/shadow/promote", json={"base": ""}).status_code == 403
            assert colleague.http.get("/api/policy/shadow").status_code == 200


def test_invalid_policy_is_not_started(newcomer: Owner) -> None:
    for _ in range(2):
        newcomer.agent("twin")
    rule = {"name": "x", "effect": "forbid", "actions": ["*"], "when": "args."}
    for field, policy in {
        "rules.0.when": {"version": "toolgate.policy/v1", "rules": [rule]},
        "agents.0.name": {"version": "toolgate.policy/v1", "agents": [{"name": "twin"}]},
    }.items():
        answer = newcomer.http.put("/api/policy/shadow", json={"policy": policy, "message": ""})
        assert answer.status_code == 400, answer.text
        assert field in json.dumps(answer.json())
    assert newcomer.http.get("/api/policy/shadow").status_code == 404


def test_audit_log_contains_the_shadow(newcomer: Owner) -> None:
    first = start(newcomer, policy_of(newcomer), "one")
    second = start(newcomer, policy_of(newcomer), "two")
    promote(newcomer)
    third = start(newcomer, policy_of(newcomer), "three")
    newcomer.http.delete("/api/policy/shadow")
    found = newcomer.http.get("/api/audit", params={"limit": 100}).json()
    events = [(one["kind"], one["resource_id"]) for one in reversed(found) if "shadow" in one["kind"]]
    assert events == [
        ("policy.shadow_started", first["id"]),
        ("policy.shadow_started", second["id"]),
        ("policy.shadow_promoted", second["id"]),
        ("policy.shadow_started", third["id"]),
        ("policy.shadow_discarded", third["id"]),
    ]


def test_killed_gateway_keeps_the_counts_that_were_stored(tmp_path: Path) -> None:
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner:
        agent = owner.agent()
        owner.permit(agent, "pay")
        start(owner, without_permissions(owner))
        for _ in range(20):
            owner.check(agent, "pay")
        counted(owner, 20)
        for _ in range(5):
            owner.check(agent, "pay")
        gateway.kill()
        assert 20 <= stored(gateway, owner)[NEWLY_DENIED] <= 25
