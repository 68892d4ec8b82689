"""Records of the period from the API: policy revisions, approval requests, temporary approvals, audit events, freezes."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from toolgate_cli.approval_requests import APPROVALS_PATH
from toolgate_cli.client import GatewayClient, GatewayError, Query
from toolgate_cli.evidence.archive import Entry, json_entry, lines_entry
from toolgate_cli.evidence.log_export import FreezeEffect
from toolgate_cli.evidence.period import Period, read_created, read_time
from toolgate_cli.freezes import FREEZE_PATH
from toolgate_cli.options import Environment
from toolgate_cli.policy.plans import POLICY_PATH

REVISIONS_PATH: Final = f"{POLICY_PATH}/revisions"
GRANTS_PATH: Final = "/api/grants"
AUDIT_PATH: Final = "/api/audit"

#: Time before the period from which approval requests and temporary approvals are read. A request is decided within at
#: most 30 days after its creation, and a temporary approval lasts at most 30 days after the decision.
_LEAD: Final = timedelta(days=62)
_APPROVAL_TIMES: Final = ("created_at", "decided_at", "consumed_at", "cancelled_at")


@dataclass(frozen=True, slots=True)
class Reader:
    """Reader of the lists of one environment, newest first.

    Attributes:
        client: client of an admin.
        environment: environment whose rows are read.
    """

    client: GatewayClient
    environment: Environment

    def rows(self, path: str, *, since: datetime | None = None, **filters: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of a list, page by page, until a row was created before `since`.

        Raises:
            GatewayError: a request failed, or a response is invalid.
        """
        query: Query = {"environment": self.environment, **filters}
        for page in self.client.pages(path, query):
            for row in page:
                if not isinstance(row, dict):
                    raise GatewayError(f"invalid response to GET {path!r}: expected objects")
                if since is not None and read_created(row) < since:
                    return
                yield row

    def get(self, path: str) -> dict[str, Any]:
        """Return a JSON object of the environment.

        Raises:
            GatewayError: the request failed, or the response is invalid.
        """
        found = self.client.get(path, {"environment": self.environment})
        if not isinstance(found, dict):
            raise GatewayError(f"invalid response to GET {path!r}: expected an object")
        return found


def read_revisions(reader: Reader, period: Period) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Return the policy revisions of the period, oldest first, and the latest revision from before it."""
    found: list[dict[str, Any]] = []
    for row in reader.rows(REVISIONS_PATH):
        if read_created(row) >= period.end:
            continue
        revision = reader.get(f"{REVISIONS_PATH}/{row['id']}")
        if not period.contains(read_created(row)):
            return found[::-1], revision
        found.append(revision)
    return found[::-1], None


def read_approvals(reader: Reader, period: Period) -> list[dict[str, Any]]:
    """Return the approval requests that were created, voted on, decided or used in the period, oldest first."""
    rows = reader.rows(APPROVALS_PATH, since=period.begin - _LEAD)
    return [row for row in rows if _is_active(row, period)][::-1]


def _is_active(row: dict[str, Any], period: Period) -> bool:
    times = [read_time(row, name) for name in _APPROVAL_TIMES]
    times += [read_created(vote) for vote in row.get("votes") or ()]
    return any(map(period.contains, times))


def read_grants(reader: Reader, period: Period) -> list[dict[str, Any]]:
    """Return the temporary approvals that were in effect during a part of the period, oldest first."""
    rows = reader.rows(GRANTS_PATH, since=period.begin - _LEAD)
    return [row for row in rows if _is_in_effect(row, period.begin, period.end)][::-1]


def _is_in_effect(row: dict[str, Any], begin: datetime, end: datetime) -> bool:
    ends = [moment for name in ("expires_at", "revoked_at") if (moment := read_time(row, name)) is not None]
    return read_created(row) < end and (not ends or min(ends) >= begin)


def read_audit(reader: Reader, since: datetime | None) -> list[dict[str, Any]]:
    """Return the audit events since a time, or all of them, oldest first.

    Events that belong to no environment, such as changes of the team, are part of the result in both environments.
    """
    found = list(reader.rows(AUDIT_PATH, since=since))
    if reader.environment is not Environment.PRODUCTION:
        others = Reader(reader.client, Environment.PRODUCTION).rows(AUDIT_PATH, since=since)
        found += [row for row in others if row.get("environment") is None]
    return sorted(found, key=lambda row: (read_created(row), str(row.get("id"))))


def read_freezes(reader: Reader, period: Period) -> list[dict[str, Any]]:
    """Return the freezes that were active during a part of the period, oldest first."""
    rows = [row for status in ("active", "lifted") for row in reader.rows(FREEZE_PATH, status=status)]
    active = [
        row
        for row in rows
        if read_created(row) < period.end
        and ((lifted := read_time(row, "lifted_at")) is None or lifted >= period.begin)
    ]
    return sorted(active, key=lambda row: (read_created(row), str(row.get("id"))))


def follow_freeze(row: dict[str, Any], exported: datetime, decisions_before: datetime | None) -> FreezeEffect:
    """Return the measurement of a freeze.

    Args:
        row: the freeze.
        exported: time of the export of the log.
        decisions_before: time before which decisions may have been deleted; None if none were deleted.
    """
    begin = read_created(row)
    is_complete = decisions_before is None or decisions_before <= begin
    return FreezeEffect(
        begin, read_time(row, "lifted_at") or exported, row.get("agent_id"), row.get("action"), is_complete
    )


def record_entries(
    period: Period,
    revisions: list[dict[str, Any]],
    former: dict[str, Any] | None,
    approvals: list[dict[str, Any]],
    grants: list[dict[str, Any]],
    audit: list[dict[str, Any]],
) -> list[Entry]:
    """Return the files with the records of the period."""
    entries = [
        lines_entry(
            "policy/revisions.jsonl",
            "Policy revisions of the period with their complete policy and their changes, oldest first.",
            revisions,
        ),
        lines_entry(
            "approvals/requests.jsonl",
            "Approval requests that were created, voted on, decided or used in the period, with all votes.",
            approvals,
        ),
        lines_entry(
            "approvals/temporary.jsonl",
            "Temporary approvals that were in effect during a part of the period, with all votes.",
            grants,
        ),
        lines_entry(
            "audit/events.jsonl",
            "Audit events of the period: changes of agents, keys, permissions, rules, budgets, policies, users.",
            [row for row in audit if period.contains(read_created(row))],
        ),
    ]
    if former is not None:
        purpose = "The last policy revision from before the period, which was the latest one when it began."
        entries.append(json_entry("policy/before.json", purpose, former))
    return entries
