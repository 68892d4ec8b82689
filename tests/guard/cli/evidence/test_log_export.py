"""Deleted rows and effects of freezes, read from exports of the transparency log."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from support.transparency import Export, LogBuilder

from toolgate_cli.client import GatewayError
from toolgate_cli.evidence.log_export import FreezeEffect, find_deletions, read_manifest
from toolgate_cli.evidence.period import Period

BEGIN = datetime(2026, 11, 28, 12, tzinfo=UTC)


def write(export: Export, folder: Path) -> Path:
    path = folder / "export.jsonl"
    path.write_bytes(b"".join(export.lines()))
    return path


@pytest.mark.parametrize("seed", range(8))
def test_deleted_rows_of_the_period_are_counted(tmp_path: Path, seed: int) -> None:
    log = LogBuilder(Random(seed)).build(250)
    export = log.export()
    times = sorted(json.loads(leaf)["at"] for leaf in export.leaves)
    begin, end = (datetime.fromisoformat(times[place]) for place in (20, 200))
    expected: dict[str, int] = {}
    for line in export.leaves:
        leaf = json.loads(line)
        kind, is_first = leaf["kind"], leaf.get("state", "pending") == "pending"
        is_deleted = (kind, leaf["id"]) not in log.rows
        is_in_period = begin <= datetime.fromisoformat(leaf["at"]) < end
        if kind in {"decision", "log_entry", "approval", "audit_event"} and is_first:
            expected[kind] = expected.get(kind, 0) + (is_deleted and is_in_period)
    found = find_deletions(write(export, tmp_path), Period(begin, end))
    assert found.rows == {kind: count for kind, count in expected.items() if count}


def test_file_that_is_no_export_is_refused(tmp_path: Path) -> None:
    for text in ("", "[]\n", '{"exported_at": "2026-11-28T12:00:00Z"}\n', "x"):
        (tmp_path / "export.jsonl").write_text(text)
        with pytest.raises(GatewayError):
            read_manifest(tmp_path / "export.jsonl")


def freeze(agent_id: str | None = None, action: str | None = None) -> FreezeEffect:
    return FreezeEffect(BEGIN, BEGIN + timedelta(minutes=1), agent_id, action, is_complete=True)


def decide(effect: FreezeEffect, outcome: str, seconds: float, **columns: str) -> None:
    code = {"allowed": "allowed", "denied": "frozen"}[outcome]
    row = {"outcome": outcome, "reason_code": code, "agent_id": "a", "action": "stripe.refund", **columns}
    effect.add(row, BEGIN + timedelta(seconds=seconds))


def test_time_to_effect_ends_with_the_last_allowed_decision() -> None:
    effect = freeze()
    for outcome, seconds in (
        ("allowed", -1),
        ("allowed", 0.03),
        ("denied", 0.05),
        ("denied", 2),
        ("allowed", 61),
    ):
        decide(effect, outcome, seconds)
    measured = effect.to_json()
    assert (measured["seconds_to_effect"], measured["seconds_to_first_refusal"]) == (0.03, 0.05)
    assert (measured["allowed"], measured["refused"], measured["allowed_after_first_refusal"]) == (1, 2, 0)


def test_decision_that_is_allowed_after_a_refusal_is_counted() -> None:
    effect = freeze()
    for outcome, seconds in (("denied", 1), ("allowed", 3)):
        decide(effect, outcome, seconds)
    assert effect.to_json()["allowed_after_first_refusal"] == 1
    assert effect.seconds == 3


def test_freeze_without_decisions_has_no_time_to_effect() -> None:
    assert freeze().seconds is None


@pytest.mark.parametrize(
    ("agent", "action", "is_covered"),
    [
        (None, "stripe.*", True),
        (None, "stripe.refund", True),
        (None, "stripe.refun", False),
        (None, "mail.*", False),
        ("a", None, True),
        ("b", None, False),
    ],
)
def test_only_decisions_that_the_freeze_covers_count(
    agent: str | None, action: str | None, *, is_covered: bool
) -> None:
    effect = freeze(agent, action)
    decide(effect, "allowed", 0.5)
    assert effect.seconds == (0.5 if is_covered else None)
