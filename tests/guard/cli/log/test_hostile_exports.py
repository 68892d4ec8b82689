"""Malformed and hostile exports give findings with a reason; none of them ends the verification with an error."""

import json
from random import Random
from typing import Any

import pytest
from support.transparency import ORGANIZATION, Export, LogBuilder, canonical

from toolgate_cli.log.verification.export import verify_export
from toolgate_cli.log.verification.results import MAX_LISTED, Result

LOG = LogBuilder(Random(1)).build(60)
DEEP = "[" * 200_000


@pytest.fixture
def export() -> Export:
    return LOG.export(pending=False)


def findings(result: Result) -> list[str]:
    return [each["message"] for each in result.findings]


def verify_with_leaf(export: Export, leaf: bytes) -> Result:
    """Verify an export to which the operator has added a leaf."""
    export.leaves.append(leaf)
    return verify_export(export.lines())


def verify_with_row(export: Export, line: bytes) -> Result:
    lines = export.lines()
    count = json.loads(lines[-1])["rows"]
    return verify_export([*lines[:-1], line + b"\n", b'{"rows":%d}\n' % (count + 1)])


LEAF: dict[str, Any] = {
    "at": "2026-11-28T11:00:00.123456Z",
    "digest": "ab" * 32,
    "id": "0199a3f2-0000-7000-8000-00000000000e",
    "kind": "audit_event",
    "type": "agent.created",
    "v": 1,
}
TEXT = canonical(LEAF)


@pytest.mark.parametrize(
    "leaf",
    [
        b"",
        b"null",
        b"\xff\xfe",
        DEEP.encode(),
        TEXT.replace(",", ", ").encode(),
        TEXT.replace('"v":1', '"v":1,"v":1').encode(),
        TEXT.replace('"v":1', '"v":1.0').encode(),
        TEXT.replace('"v":1', '"v":NaN').encode(),
        TEXT.replace('"v":1', f'"v":{"1" * 5000}').encode(),
        TEXT.replace('"v":1', '"v":2').encode(),
        TEXT.replace("agent.created", "\\u0061gent.created").encode(),
        TEXT.replace("agent.created", "\\ud800").encode(),
        TEXT.replace("agent.created", "agent\\/created").encode(),
        TEXT.replace("agent.created", "\\u001F").encode(),
        TEXT.replace("agent.created", "\x01").encode(),
        TEXT.replace("agent.created", "x" * 999).encode(),
        TEXT.replace("agent.created", "é").encode("latin-1"),
        TEXT.replace("agent.created", "é").encode("utf-16"),
        canonical(LEAF | {"kind": "other"}).encode(),
        canonical(LEAF | {"org": ORGANIZATION}).encode(),
        canonical(LEAF | {"env": "production"}).encode(),
        canonical(LEAF | {"digest": "AB" * 32}).encode(),
        canonical(LEAF | {"at": "2026-11-28T11:00:00Z"}).encode(),
        canonical(LEAF | {"at": "2026-13-28T11:00:00.123456Z"}).encode(),
        canonical(LEAF | {"extra": "x"}).encode(),
        canonical(LEAF | {"by": None}).encode(),
        json.dumps({"v": 1} | LEAF, separators=(",", ":")).encode(),
    ],
)
def test_malformed_leaf_is_found(export: Export, leaf: bytes) -> None:
    result = verify_with_leaf(export, leaf)
    assert result.codes["leaf"] == 1
    assert all(len(message) < 400 for message in findings(result))


def test_leaf_of_an_invalid_day_is_found_when_its_time_matters(export: Export) -> None:
    leaf = canonical(LEAF | {"at": "2026-02-31T11:00:00.123456Z"}).encode()
    assert verify_with_leaf(export, leaf).codes["missing_row"] == 1


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "Expecting value"),
        (b"[]", "expected the members"),
        (b"\xff", "utf-8"),
        (DEEP.encode(), "nested too deeply"),
        (b'{"kind":' + DEEP.encode(), "nested too deeply"),
        (b'{"kind":"vote","salt":null,"row":NaN}', "NaN"),
        (b'{"kind":"vote","salt":null,"row":' + b"9" * 5000 + b"}", "digits"),
        (b'{"kind":"vote","salt":null,"row":5}', "is not a string"),
        (b'{"kind":"vote","kind":"vote","salt":null,"row":"{}"}', "same name"),
        (b'{"kind":"vote","salt":"ab","row":"{}"}', "salt"),
        (b'{"kind":"vote","salt":null,"row":"\\ud800"}', "surrogates"),
        (b'{"kind":"vote","salt":null,"row":"\xff"}', "utf-8"),
        (b'{"kind":"vote","salt":null,"row":"{"}"}', "malformed"),
        (b'{"kind":"vote","salt":null,"row":"[[', "Unterminated"),
        (b'{"kind":"vote","salt":null,"context":,"row":"{}"}', "Expecting value"),
        (b'{"kind":"vote","salt":null,"context":","row":"{}"}', "delimiter"),
        (b'{"kind":"log_entry","salt":null,"context":"a\tb","row":"{}"}', "control character"),
        (b'{"kind":"vote","salt":null,"row":"{}","extra":1}', "expected the members"),
        (b'{"kind":"start","salt":null,"row":"{}"}', "unknown kind"),
        (b'{"kind":"vote","salt":null,"row":"null"}', "columns"),
        (b'{"kind":"vote","salt":null,"row":"{}"}', "columns"),
        (b'{"kind":"audit_event","salt":null,"row":"{\\"a\\":1,\\"a\\":1}"}', "not sorted"),
        (b'{"kind":"audit_event","salt":null,"row":"' + DEEP.encode() + b'"}', "nested too deeply"),
    ],
)  # fmt: skip
def test_malformed_row_is_found(export: Export, line: bytes, reason: str) -> None:
    result = verify_with_row(export, line)
    assert result.codes["line"] == 1
    assert reason in findings(result)[0]


@pytest.mark.parametrize(
    "change",
    [
        {"number": "x"},
        {"changes": 1, "created_by": 5.5},
        {"created_by": True},
        {"created_by": ["x"]},
        {"digest": {"b": 1, "a": 2}},
    ],
)
def test_row_with_values_of_other_types_is_found(export: Export, change: dict[str, Any]) -> None:
    row = next(each for each in export.rows if each["kind"] == "policy_revision")
    row["row"] = json.dumps(json.loads(row["row"]) | change, separators=(",", ":"))
    assert verify_export(export.lines()).findings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("format", "toolgate.log-export/v2"),
        ("origin", None),
        ("origin", "gate.example.test/log"),
        ("vkey", 5),
        ("vkey", "x"),
        ("vkey", "\ud800"),
        ("exported_at", "yesterday"),
        ("exported_at", "2026-11-28T11:00:00"),
        ("exported_at", "0001-01-01T00:00:00+23:59"),
        ("environment", "test"),
        ("checkpoint", None),
        ("checkpoint", ["x"]),
    ],
)
def test_malformed_manifest_is_found(export: Export, name: str, value: Any) -> None:
    lines = export.lines()
    manifest = json.loads(lines[0]) | {name: value}
    result = verify_export([json.dumps(manifest).encode() + b"\n", *lines[1:]])
    assert [each["code"] for each in result.findings] == ["manifest"]


@pytest.mark.parametrize(
    "first", [b"", b"{}", b"null", b"[1]", b"\xff", DEEP.encode(), b'"x"', b'{"format":NaN}']
)
def test_other_files_are_not_exports(first: bytes) -> None:
    result = verify_export([first])
    assert [each["code"] for each in result.findings] == ["manifest"]
    assert verify_export([]).findings


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b'{"pending":null}\n', "line"),
        (b'{"pending":{}}\n', "line"),
        (b'{"pending":"\\ud800"}\n', "line"),
        (b'{"pending":"x"}\n', "leaf"),
        (b'{"pending":"x","rows":1}\n', "line"),
        (b'{"pending":' + DEEP.encode() + b"}\n", "line"),
        (b'{"leaves":60}\n', "order"),
        (b'{"rows":NaN}\n', "line"),
    ],
)
def test_malformed_line_after_the_leaves_is_found(export: Export, line: bytes, code: str) -> None:
    lines = export.lines()
    at = next(at for at, each in enumerate(lines) if each.startswith(b'{"leaves"')) + 1
    assert verify_export([*lines[:at], line, *lines[at:]]).codes[code] >= 1


def test_random_changes_of_bytes_never_raise(export: Export) -> None:
    content = b"".join(export.lines())
    random = Random(5)
    for _ in range(150):
        changed = bytearray(content)
        for _ in range(random.choice([1, 3, 100])):
            changed[random.randrange(len(changed))] = random.choice(b'\x00\n"\\{}[],:0a\xff')
        result = verify_export(bytes(changed).splitlines(keepends=True))
        json.dumps(result.to_json())
        assert result.report().isascii()


def test_number_of_listed_findings_is_limited(export: Export) -> None:
    export.rows = []
    lines = export.lines()
    result = verify_export([*lines[:-1], *[b"{}\n"] * (MAX_LISTED + 500), lines[-1]])
    assert len(result.findings) == MAX_LISTED
    assert result.counts["findings"] > MAX_LISTED + 500
    assert "more findings are not listed" in result.report()
