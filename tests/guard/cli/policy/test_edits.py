"""`toolgate policy pull` changes only the parts of a file that differ."""

import copy
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolgate_cli.policy.documents import DocumentError, parse_document
from toolgate_cli.policy.edits import edit_document, same
from toolgate_cli.policy.merge import header, identity, merge_policy, without_defaults
from toolgate_cli.policy.serializer import block_lines, json_text
from toolgate_service.cli.policy import validate_policy
from toolgate_service.policies.document import PolicyDocument, digest_of

PATH = Path("policy.yaml")
VERSION = "toolgate.policy/v1"
FILE = """\
# Policy of the shop.
version: toolgate.policy/v1   # do not change

agents:
  # Refunds orders.
  - name: "refund-bot"
    permissions:
      - {action: stripe.refund, max_amount: 50.00}   # limit
      - action: mail.send
        requires_approval: true
        # more mail follows
  # Reads only.
  - name: reader   # old

rules:
  - name: No refunds abroad
    effect: forbid
    actions: [
      "stripe.*",   # all
    ]
    when: >
      args.country
      != "DE"

  # Two people.
  - name: Two people
    effect: require_approval
    actions: ["b", a]
    approval:
      quorum: 2
      approvers:
        - ann@example.com  # Ann
        - Bob@example.com  # Bob
# The end.
"""


def pulled(text: str, new: dict[str, Any]) -> str:
    """Return the text of a file after a pull of the policy `new`."""
    document = parse_document(PATH, text)
    return edit_document(document, merge_policy(document.value, new), identity)


def complete(value: dict[str, Any]) -> dict[str, Any]:
    """Return a policy as the gateway returns it: with all fields."""
    policy = PolicyDocument.model_validate(value)
    policy.verify()
    return policy.model_dump()


def digest(value: dict[str, Any]) -> str:
    return digest_of(PolicyDocument.model_validate(value))


def read(text: str = FILE) -> dict[str, Any]:
    value: dict[str, Any] = parse_document(PATH, text).value
    return value


def test_unchanged_policy_leaves_every_byte() -> None:
    new = complete(read())
    new["agents"].reverse()
    new["rules"][1]["actions"].reverse()
    new["rules"][1]["approval"]["approvers"] = ["bob@example.com", "ann@example.com"]
    assert pulled(FILE, new) == FILE


def test_each_change_touches_only_its_lines() -> None:
    new = complete(read())
    refund, mail = new["agents"][0]["permissions"]
    refund["max_amount"] = 80
    mail["max_amount"] = Decimal("7.50")
    new["agents"][0]["permissions"].append(mail | {"action": "mail.read", "max_amount": None})
    new["agents"][0]["description"] = "Refunds: orders"
    new["rules"][0]["when"] = 'args.x == "a" ? true : false'
    new["rules"][1]["approval"]["approvers"] = ["bob@example.com", "carl@example.com"]
    new["rules"].append(new["rules"][0] | {"name": "New", "when": None})
    del new["agents"][1]
    new["budgets"] = [{"name": "Calls", "actions": ["*"], "window": "day", "limit": 3}]
    text = pulled(FILE, complete(new))
    expected = (
        FILE.replace("{action: stripe.refund, max_amount: 50.00}", "{action: stripe.refund, max_amount: 80}")
        .replace(
            "        # more mail follows\n",
            "        # more mail follows\n"
            "        max_amount: 7.50\n"
            "      - action: mail.read\n"
            "        requires_approval: true\n"
            '    description: "Refunds: orders"\n',
        )
        .replace("  # Reads only.\n  - name: reader   # old\n", "")
        .replace('>\n      args.country\n      != "DE"\n', "'args.x == \"a\" ? true : false'\n")
        .replace("        - ann@example.com  # Ann\n", "")
        .replace(
            "# Bob\n",
            "# Bob\n        - carl@example.com\n\n"
            "  - name: New\n    effect: forbid\n    actions: [stripe.*]\n\n"
            'budgets:\n  - name: Calls\n    actions: ["*"]\n    window: day\n    limit: 3\n',
        )
    )
    assert text == expected


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        ("rules: []", {"rules": [{"name": "a"}]}, "rules:\n  - name: a"),
        (
            "rules:\n- name: a\n# end",
            {"rules": [{"name": "a"}, {"name": "b"}]},
            "rules:\n- name: a\n- name: b\n# end",
        ),
        ("rules:\n- name: a\n- name: b", {"rules": [{"name": "b"}]}, "rules:\n- name: b"),
        ("rules:\n- name: a", {"rules": []}, "rules: []"),
        ("rules: [{name: a, x: 1}]", {"rules": [{"name": "a", "x": 2}]}, "rules:\n  - name: a\n    x: 2"),
        ("a:\n  - x  # x\n  - y", {"a": ["y", "z"]}, "a:\n  - y\n  - z"),
        ("a: # empty", {"a": 1}, "a: 1 # empty"),
        ("a: 1  # one", {"a": Decimal("1.5")}, "a: 1.5  # one"),
        ("a:\n  b: 1\n  c: 2", {"a": {"b": 1}}, "a:\n  b: 1"),
        ("a: |\n  x\n\n  y\n\nb: 1", {"a": "z", "b": 1}, "a: z\n\nb: 1"),
        ("rules:\n  - x: 1\n    name: a", {"rules": [{"name": "a"}]}, "rules:\n  - name: a"),
        ("a: &x [1]\nb: *x", {"a": [1], "b": [2]}, "a: &x [1]\nb: [2]"),
    ],
)
def test_forms_of_yaml_are_changed(before: str, change: dict[str, Any], after: str) -> None:
    assert edit_document(parse_document(PATH, f"{before}\n"), change, identity) == f"{after}\n"


def test_anchored_value_that_changes_is_refused() -> None:
    document = parse_document(PATH, "a: &x [1]\nb: *x\n")
    with pytest.raises(DocumentError, match="replace its anchors and aliases by their values"):
        edit_document(document, {"a": [2], "b": [1]}, identity)


def test_file_without_a_last_line_feed_is_changed() -> None:
    assert (
        pulled("version: v\nagents:\n  - name: a", {"version": "v", "agents": []})
        == "version: v\nagents: []\n"
    )


def test_only_the_resources_of_the_plan_are_merged() -> None:
    """The file may name an agent by its id, and the gateway by its name: that is no difference."""
    old = {"version": VERSION, "rules": [{"name": "a", "agents": ["id"]}, {"name": "b", "agents": ["id"]}]}
    new = {"version": VERSION, "rules": [{"name": "a", "agents": ["bot"]}, {"name": "b", "agents": ["bot"]}]}
    merged = merge_policy(old, new, {("rule", "b")})
    assert merged["rules"] == [{"name": "a", "agents": ["id"]}, {"name": "b", "agents": ["bot"]}]


def test_items_that_are_not_in_the_plan_stay_in_the_file() -> None:
    text = f"version: {VERSION}\nagents:\n  - name: a\n  - name: mine\nrules:\n  - name: mine\n    actions: [x]\n"
    new = {
        "version": VERSION,
        "agents": [{"name": "a", "permissions": [{"action": "x"}, {"action": "y.z"}]}, {"name": "b"}],
    }
    document = parse_document(PATH, text)
    merged = merge_policy(document.value, new, {("permission", "a y.z")})
    assert edit_document(document, merged, identity) == text.replace(
        "name: a\n", "name: a\n    permissions:\n      - action: y.z\n"
    )


def test_agents_are_matched_by_id() -> None:
    one, two = "019c6d1e-2f07-7c3e-b6a8-64e1f0c2d935", "019c6d1e-2f07-7c3e-b6a8-64e1f0c2d936"
    text = f"version: {VERSION}\nagents:\n  - name: a  # first\n    id: {one}\n  - name: a\n    id: {two}\n"
    agents = [{"name": "a", "id": two}, {"name": "renamed", "id": one}]
    assert pulled(text, {"version": VERSION, "agents": agents}) == text.replace(
        "a  # first", "renamed  # first"
    )
    kept = [{"name": "a", "id": None, "enabled": False}]
    assert pulled(text, {"version": VERSION, "agents": kept}) == (
        f"version: {VERSION}\nagents:\n  - name: a  # first\n    id: {one}\n    enabled: false\n"
    )


NAMES = st.text(
    st.characters(codec="utf-8", categories=("L", "M", "N", "P", "S"), include_characters=" :#-'\"[]{}*&!%@"),
    min_size=1,
    max_size=12,
).filter(lambda text: text.strip() == text)
ACTIONS = st.from_regex(r"[a-z]{1,3}\.[a-z]{1,3}", fullmatch=True)
AMOUNTS = st.decimals(0, 10**6, allow_nan=False, places=3) | st.integers(0, 10**12)
PERMISSIONS = st.fixed_dictionaries(
    {"action": ACTIONS},
    optional={
        "max_amount": st.none() | AMOUNTS,
        "requires_approval": st.booleans(),
        "required_approvals": st.integers(1, 3),
        "approval_ttl_seconds": st.none() | st.integers(1, 99),
    },
)
DESCRIPTIONS = st.text(st.sampled_from("ab: #'\"\n\t\\-é😀{}[],&*!|>%@`\u2028\u00a0"), max_size=15)
AGENTS = st.fixed_dictionaries(
    {"name": NAMES},
    optional={
        "description": st.none() | DESCRIPTIONS,
        "enabled": st.booleans(),
        "permissions": st.lists(PERMISSIONS, max_size=3, unique_by=lambda one: one["action"]),
    },
)
TERMS = st.fixed_dictionaries(
    {},
    optional={
        "quorum": st.integers(1, 3),
        "ttl": st.none() | st.integers(1, 99),
        "approvers": st.lists(
            st.sampled_from(["Ann@example.com", "bob@example.com"]), min_size=1, unique=True
        ),
    },
)
RULES = st.fixed_dictionaries(
    {
        "name": NAMES,
        "effect": st.sampled_from(["forbid", "allow", "require_approval"]),
        "actions": st.lists(ACTIONS, min_size=1, max_size=3, unique=True),
    },
    optional={
        "enabled": st.booleans(),
        "when": st.none()
        | st.sampled_from(['args.a == "x: #y"', "args.a > 1", "'a' in args", 'args.a\n== "b"']),
        "approval": st.none() | TERMS,
    },
).map(lambda rule: rule if rule["effect"] == "require_approval" else rule | {"approval": None})
BUDGETS = st.fixed_dictionaries(
    {
        "name": NAMES,
        "actions": st.lists(ACTIONS, min_size=1, max_size=2, unique=True),
        "window": st.sampled_from(["day", "rolling(60)"]),
        "limit": AMOUNTS,
    },
    optional={"measure": st.sampled_from(["count", "sum(args.amount)"]), "enabled": st.booleans()},
)


def by_name(items: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(items, max_size=3, unique_by=lambda one: one["name"])


POLICIES = st.fixed_dictionaries(
    {"version": st.just(VERSION)},
    optional={"agents": by_name(AGENTS), "rules": by_name(RULES), "budgets": by_name(BUDGETS)},
).filter(lambda value: validate_policy(value) == {})


def commented(text: str) -> str:
    """Return the text with a comment at the end of each line, and one above each item."""
    lines = []
    for number, line in enumerate(text.splitlines()):
        margin = re.match(r" *", line)
        assert margin is not None
        above = [f"{margin[0]}# above {number}"] if line.lstrip().startswith("- ") else []
        lines += [*above, f"{line}  # line {number}"]
    return "\n".join([*lines, ""])


@settings(deadline=None)
@given(POLICIES)
def test_new_file_has_the_same_content(value: dict[str, Any]) -> None:
    compact = without_defaults(complete(value))
    assert same(parse_document(Path("policy.json"), json_text(compact)).value, compact)
    text = header() + "".join(f"{line}\n" for line in block_lines(compact))
    assert same(read(text), compact)
    assert digest(compact) == digest(value)
    assert pulled(text, complete(value)) == text


def mixed(one: dict[str, Any], other: dict[str, Any], pick: list[bool]) -> dict[str, Any]:
    """Return a policy with items of two policies, some with the content of the other one."""
    result = copy.deepcopy(one)
    for kind in ("agents", "rules", "budgets"):
        items = result.get(kind, [])
        for index, (item, new, use) in enumerate(zip(items, other.get(kind, []), pick, strict=False)):
            items[index] = new | {"name": item["name"]} if use else item
        names = {item["name"] for item in items}
        items += [new for new in other.get(kind, []) if new["name"] not in names]
        result[kind] = [item for item, use in zip(items, pick, strict=False) if use] if pick[-1] else items
    return result


@settings(max_examples=2 * settings().max_examples, deadline=None)
@given(POLICIES, POLICIES, st.lists(st.booleans(), min_size=8, max_size=8))
def test_pulled_file_has_the_content_of_the_gateway_and_keeps_comments(
    value: dict[str, Any], other: dict[str, Any], pick: list[bool]
) -> None:
    new = mixed(value, other, pick)
    text = commented("".join(f"{line}\n" for line in block_lines(without_defaults(complete(value)))))
    result = pulled(text, complete(new))
    assert digest(read(result)) == digest(new)
    assert pulled(result, complete(new)) == result
    # A line of the file with its comment stays, unless its value, item or field is not in the result.
    old_lines, lines = text.splitlines(), set(result.splitlines())
    unchanged = _unchanged_items(read(text), complete(new))
    for name in unchanged:
        start = next(i for i, line in enumerate(old_lines) if re.match(f'  - name: "?{name}"?  #', line))
        block = [old_lines[start]]
        for line in old_lines[start + 1 :]:
            if not line.startswith("    "):
                break
            block.append(line)
        assert {*block} <= lines


def _unchanged_items(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return the plain names of the items that are equal in both policies."""
    before = complete(old)
    return [
        str(item["name"])
        for kind in ("agents", "rules", "budgets")
        for item in before[kind]
        if item in new[kind] and re.fullmatch(r"[a-z]{2,}", str(item["name"]))
    ]
