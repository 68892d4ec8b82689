"""Collection of the evidence from the gateway, and the files of the archive."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Final

from toolgate_cli.client import GatewayClient, GatewayError
from toolgate_cli.evidence import records
from toolgate_cli.evidence.access import TEAM_PATH, is_access_event, read_access, undo_changes
from toolgate_cli.evidence.archive import Entry, json_entry, lines_entry, text_entry, write_archive
from toolgate_cli.evidence.index import (
    Facts,
    requirements_json,
    write_access,
    write_index,
    write_requirements,
)
from toolgate_cli.evidence.log_export import Deletions, measure_freezes
from toolgate_cli.evidence.period import Period, format_time, read_created
from toolgate_cli.evidence.transparency import LogEvidence, fetch_log, fetch_receipts
from toolgate_cli.evidence.verify_report import VerifyReport, load_verify_report
from toolgate_cli.options import Environment
from toolgate_cli.output import fail, print_progress, sanitize

_ADMIN: Final = "admin"
#: names of the kinds of rows that the gateway deletes after a retention period
_NAMES: Final = {
    "approval": "approval requests",
    "audit_event": "audit events",
    "decision": "decisions",
    "log_entry": "log entries",
}
#: rows that are deleted together with the rows of a kind, without an own announcement in the log
_DELETED: Final = _NAMES | {"approval": "approval requests and temporary approvals"}


def write_evidence(
    client: GatewayClient,
    environment: Environment,
    period: Period,
    file: BinaryIO,
    *,
    verify_report: Path | None,
    allow_missing: bool,
) -> bool:
    """Write the archive, and return whether its transparency log is verified.

    Args:
        client: client of an admin, whose token has the scope `cli`: the gateway masks API keys for it.
        environment: environment of the evidence.
        period: period of the evidence.
        file: the file to write.
        verify_report: file with the output of `toolgate verify --json`.
        allow_missing: write the archive even if data of the period was deleted.

    Raises:
        GatewayError: a request failed.
        typer.Exit: the user is not an admin, the report is invalid, or data of the period was deleted.
    """
    email = _require_admin(client)
    version = _read_version(client)
    report = load_verify_report(verify_report, client.url, version)
    with TemporaryDirectory(prefix="toolgate-evidence-") as folder:
        reader = records.Reader(client, environment)
        collected = _Collection(reader, period, Path(folder) / "export.jsonl", allow_missing=allow_missing)
        facts = Facts(
            *(client.url, version, environment.value, format_time(datetime.now(UTC)), email, period),
            remarks=[*_remarks(collected), *report.remarks],
        )
        print_progress("writing the archive")
        write_archive(file, collected.entries(facts, report), _about(facts))
    file.flush()
    return collected.log.is_verified


class _Collection:
    """Content of the archive, read from the gateway."""

    def __init__(self, reader: records.Reader, period: Period, export: Path, *, allow_missing: bool) -> None:
        self.period = period
        client, environment = reader.client, reader.environment
        print_progress("reading the transparency log")
        self.log = fetch_log(client, environment, export, period)
        self.missing = _describe_missing(self.log.deletions)
        if self.missing and not allow_missing:
            fail(
                f"retention has deleted data of the period: {', '.join(self.missing)}; choose a later --from, or add "
                "--allow-missing to write an archive that lists the missing data"
            )
        print_progress("reading policies, approvals and audit events")
        self.revisions, self.former = records.read_revisions(reader, period)
        self.approvals = records.read_approvals(reader, period)
        self.grants = records.read_grants(reader, period)
        print_progress("reading the access review")
        self.review = read_access(reader, period.end)
        self.audit = records.read_audit(reader, period.begin)
        events = self.audit
        if any(is_access_event(one) and read_created(one) >= period.end for one in events):
            # To undo changes, the values from before them are needed, however old the events with these values are.
            events = records.read_audit(reader, None)
        undo_changes(self.review, events)
        self.freezes = _measure(reader, period, self.log)
        print_progress("reading receipts")
        fetch_receipts(client, environment, self.log, self.approvals)

    def entries(self, facts: Facts, report: VerifyReport) -> list[Entry]:
        """Return all files of the archive, except the manifest and the checksums."""
        entries = [
            *records.record_entries(
                *(self.period, self.revisions, self.former, self.approvals, self.grants, self.audit)
            ),
            json_entry(
                "access/review.json",
                "Access review at the end of the period: users and roles, agents, keys, permissions, rules, budgets.",
                self.review.to_json(),
            ),
            text_entry("access/review.md", "The access review as tables.", write_access(self.review)),
            lines_entry(
                "access/changes-after-end.jsonl",
                "Audit events after the end of the period. The access review shows the state before these events.",
                self.review.later,
            ),
            json_entry(
                "freezes/freezes.json",
                "Freezes that were active in the period, with the time until each freeze took effect.",
                self.freezes,
            ),
            report.entry,
            *self.log.entries(self.period),
        ]
        names = [one.name for one in entries]
        entries += [
            text_entry(
                "requirements.md",
                "Table of the requirements of standards and laws, with the features and files that support them.",
                write_requirements(names, report.report),
            ),
            json_entry(
                "requirements.json",
                "The table of requirements.md as JSON.",
                requirements_json(names, report.report),
            ),
        ]
        text = write_index(facts, entries, self.log, self.review, self.freezes, report)
        return [*entries, text_entry("index.md", "This page.", text)]


def _measure(reader: records.Reader, period: Period, log: LogEvidence) -> list[dict[str, Any]]:
    rows = records.read_freezes(reader, period)
    deleted = log.deletions.before.get("decision")
    effects = [records.follow_freeze(row, log.manifest.exported_at, deleted) for row in rows]
    measure_freezes(log.path, effects)
    return [row | {"effect": effect.to_json()} for row, effect in zip(rows, effects, strict=True)]


def _require_admin(client: GatewayClient) -> str:
    """Return the e-mail address of the user, who must be an admin."""
    user, team = client.get("/auth/me"), client.get(TEAM_PATH)
    try:
        [role] = [str(one["role"]) for one in team["users"] if one["id"] == user["id"]]
        email = str(user["email"])
    except (TypeError, KeyError, ValueError):
        raise GatewayError(f"invalid response to GET {TEAM_PATH!r}: the user is not in the team") from None
    if role != _ADMIN:
        fail(
            f"only a user with the role 'admin' can make an archive of evidence; the role of {sanitize(email)} is "
            f"{sanitize(role)!r}. Only admins receive the open invitations and how approvers were authenticated"
        )
    return email


def _read_version(client: GatewayClient) -> str:
    health = client.get("/health")
    return str(health.get("version")) if isinstance(health, dict) else "unknown"


def _describe_missing(deletions: Deletions) -> list[str]:
    return [f"{count:,} {_NAMES.get(kind, kind)}" for kind, count in sorted(deletions.rows.items())]


def _remarks(collected: _Collection) -> Iterator[str]:
    yield from _missing_remarks(collected)
    yield from _log_remarks(collected.log)
    if not collected.revisions:
        yield "No policy revision was stored in the period. Changes of single items are in audit/events.jsonl."
    if later := collected.review.later:
        yield (
            f"After the end of the period, {len(later):,} changes of the access were made. The access review shows the state "
            f"before these changes. Number of values that the audit log does not contain: {collected.review.unknown:,}."
        )
    yield "The access review contains the open invitations at the time of the collection, not at the end of the period."


def _missing_remarks(collected: _Collection) -> Iterator[str]:
    begin, deletions = collected.period.begin, collected.log.deletions
    if collected.missing:
        rows = ", ".join(collected.missing)
        yield f"MISSING: retention has deleted data of the period: {rows}. log/missing.json has the numbers."
    for kind, name in _DELETED.items():
        if (before := deletions.before.get(kind, begin)) > begin:
            yield f"Retention has deleted, or may have deleted, {name} from before {format_time(before)}."
    if deletions.contexts:
        yield f"The arguments of {deletions.contexts:,} decisions of the period were deleted. The decisions are included."
    if deletions.log_begin is not None and deletions.log_begin > begin and deletions.earlier:
        yield (
            f"The transparency log begins at {format_time(deletions.log_begin)}, within the period. Records from before "
            "it have no proof, and it is unknown whether some of them were deleted."
        )


def _log_remarks(log: LogEvidence) -> Iterator[str]:
    counts = log.result.counts
    if not log.is_verified:
        yield f"The transparency log is NOT VERIFIED: {counts['findings']:,} findings in log/verification.json."
    if log.invalid_receipts:
        yield f"The receipts of these approval requests are NOT VERIFIED: {', '.join(log.invalid_receipts)}."
    if log.without_receipt:
        missing = ", ".join(log.without_receipt)
        yield f"These approval requests have no receipt, because they are from before the log: {missing}."
    if gaps := counts["gaps"]:
        yield f"The verification of the log lists {gaps:,} gaps, such as calls without a log entry."


def _about(facts: Facts) -> dict[str, Any]:
    return {
        "period": facts.period.to_json(),
        "environment": facts.environment,
        "gateway": facts.url,
        "version": facts.version,
        "collected_at": facts.collected_at,
        "collected_by": facts.collected_by,
        "remarks": list(facts.remarks),
    }
