"""The decision log of a live gateway: waiting for records, and records in numbers that nobody would cause one by one."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from support.gateway import LiveGateway, Owner
from support.pages import walked
from support.tables import execute, rows
from support.waiting import until
from toolgate_service.core.clock import wire
from toolgate_service.core.ids import new_id

#: written by one statement
CHUNK = 500
OUTCOMES = (("allowed", "allowed"), ("denied", "no_permission"), ("approval_required", "approval_required"))


def decision_id(answer: httpx.Response) -> str:
    """Return the id of the decision in the response to a check."""
    assert answer.status_code == 200, answer.text
    return answer.headers["X-Decision-ID"]


def recorded(owner: Owner, *ids: str, **params: str) -> list[dict[str, Any]]:
    """Wait until the decisions are in the log; return them in the given order."""

    def find() -> list[dict[str, Any]]:
        found = {one["id"]: one for one in walked(owner, "/api/decisions", limit=100, **params)}
        return [found[one] for one in ids] if all(one in found for one in ids) else []

    return until(find)


def write_decisions(
    gateway: LiveGateway,
    owner: Owner,
    agents: Sequence[str],
    count: int,
    *,
    newest: datetime | None = None,
    environment: str = "production",
) -> None:
    """Write decisions a second apart, the newest first, in turn for each agent, three outcomes, actions and runs."""
    newest = newest or datetime.now(UTC)
    organization = owner.user["organization_id"]
    query = "SELECT id FROM api_keys WHERE organization_id = ? AND environment = ?"
    key = rows(gateway, query, organization, environment)[0][0]
    for start in range(0, count, CHUNK):
        values = [
            f"('{new_id()}', '{organization}', '{environment}', '{wire(newest - timedelta(seconds=n))}', "
            f"'{agents[n % len(agents)]}', 'action.{n % 3}', 'run-{n % 50}', '{key}', '{'0' * 64}', 7, "
            f"'{OUTCOMES[n % 3][0]}', '{OUTCOMES[n % 3][1]}')"
            for n in range(start, min(start + CHUNK, count))
        ]
        columns = (
            "id, organization_id, environment, created_at, agent_id, action, run_id, key_id, context_digest, "
            "policy_revision, outcome, reason_code"
        )
        execute(gateway, f"INSERT INTO decisions ({columns}) VALUES {', '.join(values)}")
