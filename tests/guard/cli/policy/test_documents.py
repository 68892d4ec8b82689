"""Files with policies and test cases: exact values, and messages with positions."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from toolgate_cli.policy import documents
from toolgate_cli.policy.documents import DocumentError, load_document, parse_document, write_file

YAML, JSON = Path("policy.yaml"), Path("policy.json")


def read(text: str, path: Path = YAML) -> Any:
    return parse_document(path, text).value


def test_values_are_those_of_json_and_numbers_are_exact() -> None:
    text = "a: 0.10\nb: 1e3\nc: 12\nd: yes\ne: 2026-01-01\nf:\ng: ~\nh: true\ni: 'no'\nj: [1, {k: -2.50}]\n"
    value = read(text)
    assert value == {
        "a": Decimal("0.10"),
        "b": Decimal(1000),
        "c": 12,
        "d": "yes",
        "e": "2026-01-01",
        "f": None,
        "g": None,
        "h": True,
        "i": "no",
        "j": [1, {"k": Decimal("-2.50")}],
    }
    assert str(value["a"]) == "0.10"
    assert read('{"a": 0.10, "b": "\\ud83d\\ude00"}', JSON) == {"a": Decimal("0.10"), "b": "😀"}
    digits = "0." + "1234567890" * 5
    assert str(read(f"a: {digits}")["a"]) == digits


def test_aliases_repeat_values() -> None:
    assert read("a: &x [1, 2]\nb: *x\n") == {"a": [1, 2], "b": [1, 2]}


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("a: 1\nb:\n  c: 1\n  c: 2\n", "4:3", "duplicate key 'c'"),
        ("a: 1\nb: [\n", "3:1", "while parsing a flow node"),
        ("a:\n\tb: 1\n", "2:1", r"found character '\\t'"),
        ("a: 1\n---\nb: 2\n", "2:1", "found another document"),
        ("a: 0x10\n", "1:4", "'0x10' is not a valid number"),
        ("a: 010\n", "1:4", "'010' is not a valid number"),
        ("a: .nan\n", "1:4", "'.nan' is not a valid number"),
        (f"a: 1{'0' * 401}.5\n", "1:4", "too many digits"),
        ("a: !python/name:os.system x\n", "1:4", "unsupported value 'x'"),
        ("a: !!set {x}\n", "1:4", "unsupported tag"),
        ("a: &x\n  b: 1\nc:\n  <<: *x\n", "4:3", "merge keys (<<) are not supported"),
        ("1: a\n", "1:1", "keys must be strings"),
        ("a: *x\n", "1:4", "found undefined alias 'x'"),
        ("a: &x [*x]\n", "1:8", "more than 64 nested levels"),
    ],
)
def test_invalid_yaml_is_reported_with_its_position(text: str, place: str, message: str) -> None:
    with pytest.raises(DocumentError) as error:
        read(text)
    assert str(error.value).startswith(f"policy.yaml:{place}: ")
    assert message in str(error.value)


def test_repeated_aliases_do_not_exhaust_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_VALUES", 1_000)
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(DocumentError, match="more than 1,000 values"):
        read("\n".join(lines))


@pytest.mark.parametrize(
    ("path", "content", "message"),
    [
        (
            JSON,
            b'{"a": 1, "a": 2}',
            "policy.json is not valid JSON: a JSON object contains the same key twice",
        ),
        (JSON, b"{", "policy.json is not valid JSON"),
        (YAML, b"a: \xff", "policy.yaml is not UTF-8: invalid byte at position 3"),
        (YAML, b"a: \x00", "policy.yaml is not valid YAML"),
        (YAML, b"[" * 5_000, "policy.yaml"),
    ],
)
def test_content_that_is_not_text_of_the_format_is_reported(
    path: Path, content: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path.write_bytes(content)
    with pytest.raises(DocumentError) as error:
        load_document(path)
    assert str(error.value).startswith(message)


def test_file_that_is_missing_or_too_large_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DocumentError, match=r"cannot read .*missing\.yaml: No such file"):
        load_document(tmp_path / "missing.yaml")
    monkeypatch.setattr(documents, "MAX_FILE", 3)
    (tmp_path / "large.yaml").write_text("a: 1\n")
    with pytest.raises(DocumentError, match="has more than 3 bytes"):
        load_document(tmp_path / "large.yaml")


def test_problems_are_listed_with_positions_in_the_order_of_the_file() -> None:
    text = "version: 1\nrules:\n  - name: a\n    when: x\n  - {name: b, effect: y}\n"
    document = parse_document(YAML, text)
    problems = {
        "rules.1.effect": ["wrong"],
        "rules.0.when": ["bad"],
        "rules.0.actions": ["missing"],
        "": ["all"],
    }
    assert document.describe(problems) == [
        "policy.yaml: all",
        "policy.yaml:3:5: rules.0.actions: missing",
        "policy.yaml:4:5: rules.0.when: bad",
        "policy.yaml:5:15: rules.1.effect: wrong",
    ]
    assert parse_document(JSON, '{\n\t"rules": 1}').describe({"rules": ["bad"]}) == [
        "policy.json:2:2: rules: bad"
    ]


def test_written_file_keeps_its_mode_and_follows_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "real.yaml", tmp_path / "policy.yaml"
    target.write_text("a: 1\n")
    target.chmod(0o640)
    link.symlink_to(target)
    write_file(link, "a: 2\n", has_crlf=True)
    assert link.is_symlink()
    assert target.read_bytes() == b"a: 2\r\n"
    assert target.stat().st_mode & 0o777 == 0o640
    assert sorted(one.name for one in tmp_path.iterdir()) == ["policy.yaml", "real.yaml"]
    with pytest.raises(DocumentError, match=r"cannot write .*no/policy\.yaml: No such file"):
        write_file(tmp_path / "no" / "policy.yaml", "a: 1\n")
