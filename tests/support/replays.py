"""Traffic that leaves decisions with every outcome and reason code, and replays of it."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from support.gateway import LiveGateway, Owner
from support.tables import rows
from support.waiting import until

UNKNOWN = "01890000-0000-7000-8000-000000000000"
#: settings under which the traffic reaches the limits of rejected and pending requests
PENDING = 10
ENV = {
    "TOOLGATE_DENIALS_BEFORE_BLOCK": "3",
    "TOOLGATE_PENDING_PER_AGENT": str(PENDING),
    "TOOLGATE_MANAGEMENT_REQUESTS_PER_MINUTE": "1000000",
}
POLICY: dict[str, Any] = {
    "version": "toolgate.policy/v1",
    "agents": [
        {
            "name": "worker",
            "permissions": [
                {"action": "pay", "max_amount": 50, "amount_required": True},
                *(
                    {"action": action, "requires_approval": True}
                    for action in ("ask", "rejected", "lend", "edit", "closed")
                ),
                *({"action": action} for action in ("count", "over", "sum", "frozen.call")),
            ],
        },
        {"name": "crowd", "permissions": [{"action": "ask", "requires_approval": True}]},
        {"name": "idle", "enabled": False, "permissions": [{"action": "pay"}]},
    ],
    "rules": [
        {"name": "Not abroad", "effect": "forbid", "actions": ["stripe.*"], "when": "args.country != 'DE'"},
        {"name": "Short mails", "effect": "allow", "actions": ["mail.*"], "when": "args.size / 3 == 3"},
        {
            "name": "Now",
            "effect": "allow",
            "actions": ["report.*"],
            "when": "now >= timestamp('2026-01-01T00:00:00Z') && now < timestamp('2100-01-01T00:00:00Z')",
        },
        {"name": "Own runs", "effect": "allow", "actions": ["run.*"], "when": "run.id.startsWith('own')"},
        {
            "name": "Many rows",
            "effect": "require_approval",
            "agents": ["worker"],
            "actions": ["db.*"],
            "when": "args.rows > 100",
            "approval": {"quorum": 2, "ttl": 600},
        },
        {"name": "Disabled", "effect": "forbid", "actions": ["*"], "enabled": False},
    ],
    "budgets": [
        {"name": "Calls", "actions": ["count"], "window": "month", "limit": 3},
        {
            "name": "Watched",
            "actions": ["over"],
            "window": "month",
            "limit": 2,
            "at_limit": "require_approval",
        },
        {"name": "Sums", "actions": ["sum"], "measure": "sum(args.amount)", "window": "day", "limit": 1000},
    ],
}
#: reason codes that `Traffic` leaves after enough rounds
CODES = {
    "agent_disabled", "agent_not_found", "allowed", "amount_exceeded", "amount_invalid", "amount_missing",
    "approval_closed", "approval_not_found", "approval_required", "approved", "arguments_edited", "budget_amount_invalid",
    "budget_exceeded", "call_already_allowed", "forbidden_by_rule", "frozen", "action_blocked", "no_permission",
    "recently_rejected", "temporary_approval", "too_many_pending",
}  # fmt: skip


class Traffic:
    """Calls of the agents of `POLICY`, and decisions about their approval requests."""

    def __init__(self, gateway: LiveGateway, owner: Owner) -> None:
        self._gateway = gateway
        self._owner = owner
        apply(owner, POLICY)
        self.agents = {one["name"]: one["id"] for one in owner.http.get("/api/agents").json()}
        self.codes: Counter[str] = Counter()

    def run(self, rounds: int) -> None:
        """Send the calls of several rounds, and wait until their decisions are stored."""
        for number in range(rounds):
            self._call_without_state(number)
            self._call_with_approvals(number)
            self._call_with_budgets(number)
        freeze = self._owner.http.post("/api/freeze", json={"action": "frozen.*", "reason": "a test"}).json()
        self.check("worker", "frozen.call", {})
        assert self._owner.http.post(f"/api/freeze/{freeze['id']}/lift").status_code == 200
        self.wait()

    def wait(self) -> None:
        """Wait until all decisions are stored."""
        query = "SELECT count(*) FROM decisions WHERE organization_id = ?"
        organization = self._owner.user["organization_id"]
        until(lambda: rows(self._gateway, query, organization)[0][0] == self.codes.total())

    def check(self, agent: str, action: str, context: object = None, **fields: object) -> httpx.Response:
        """Send a check of an agent, and count its reason code."""
        answer = self._owner.check(self.agents.get(agent, agent), action, context, **fields)
        assert answer.status_code == 200, answer.text
        self.codes[answer.headers["x-reason-code"]] += 1
        return answer

    def _call_without_state(self, number: int) -> None:
        for amount in (10, 60, "x", 50.0, None):
            context = {} if amount is None else {"amount": amount, "number": number}
            self.check("worker", "pay", context)
        self.check("worker", "other", {"n": number})
        self.check("idle", "pay", {"amount": 1})
        self.check(UNKNOWN, "pay", {"amount": 1})
        for country in ("FR", "DE", None):
            self.check("worker", "stripe.refund", {"country": country})
        # The condition divides integers without a fraction, and fails for other numbers.
        for size in (10, 10.0, 12, "10"):
            self.check("worker", "mail.send", {"size": size})
        self.check("worker", "report.make", {"n": number}, run_id="own-1")
        for run in ("own-1", "other", None):
            self.check("worker", "run.start", {}, run_id=run)
        for amount in (5, 500):
            self.check("worker", "db.drop", {"rows": amount})

    def _call_with_approvals(self, number: int) -> None:
        call = {"call_id": f"call-{number}"}
        self._decide(self.check("worker", "ask", {"n": number}, **call), "approve")
        for _ in range(2):
            self.check("worker", "ask", {"n": number}, **call)
        held = self.check("worker", "rejected", {"n": number})
        if held.json()["approval_id"]:
            self._decide(held, "reject")
            self.check("worker", "rejected", {"n": number})
        self.check("crowd", "ask", {"n": number})
        lent = self.check("worker", "lend", {"n": 1})
        if not number:
            self._decide(lent, "approve", grant={"max_uses": 1000, "duration_seconds": 3600})
        edited = self.check("worker", "edit", {"n": number}, call_id=f"edit-{number}")
        self._decide(edited, "approve", context={"n": number + 0.5})
        headers = {"X-API-Key": self._owner.key}
        path = f"/sdk/approvals/{edited.json()['approval_id']}"
        replacement = self._owner.http.get(path, headers=headers).json()["replaced_by"]
        self.check("worker", "edit", {"n": number}, call_id=f"edit-{number}")
        self.check("worker", "edit", {"n": number + 0.5}, call_id=f"edit-{number}", approval_id=replacement)
        self.check("worker", "ask", {"n": -1}, approval_id=UNKNOWN)
        closed = self.check("worker", "closed", {"n": number}).json()["approval_id"]
        assert self._owner.http.post(f"/sdk/approvals/{closed}/cancel", headers=headers).status_code == 200
        self.check("worker", "closed", {"n": number}, approval_id=closed)

    def _call_with_budgets(self, number: int) -> None:
        self.check("worker", "count", {"n": number})
        over = self.check("worker", "over", {"n": number})
        if over.json()["requires_approval"]:
            self._decide(over, "approve")
            self.check("worker", "over", {"n": number})
        for context in ({"amount": 0.5}, {"amount": "x"}, {}):
            self.check("worker", "sum", context)

    def _decide(self, held: httpx.Response, decision: str, **body: object) -> None:
        path = f"/api/approvals/{held.json()['approval_id']}/{decision}"
        answer = self._owner.http.post(path, json=body)
        assert answer.status_code == 200, answer.text


def apply(owner: Owner, policy: dict[str, Any]) -> None:
    """Apply a policy."""
    base = owner.http.get("/api/policy").json()["digest"]
    answer = owner.http.post("/api/policy/apply", json={"policy": policy, "base": base, "message": "Test"})
    assert answer.status_code == 200, answer.text


def current(owner: Owner) -> dict[str, Any]:
    """Return the current policy."""
    policy: dict[str, Any] = owner.http.get("/api/policy").raise_for_status().json()["policy"]
    return policy


def replay(owner: Owner, policy: dict[str, Any], **fields: object) -> dict[str, Any]:
    """Return the report of a replay."""
    answer = owner.http.post("/api/policy/replay", json={"policy": policy, **fields}, timeout=120)
    assert answer.status_code == 200, answer.text
    report: dict[str, Any] = answer.json()
    return report


def changed(report: dict[str, Any]) -> dict[str, int]:
    """Return the totals of a report without the unchanged decisions and without zeros."""
    return {name: count for name, count in report["totals"].items() if count and name != "unchanged"}


@contextmanager
def traffic(folder: Path, rounds: int) -> Iterator[tuple[LiveGateway, Owner, Traffic]]:
    """Start a gateway with the decisions of several rounds."""
    with LiveGateway(folder, env=ENV) as gateway, Owner(gateway.url) as owner:
        made = Traffic(gateway, owner)
        made.run(rounds)
        yield gateway, owner, made
