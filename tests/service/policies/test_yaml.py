"""Policy documents in YAML and JSON."""

import json
from decimal import Decimal

import pytest

from toolgate_service.core.errors import FieldErrors
from toolgate_service.policies.yaml import parse_policy

DOCUMENT = """\
# A comment
version: toolgate.policy/v1
agents:
  - name: refund-bot
    description: |
      Refunds orders.
    permissions:
      - action: stripe.refund
        max_amount: 50.10
      - {action: mail.send, requires_approval: true, required_approvals: 2}
  - name: "yes"
rules:
  - name: Not abroad
    effect: forbid
    actions: ["stripe.*"]
    when: args.country != 'DE'
budgets:
  - name: Refunds
    actions: [stripe.refund]
    window: day
    limit: 9007199254740993.1
"""


def test_yaml_has_exact_numbers() -> None:
    policy = parse_policy(DOCUMENT)
    first, second = policy.agents
    assert [one.max_amount for one in first.permissions] == [Decimal("50.10"), None]
    assert first.permissions[1].required_approvals == 2
    assert first.description == "Refunds orders.\n"
    assert second.name == "yes"
    assert policy.rules[0].when == "args.country != 'DE'"
    assert policy.budgets[0].limit == Decimal("9007199254740993.1")


def test_json_is_accepted() -> None:
    policy = parse_policy(DOCUMENT)
    text = json.dumps(policy.model_dump(), default=str, indent="\t")
    value = json.loads(text)
    value["agents"][0]["permissions"][0]["max_amount"] = 50.25
    value["budgets"][0]["limit"] = 100
    again = parse_policy(json.dumps(value))
    assert again.agents[0].permissions[0].max_amount == Decimal("50.25")
    assert again.budgets[0].limit == 100
    assert again.rules == policy.rules


VERSION = "version: toolgate.policy/v1\n"


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        ("", "policy", "must be a map"),
        ("- 1", "policy", "must be a map"),
        ("version: [", "policy", "line 1, column 11: while parsing a flow node"),
        ("version: 1\0", "policy", "NUL"),
        ("version: x", "version", "toolgate.policy/v1"),
        ("agents: []", "version", "This field is required"),
        (f"{VERSION}other: 1", "other", "Unknown field; remove it"),
        (
            f"{VERSION}version: toolgate.policy/v1",
            "policy",
            "line 2, column 1: the key 'version' appears more",
        ),
        (f"{VERSION}agents: &a []\nrules: *a", "policy", "aliases are not supported"),
        (f"{VERSION}agents: &a [*a]", "policy", "aliases are not supported"),
        (f"{VERSION}agents: !!python/name:os.system x", "policy", "is not supported"),
        (f"{VERSION}agents: !other []", "policy", "the tag '!other' is not supported"),
        (f"{VERSION}agents: !!set {{a}}", "policy", "is not supported"),
        (f"{VERSION}agents: !!binary aGk=", "policy", "'aGk=' is not supported"),
        (f"{VERSION}agents: {'[' * 50}{']' * 50}", "policy", "deeper than 32 levels"),
        (f"{VERSION}agents: {'[' * 20_000}", "policy", "too deeply"),
        (f"{VERSION}1: 2", "policy", "line 2, column 1: keys must be texts"),
        (f"{VERSION}<<: {{}}", "policy", "keys must be texts"),
        (f"{VERSION}a: .inf", "policy", "line 2, column 4: '.inf' is not a valid number"),
        (f"{VERSION}a: .nan", "policy", "not a valid number"),
        (f"{VERSION}a: 0x10", "policy", "not a valid number"),
        (f"{VERSION}a: 1_000", "policy", "not a valid number"),
        (f"{VERSION}a: 1e999", "policy", "not a valid number"),
        (f"{VERSION}a: {'1' * 401}", "policy", "not a valid number"),
        (f"{VERSION}agents: [{{name: a, enabled: 'x'}}]", "agents.0.enabled", "valid boolean"),
        (f"{VERSION}---\n{VERSION}", "policy", "expected a single document"),
    ],
)
def test_invalid_text_has_errors_with_positions(text: str, field: str, message: str) -> None:
    with pytest.raises(FieldErrors) as caught:
        parse_policy(text)
    detail = caught.value.detail
    assert isinstance(detail, dict)
    assert list(detail) == [field]
    assert message in detail[field][0], detail
