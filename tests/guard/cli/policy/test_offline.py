"""`toolgate policy validate`, `test` and `schema`, which need no gateway."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema_rs
import pytest
from typer.testing import CliRunner

from toolgate_cli import entry_points
from toolgate_cli.app import app

Run = Callable[..., Any]

POLICY = """\
version: toolgate.policy/v1
agents:
  - name: refund-bot
    permissions:
      - action: stripe.refund
        max_amount: 50
rules:
  - name: No refunds abroad
    effect: forbid
    actions: [stripe.*]
    when: args.country != "DE"
  - name: Nights
    effect: require_approval
    actions: [stripe.*]
    when: now.getHours() < 6
    approval: {quorum: 2}
"""
CASES = """\
tests:
  - name: Refund in Germany
    call: {agent: refund-bot, action: stripe.refund, args: {amount: 50, country: DE}, now: "2026-01-31T12:00:00Z"}
    expect: {outcome: allowed, rule: null, quorum: null}
  - name: Refund abroad
    call: {agent: refund-bot, action: stripe.refund, args: {amount: 40, country: FR}, now: "2026-01-31T12:00:00Z"}
    expect: {outcome: denied, rule: No refunds abroad, reason_code: forbidden_by_rule}
  - name: Refund at night
    call: {agent: refund-bot, action: stripe.refund, args: {amount: 40, country: DE}, now: "2026-01-31T03:00:00Z"}
    expect: {outcome: approval_required, rule: Nights, quorum: 2}
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in an empty folder, where `policy.yaml` and `policy.tests.yaml` are written first."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, policy: str = POLICY, cases: str = CASES) -> Any:
        Path("policy.yaml").write_text(policy)
        Path("policy.tests.yaml").write_text(cases)
        return CliRunner().invoke(app, ["policy", *arguments])

    return run


def test_valid_policy_is_reported(run: Run) -> None:
    ended = run("validate")
    assert (ended.exit_code, ended.output) == (0, "policy.yaml is valid: 1 agent, 2 rules, 0 budgets\n")


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("effect: forbid", "effect: deny", "policy.yaml:9:5: rules.0.effect: Input should be 'forbid'"),
        ("when: args", "wen: args", "policy.yaml:11:5: rules.0.wen: Unknown field; remove it"),
        ('"DE"', "", "policy.yaml:11:5: rules.0.when: Invalid expression (line 1, column 16)"),
        ("args.country !=", "country !=", "policy.yaml:11:5: rules.0.when: "),
        (
            "name: Nights",
            "name: No refunds abroad",
            "policy.yaml:12:5: rules.1: the document contains another",
        ),
        (
            "[stripe.*]\n    when: args",
            "[stripe.*]\n    agents: [x]\n    when: args",
            "policy.yaml:11:5: rules.0.agents: ",
        ),
        (
            "max_amount: 50",
            "max_amount: '50'",
            "policy.yaml:6:9: agents.0.permissions.0.max_amount: must be a",
        ),
        ("max_amount: 50", "action: b", "policy.yaml:6:9: duplicate key 'action'"),
        (
            "policy/v1",
            "policy/v2",
            "policy.yaml is not a policy: it has no line 'version: toolgate.policy/v1'",
        ),
        (POLICY, "", "policy.yaml is not a policy"),
    ],
)
def test_problem_is_reported_with_its_position(run: Run, old: str, new: str, line: str) -> None:
    ended = run("validate", policy=POLICY.replace(old, new, 1))
    assert ended.exit_code == 1
    [reported] = ended.stdout.splitlines()
    assert reported.startswith(line)


def test_every_file_is_validated(run: Run) -> None:
    Path("other.json").write_text(json.dumps({"version": "toolgate.policy/v1", "rules": [{}]}))
    ended = run("validate", "policy.yaml", "other.json", "missing.yaml")
    assert ended.exit_code == 1
    assert ended.stdout.splitlines() == [
        "policy.yaml is valid: 1 agent, 2 rules, 0 budgets",
        "other.json:1:45: rules.0.actions: This field is required",
        "other.json:1:45: rules.0.effect: This field is required",
        "other.json:1:45: rules.0.name: This field is required",
        "cannot read missing.yaml: No such file or directory",
    ]
    found = json.loads(run("validate", "policy.yaml", "other.json", "--json").stdout)
    assert [(one["file"], one["valid"], len(one["problems"])) for one in found] == [
        ("policy.yaml", True, 0),
        ("other.json", False, 3),
    ]


def test_passed_cases_are_counted(run: Run) -> None:
    ended = run("test")
    assert (ended.exit_code, ended.output) == (0, "3 cases: 3 passed, 0 failed\n")
    assert run("test", "policy.yaml", "--cases", "policy.tests.yaml").output == ended.output
    assert run("test", cases=CASES.replace("tests:\n", "")).output == ended.output


def test_failed_cases_show_expected_and_actual_results(run: Run) -> None:
    ended = run("test", "--junit", "junit.xml", policy=POLICY.replace('"DE"', '"FR"'))
    assert ended.exit_code == 1
    assert ended.stdout.splitlines() == [
        "FAILED Refund in Germany",
        "    outcome: expected allowed, got denied",
        "    rule: expected none, got No refunds abroad",
        "    reason: Rule 'No refunds abroad' forbids action 'stripe.refund'",
        "FAILED Refund abroad",
        "    outcome: expected denied, got allowed",
        "    rule: expected No refunds abroad, got none",
        "    reason_code: expected forbidden_by_rule, got allowed",
        "FAILED Refund at night",
        "    outcome: expected approval_required, got denied",
        "    rule: expected Nights, got No refunds abroad",
        "    quorum: expected 2, got none",
        "    reason: Rule 'No refunds abroad' forbids action 'stripe.refund'",
        "3 cases: 0 passed, 3 failed",
    ]
    suite = ET.fromstring(Path("junit.xml").read_text()).find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("3", "3")
    failure = suite.find("testcase[@name='Refund in Germany']/failure")
    assert failure is not None
    assert (
        failure.get("message")
        == "outcome: expected allowed, got denied; rule: expected none, got No refunds abroad"
    )


def test_results_are_printed_as_json(run: Run) -> None:
    ended = run("test", "--json", policy=POLICY.replace("quorum: 2", "quorum: 3"))
    first, _, night = json.loads(ended.stdout)
    assert (ended.exit_code, first["passed"], first["failures"]) == (1, True, [])
    assert night["failures"] == ["quorum: expected 2, got 3"]
    assert night["actual"] == {
        "outcome": "approval_required",
        "rule": "Nights",
        "reason_code": "approval_required",
        "quorum": 3,
    }


def test_amounts_are_compared_exactly(run: Run) -> None:
    cases = (
        "tests:\n- name: a\n  call: {agent: refund-bot, action: stripe.refund, now: '2026-01-31T12:00:00Z',\n"
        "    args: {country: DE, amount: 50.00000000000000000001}}\n"
        "  expect: {outcome: denied, reason_code: amount_exceeded}\n"
    )
    assert run("test", cases=cases).exit_code == 0
    assert run("test", cases=cases.replace("50.00000000000000000001", "5.0e1")).exit_code == 1


def test_misspelled_agent_fails_unless_it_is_expected(run: Run) -> None:
    cases = CASES.replace(
        'agent: refund-bot, action: stripe.refund, args: {amount: 40, country: FR}, now: "2026-01-31T12:00:00Z"',
        "agent: b, action: x.y",
    )
    cases = cases.replace("rule: No refunds abroad, reason_code: forbidden_by_rule", "rule: null")
    ended = run("test", cases=cases)
    assert ended.exit_code == 1
    assert "    agent: 'b' is not an agent of the policy" in ended.stdout.splitlines()
    assert (
        run(
            "test",
            cases=cases.replace(
                "rule: null}\n  - name: Refund at", "reason_code: agent_not_found}\n  - name: Refund at"
            ),
        ).exit_code
        == 0
    )


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("outcome: denied", "outcome: forbidden", "policy.tests.yaml:7:14: tests.1.expect.outcome: Input should be 'allowed'"),
        ("quorum: 2", "quorom: 2", "policy.tests.yaml:10:56: tests.2.expect.quorom: Unknown field; remove it"),
        ("2026-01-31T12:00:00Z", "noon", "policy.tests.yaml:3:87: tests.0.call.now: must be an ISO 8601 timestamp"),
        ("tests:", "cases:", "policy.tests.yaml:1:1: cases: Unknown field; remove it"),
        ("amount: 50", 'amount: "\\0"', "policy.tests.yaml:3:54: tests.0.call.args: A string contains"),
    ],
)  # fmt: skip
def test_invalid_cases_are_reported_with_their_position(run: Run, old: str, new: str, line: str) -> None:
    ended = run("test", cases=CASES.replace(old, new, 1))
    assert ended.exit_code == 1
    assert any(one.startswith(line) for one in ended.stderr.splitlines()), ended.stderr


def test_invalid_policy_is_not_tested(run: Run) -> None:
    ended = run("test", policy=POLICY.replace("effect: forbid", "effect: deny"))
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr.startswith("policy.yaml:9:5: rules.0.effect: ")


def test_missing_extra_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_name: str) -> Any:
        raise ModuleNotFoundError(name="sqlmodel")

    monkeypatch.setattr(entry_points, "import_gateway", missing)
    ended = run("validate")
    assert ended.exit_code == 1
    assert ended.stderr.endswith(
        "('sqlmodel' is missing); install it with: pip install 'toolgate[service]'\n"
    )


def test_schema_accepts_the_policy_and_rejects_unknown_fields(run: Run) -> None:
    from toolgate_cli.policy.documents import load_document

    schema = json.loads(run("schema").stdout)
    validator = jsonschema_rs.validator_for(schema)
    value = load_document(Path("policy.yaml")).value
    assert validator.is_valid(value)
    assert not validator.is_valid(value | {"rule": []})
    assert schema["$id"] == "https://toolgate.github.io/toolgate/reference/policy.schema.json"
