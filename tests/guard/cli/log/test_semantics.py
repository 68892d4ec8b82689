"""Rules about rows, retention, erasure, states and gaps."""

import hashlib
import json
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from support.transparency import Export, LogBuilder, Signer, canonical

from toolgate_cli.log.verification.export import verify_export
from toolgate_cli.log.verification.notes import Key
from toolgate_cli.log.verification.results import Result

IDS = [f"0199a3f2-0000-7000-8000-0000000000{index:02x}" for index in range(16)]


class Log:
    """Log with leaves that a test writes itself, one per minute."""

    def __init__(self, **earlier: int) -> None:
        self.export = Export(Signer("", bytes(32)), [], [], [], "2026-11-28T11:59:00.000000Z")
        self.export.signer = Signer(self.export.origin, bytes(32))
        self.leaf("start", IDS[0], earlier=earlier)

    def time(self) -> str:
        return f"2026-11-28T11:{len(self.export.leaves):02}:00.000000Z"

    def leaf(self, kind: str, identity: str, **members: Any) -> None:
        common = {
            "v": 1,
            "kind": kind,
            "id": identity,
            "at": self.time(),
        }
        self.export.leaves.append(canonical(common | members).encode())

    def row(
        self, kind: str, row: dict[str, Any], context: str | None = None, **members: Any
    ) -> dict[str, Any]:
        """Add a row and its leaf, and return the line of the row."""
        salt, text = "ab" * 32, canonical(row)
        line: dict[str, Any] = {"kind": kind, "salt": salt, "context": context}
        if kind == "decision":
            line["context_digest"] = "cd" * 32
            context = canonical({"context": context, "context_digest": "cd" * 32})
        if context is not None:
            members["context"] = hashlib.sha256(bytes.fromhex(salt[32:]) + context.encode()).hexdigest()
        digest = hashlib.sha256(bytes.fromhex(salt[:32]) + text.encode()).hexdigest()
        self.leaf(kind, row["id"], digest=digest, **members)
        self.export.rows.append(line | {"row": text})
        return self.export.rows[-1]

    def decision(self, identity: str, context: str | None = None, **changes: Any) -> dict[str, Any]:
        names = (
            "agent_id approval_id call_id key_id permission_id policy_revision requested_agent rule_id run_id"
        )
        row = dict.fromkeys(names.split()) | {"action": "a.b", "created_at": self.time(), "id": identity}
        row |= {"outcome": "allowed", "reason_code": "allowed"} | changes
        action = {"action": row["action"]} if len(canonical(row["action"]).encode()) <= 257 else {}
        return self.row("decision", row, context, outcome=row["outcome"], reason=row["reason_code"], **action)

    def entry(
        self, identity: str, decision_id: str | None, context: str | None = None, **members: Any
    ) -> dict[str, Any]:
        names = "address_seen approval_id call_id ip_address key_id occurred_at run_id"
        row = dict.fromkeys(names.split()) | {"action": "a.b", "agent_id": IDS[1], "created_at": self.time()}
        row |= {"id": identity, "decision_id": decision_id, "status": "success"}
        return self.row("log_entry", row, context, action="a.b", agent=IDS[1], outcome="success", **members)

    def verify(self) -> Result:
        return verify_export(self.export.lines())


def codes(result: Result) -> list[str]:
    return [each["code"] for each in result.findings]


@pytest.fixture
def log() -> Log:
    return Log()


def test_row_that_a_retention_removed_may_be_missing(log: Log) -> None:
    log.decision(IDS[2])
    log.decision(IDS[3])
    log.leaf("retention", IDS[4], of="decision", before="2026-11-28T11:02:00.000000Z")
    del log.export.rows[0]
    result = log.verify()
    assert (codes(result), result.counts["rows removed by retention"]) == ([], 1)
    del log.export.rows[0]
    assert codes(log.verify()) == ["missing_row"]


def test_retention_of_other_rows_excuses_nothing(log: Log) -> None:
    log.decision(IDS[2])
    log.leaf("retention", IDS[4], of="log_entry", before="2026-11-28T11:02:00.000000Z")
    log.export.rows.clear()
    assert codes(log.verify()) == ["missing_row"]


def test_retention_of_the_future_is_found(log: Log) -> None:
    log.leaf("retention", IDS[4], of="decision", before="2027-01-01T00:00:00.000000Z")
    assert codes(log.verify()) == ["retention"]


def test_context_may_be_missing_after_an_erasure(log: Log) -> None:
    row = log.decision(IDS[2], "{}")
    row |= {"context": None, "context_digest": "", "salt": row["salt"][:32]}
    assert codes(log.verify()) == ["context"]
    log.leaf("erasure", IDS[2], of="decision", by=IDS[5])
    result = log.verify()
    assert (codes(result), result.counts["erased contexts"]) == ([], 1)


def test_context_of_a_decision_may_be_missing_after_a_retention(log: Log) -> None:
    for line in (log.decision(IDS[2], "{}"), log.entry(IDS[3], IDS[2], "{}", decision=IDS[2])):
        line |= {"context": None, "salt": line["salt"][:32]}
    log.leaf("retention", IDS[4], of="context", before="2026-11-28T11:01:00.000000Z")
    assert codes(log.verify()) == ["context", "context"]
    log.leaf("retention", IDS[4], of="context", before="2026-11-28T11:03:00.000000Z")
    assert codes(log.verify()) == ["context"]


@pytest.mark.parametrize("changes", [{"context": "{}"}, {"context_digest": "cd" * 32}, {"salt": "ab" * 32}])
def test_erased_data_must_be_missing(log: Log, changes: dict[str, str]) -> None:
    row = log.decision(IDS[2], "{}")
    row |= {"context": None, "context_digest": "", "salt": row["salt"][:32]}
    log.leaf("erasure", IDS[2], of="decision", by=IDS[5])
    assert codes(log.verify()) == []
    row |= changes
    assert "erasure" in codes(log.verify())


def test_erasure_that_changed_nothing_is_found(log: Log) -> None:
    log.entry(IDS[2], None, "{}")
    log.leaf("erasure", IDS[2], of="log_entry", by=IDS[5])
    assert codes(log.verify()) == ["erasure"]


def test_erasure_of_another_row_excuses_nothing(log: Log) -> None:
    row = log.decision(IDS[2], "{}")
    row |= {"context": None, "context_digest": "", "salt": row["salt"][:32]}
    log.leaf("erasure", IDS[3], of="decision", by=IDS[5])
    log.leaf("erasure", IDS[2], of="log_entry", by=IDS[5])
    assert codes(log.verify()) == ["context"]


@pytest.mark.parametrize(
    "context",
    [
        None,
        "",
        "{}",
        '{"a":"\\"\\u00e9"}',
        "größe\n\t\x01\x7f\\",
        '"',
        "\\",
        '\\"',
        ',"context":',
        ',"row":"',
    ],
)
def test_every_context_is_verified(log: Log, context: str | None) -> None:
    log.decision(IDS[2], context)
    log.entry(IDS[3], IDS[2], context, decision=IDS[2])
    assert codes(log.verify()) == []
    for line in log.export.rows:
        line["context"] = f"{line['context']} "
    assert codes(log.verify()) == ["context", "context"]


def test_votes_are_removed_with_their_approval() -> None:
    builder = LogBuilder(Random(1)).build(1)
    builder._approval()
    while not any(key[0] == "vote" and key[1].startswith(tuple(builder.open)) for key in builder.rows):
        builder._vote()
    builder.rows.clear()
    result = verify_export(builder.export(pending=False).lines())
    assert set(codes(result)) == {"missing_row"}
    builder._leaf("retention", IDS[4], of="approval", before=builder._tick())
    assert codes(verify_export(builder.export(pending=False).lines())) == []


def test_vote_may_be_replaced_by_a_later_vote() -> None:
    builder = LogBuilder(Random(1)).build(1)
    while len(set(leaves := [json.loads(leaf).get("by") for leaf in builder.leaves[1:]])) == len(leaves):
        builder._vote()
    former = dict(builder.rows)
    assert codes(verify_export(builder.export(pending=False).lines())) == []
    *_, first, last = [leaf for leaf in builder.leaves if leaves[-1].encode() in leaf]
    builder.leaves = [{first: last, last: first}.get(leaf, leaf) for leaf in builder.leaves]
    builder.rows = former
    assert codes(verify_export(builder.export(pending=False).lines()))[0] in {"digest", "member"}


def test_pending_retention_and_erasure_do_not_count(log: Log) -> None:
    log.decision(IDS[2])
    row = log.decision(IDS[3], "{}")
    row |= {"context": None, "context_digest": "", "salt": row["salt"][:32]}
    log.leaf("retention", IDS[4], of="decision", before="2026-11-28T11:02:00.000000Z")
    log.leaf("erasure", IDS[3], of="decision", by=IDS[5])
    del log.export.rows[0]
    assert codes(log.verify()) == []
    log.export.pending, log.export.leaves = log.export.leaves[-2:], log.export.leaves[:-2]
    log.export.exported_at = "2026-11-28T11:03:59.000000Z"
    result = log.verify()
    assert codes(result) == ["context", "missing_row"]
    assert len([note for note in result.notes if "no signed checkpoint covers" in note]) == 2


@pytest.mark.parametrize(
    ("action", "is_found"), [("x" * 255, False), ("x" * 256, False), ("é" * 127, False), ("é\n" * 63, False)]
)
def test_long_action_may_be_absent_from_the_leaf(log: Log, action: str, is_found: bool) -> None:
    log.decision(IDS[2], action=action)
    assert codes(log.verify()) == []


def test_short_action_must_be_in_the_leaf(log: Log) -> None:
    log.decision(IDS[2])
    log.export.leaves[-1] = log.export.leaves[-1].replace(b'"action":"a.b",', b"")
    assert codes(log.verify()) == ["member"]


@pytest.mark.parametrize(
    ("decision", "members", "expected"),
    [
        (IDS[2], {"decision": IDS[2]}, []),
        (IDS[2], {}, ["member"]),
        (IDS[2], {"decision": IDS[3]}, ["member"]),
        (None, {"decision": IDS[2]}, ["member"]),
        ("free text", {}, []),
        (None, {}, []),
    ],
)
def test_entry_must_name_the_decision_of_its_leaf(
    log: Log, decision: str | None, members: dict[str, str], expected: list[str]
) -> None:
    log.entry(IDS[3], decision, **members)
    assert codes(log.verify()) == expected


def test_rows_from_before_the_log_need_no_leaf() -> None:
    log = Log(decision=1)
    old = Log().decision(IDS[2], created_at="2026-11-27T11:00:00.000000Z") | {"salt": None}
    log.export.rows = [old]
    result = log.verify()
    assert (codes(result), result.counts["rows older than the transparency log"]) == ([], 1)
    log.export.rows = [old, json.loads(json.dumps(old).replace(IDS[2], IDS[3]))]
    assert codes(log.verify()) == ["no_leaf"]
    log.export.rows = [old, old]
    assert codes(log.verify()) == ["duplicate"]
    log.export.rows = [old | {"salt": "ab" * 32}]
    assert codes(log.verify()) == ["no_leaf"]
    log.export.rows = [Log().decision(IDS[2], created_at="2026-11-28T11:00:00.000000Z") | {"salt": None}]
    assert codes(log.verify()) == ["no_leaf"]


def test_start_must_be_the_first_leaf(log: Log) -> None:
    log.leaf("start", IDS[5], earlier={"decision": 1_000_000})
    assert codes(log.verify()) == ["start"]
    log.export.leaves = [log.export.leaves[1].replace(b'"start"', b'"retention"')]
    assert "start" in codes(log.verify()) or "leaf" in codes(log.verify())


@pytest.mark.parametrize(
    "earlier", ['{"decision":1,}', '{"decision":1"vote":1}', '{"vote":1,"decision":1}', '{"vote":1,"vote":2}']
)
def test_malformed_numbers_of_earlier_rows_are_found(log: Log, earlier: str) -> None:
    log.export.leaves[0] = log.export.leaves[0].replace(b'"earlier":{}', f'"earlier":{earlier}'.encode())
    assert codes(log.verify()) == ["leaf"]


def test_columns_of_a_state_that_was_not_reached_must_be_empty() -> None:
    builder = LogBuilder(Random(1))
    builder.build(1)
    builder._approval()
    export = builder.export(pending=False)
    row = next(each for each in export.rows if each["kind"] == "approval")
    row["row"] = canonical(json.loads(row["row"]) | {"decided_by": IDS[2]})
    assert codes(verify_export(export.lines())) == ["state"]


def test_audit_event_of_another_environment_is_found() -> None:
    builder = LogBuilder(Random(1)).build(1)
    while not any(json.loads(row["row"])["environment"] is None for row in builder.rows.values()):
        builder._audit()
    export = builder.export(pending=False)
    assert codes(verify_export(export.lines())) == []
    export.manifest, export.origin = {"environment": "test"}, export.origin.replace("production", "test")
    export.signer = Signer(export.origin, bytes(32))
    assert "line" in codes(verify_export(export.lines()))


def test_allowed_decision_without_entry_is_a_gap_after_15_minutes(log: Log) -> None:
    log.decision(IDS[2])
    log.decision(IDS[3], outcome="denied")
    log.decision(IDS[4])
    log.entry(IDS[5], IDS[4], decision=IDS[4])
    while len(log.export.leaves) < 17:
        log.leaf("retention", IDS[6], of="vote", before="2026-11-28T11:00:00.000000Z")
    assert log.verify().gaps == []
    log.leaf("retention", IDS[6], of="vote", before="2026-11-28T11:00:00.000000Z")
    result = log.verify()
    assert [(each["code"], each["id"]) for each in result.gaps] == [("allowed_without_entry", IDS[2])]
    assert (result.exit_code(), result.exit_code(fail_on_gaps=True)) == (0, 1)


def test_entry_without_a_decision_of_the_log_is_a_gap(log: Log) -> None:
    log.entry(IDS[2], None)
    log.entry(IDS[3], IDS[9], decision=IDS[9])
    result = log.verify()
    assert [(each["code"], each["id"]) for each in result.gaps] == [
        ("entry_without_decision", IDS[2]),
        ("entry_without_decision", IDS[3]),
    ]


def test_number_of_witnesses_is_checked(log: Log) -> None:
    witnesses = [Signer(f"witness-{index}.example", bytes([index]) * 32, 4) for index in range(2)]
    note = log.export.signer.checkpoint(log.export.leaves)
    log.export.note = note + witnesses[0].line(note.partition("\n\n")[0] + "\n", 1_800_000_000)
    keys = [Key.parse(each.vkey) for each in witnesses]
    assert codes(verify_export(log.export.lines(), witnesses=keys, required=1)) == []
    assert codes(verify_export(log.export.lines(), witnesses=keys, required=2)) == ["witnesses"]


def cosign(log: Log, leaves: Sequence[bytes]) -> Key:
    """Add a checkpoint of these leaves that a witness has cosigned to the manifest, and return the witness's key."""
    witness = Signer("witness.example", bytes(32), 4)
    note = log.export.signer.checkpoint(leaves)
    cosignature = witness.line(note.partition("\n\n")[0] + "\n", 1_800_000_000)
    log.export.manifest = {"cosigned": note + cosignature}
    return Key.parse(witness.vkey)


def test_cosignature_of_an_earlier_checkpoint_counts_for_its_leaves(log: Log) -> None:
    leaves = log.export.leaves[:-1]
    key = cosign(log, leaves)
    result = verify_export(log.export.lines(), witnesses=[key], required=1)
    assert codes(result) == []
    assert f"witness      'witness.example', {len(leaves)} leaves" in result.report()
    assert result.to_json()["witnesses"] == [
        {"name": "witness.example", "time": 1_800_000_000, "size": len(leaves)}
    ]


def test_cosigned_checkpoint_of_another_tree_is_found(log: Log) -> None:
    key = cosign(log, [*log.export.leaves[:-2], b"another leaf"])
    assert codes(verify_export(log.export.lines(), witnesses=[key], required=1)) == ["fork"]


def test_cosigned_checkpoint_with_more_leaves_than_the_export_is_found(log: Log) -> None:
    key = cosign(log, [*log.export.leaves, b"another leaf"])
    assert codes(verify_export(log.export.lines(), witnesses=[key], required=1)) == ["rollback"]
