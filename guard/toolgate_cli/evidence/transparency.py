"""Export, checkpoint and receipts of the transparency log, and their verification."""

from contextlib import closing
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from toolgate_cli.client import GatewayClient, GatewayError
from toolgate_cli.evidence.archive import Entry, json_entry, text_entry
from toolgate_cli.evidence.log_export import (
    Deletions,
    Manifest,
    count_decisions,
    find_deletions,
    read_manifest,
    verify,
)
from toolgate_cli.evidence.period import Period
from toolgate_cli.log.status import EXPORT_PATH, fetch_receipt
from toolgate_cli.log.verification.notes import Key
from toolgate_cli.log.verification.receipts import verify_receipt
from toolgate_cli.log.verification.results import Result
from toolgate_cli.options import Environment

EXPORT_NAME: Final = "log/export.jsonl"
RECEIPTS: Final = "log/receipts/"


@dataclass(slots=True)
class LogEvidence:
    """Transparency log of an environment.

    Attributes:
        path: file with the export.
        without_receipt: ids of approval requests that have no leaf.
        invalid_receipts: ids of approval requests whose receipt is not valid.
    """

    path: Path
    manifest: Manifest
    result: Result
    deletions: Deletions
    receipts: list[Entry] = field(default_factory=list)
    without_receipt: list[str] = field(default_factory=list)
    invalid_receipts: list[str] = field(default_factory=list)

    @property
    def is_verified(self) -> bool:
        """True if the export and all receipts are valid."""
        return not self.result.findings and not self.invalid_receipts

    def entries(self, period: Period) -> list[Entry]:
        """Return the files of the log."""
        return [
            Entry(
                EXPORT_NAME,
                "The transparency log from its beginning until the collection, with all database rows that the "
                "log describes.",
                self.path,
            ),
            text_entry(
                "log/checkpoint.txt", "The signed checkpoint of the export.", self.manifest.checkpoint
            ),
            text_entry(
                "log/key.txt",
                "The public key of the log, for 'toolgate log verify --key'.",
                self.manifest.vkey,
            ),
            json_entry(
                "log/verification.json",
                "Result of 'toolgate log verify log/export.jsonl' when the archive was made.",
                self.result.to_json(),
            ),
            json_entry(
                "log/counts.json",
                "Numbers of decisions by outcome and reason, and of log entries by status, in the period.",
                count_decisions(self.path, period),
            ),
            json_entry(
                "log/missing.json",
                "Rows of the period that retention has deleted, and rows that are older than the log.",
                self.deletions.to_json(),
            ),
            *self.receipts,
        ]


def fetch_log(client: GatewayClient, environment: Environment, path: Path, period: Period) -> LogEvidence:
    """Write the export of a log to a file, verify it, and return it without receipts.

    Raises:
        GatewayError: a request failed, or the export is invalid.
        OSError: the file cannot be written.
    """
    with path.open("wb") as file, closing(client.stream(EXPORT_PATH, {"environment": environment})) as chunks:
        for chunk in chunks:
            file.write(chunk)
    return LogEvidence(path, read_manifest(path), verify(path), find_deletions(path, period))


def fetch_receipts(
    client: GatewayClient, environment: Environment, log: LogEvidence, approvals: list[dict[str, Any]]
) -> None:
    """Add the receipts of approval requests to the log, and verify each of them.

    Raises:
        GatewayError: a request failed.
    """
    key = Key.parse(log.manifest.vkey)
    for row in approvals:
        approval_id = str(row["id"])
        try:
            text = fetch_receipt(client, "approvals", approval_id, environment)
        except GatewayError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            log.without_receipt.append(approval_id)
            continue
        if verify_receipt(text, key=key).findings:
            log.invalid_receipts.append(approval_id)
        purpose = "Receipt: proof that the log contains the latest state of this approval request."
        log.receipts.append(Entry(f"{RECEIPTS}{approval_id}.txt", purpose, text))
