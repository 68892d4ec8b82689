"""`toolgate rules`, in this process, at a live gateway."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from support.gateway import PASSWORD, Owner
from support.readme import blocks
from support.shell import Shell
from support.team import Colleague

pytestmark = pytest.mark.sqlite_only("commands speak HTTP: which database is behind it they cannot see")


def rules(owner: Owner, environment: str = "production") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = owner.http.get(f"/api/rules?environment={environment}").json()
    return found


def code(owner: Owner, agent: str, action: str) -> str:
    return owner.check(agent, action).headers["x-reason-code"]


@pytest.fixture
def agent_id(owner: Owner) -> str:
    return owner.agent("refund-bot")


def test_rule_is_created_with_all_options(shell: Shell, owner: Owner, agent_id: str) -> None:
    other = owner.agent("mail-bot")
    printed = shell.allowed(
        *("rules", "create", "Large refunds", "--effect", "require_approval", "--agent", "refund-bot"),
        *("--agent", other, "--action", "stripe.refund", "--action", "paypal.*"),
        *("--when", "args.amount > 100", "--quorum", "2", "--ttl", "2h", "--approver", owner.email),
    )
    [made] = rules(owner)
    assert printed == f"created Large refunds, rule {made['id']}\n"
    assert {name: made[name] for name in ("name", "effect", "actions", "when", "enabled")} == {
        "name": "Large refunds",
        "effect": "require_approval",
        "actions": ["stripe.refund", "paypal.*"],
        "when": "args.amount > 100",
        "enabled": True,
    }
    assert set(made["agents"]) == {agent_id, other}
    assert made["approval"] == {"quorum": 2, "ttl": 7200, "approvers": [owner.user["id"]]}
    listed = shell.done("rules", "list")
    shown = shell.done("rules", "show", "Large refunds")
    for text in ("refund-bot", "stripe.refund", "args.amount > 100", "enabled", made["id"]):
        assert text in listed
        assert text in shown
    assert "2 people, within 2 h" in shown
    assert shell.json("rules", "list") == [made]
    assert shell.json("rules", "show", made["id"][:-3]) == made


def test_rule_is_disabled_enabled_and_deleted(shell: Shell, owner: Owner, agent_id: str) -> None:
    owner.permit(agent_id, "db.drop")
    assert shell.done("rules", "list").startswith("no rules in the production environment at http")
    shell.allowed("rules", "create", "No drops", "--effect", "forbid", "--action", "db.*", "--disabled")
    [made] = rules(owner)
    assert code(owner, agent_id, "db.drop") == "allowed"
    assert shell.allowed("rules", "enable", "No drops") == f"enabled No drops, rule {made['id']}\n"
    assert code(owner, agent_id, "db.drop") == "forbidden_by_rule"
    assert shell.allowed("rules", "disable", "No drops") == f"disabled No drops, rule {made['id']}\n"
    assert code(owner, agent_id, "db.drop") == "allowed"
    deleted = shell.allowed("rules", "delete", made["id"][:-3], "--yes")
    assert deleted == f"deleted No drops, rule {made['id']}\n"
    assert rules(owner) == []


def test_update_changes_only_the_given_parts(shell: Shell, owner: Owner, agent_id: str) -> None:
    shell.allowed(
        *("rules", "create", "Refunds", "--effect", "require_approval", "--action", "a.b", "--when", "true"),
        *("--quorum", "3", "--approver", owner.email),
    )
    [before] = rules(owner)

    def updated(*options: str) -> dict[str, Any]:
        shell.allowed("rules", "update", before["id"], *options)
        return rules(owner)[0] | {"updated_at": None}

    terms = before["approval"]
    after = updated("--ttl", "90s")
    assert after == before | {"approval": terms | {"ttl": 90}}
    after = updated("--quorum", "1")
    assert after["approval"] == terms | {"ttl": 90, "quorum": 1}
    after = updated("--name", "Payouts", "--action", "c.*", "--agent", "refund-bot", "--no-when")
    assert (after["name"], after["actions"], after["agents"], after["when"]) == (
        "Payouts",
        ["c.*"],
        [agent_id],
        None,
    )
    after = updated("--no-terms", "--agent", "*")
    assert (after["agents"], after["approval"]) == (["*"], {"quorum": None, "ttl": None, "approvers": None})
    assert updated("--effect", "forbid")["approval"] is None


def test_rule_of_one_environment_is_created_in_the_other_from_a_file(
    shell: Shell, owner: Owner, tmp_path: Path
) -> None:
    shell.allowed(
        *("rules", "create", "Large", "--effect", "require_approval", "--action", "a.*", "--quorum", "2"),
        *("--when", "args.n > 1", "--environment", "test"),
    )
    text = shell.done("rules", "show", "Large", "--environment", "test", "--json")
    file = tmp_path / "rule.json"
    file.write_text(text)
    shell.allowed("rules", "create", "--from", str(file))
    [copied], [original] = rules(owner), rules(owner, "test")
    names = ("name", "effect", "agents", "actions", "when", "approval", "enabled")
    assert {name: copied[name] for name in names} == {name: original[name] for name in names}


def test_rule_is_read_from_standard_input_and_then_needs_a_terminal(
    shell: Shell, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"name": "Piped", "effect": "forbid", "actions": ["a.b"]}
    monkeypatch.setattr("toolgate_cli.credentials.ask_password", lambda *_, **__: PASSWORD)
    shell.done("rules", "create", "--from", "-", typed=json.dumps(body))
    assert [rule["name"] for rule in rules(owner)] == ["Piped"]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("create", "x", "--action", "a"), "--effect"),
        (("create", "x", "--effect", "forbid"), "--action"),
        (("create", "--effect", "forbid", "--action", "a"), "NAME"),
        (("create", "x", "--from", "rule.json"), "exclude each other"),
        (("create", "--from", "missing.json"), "cannot read missing.json"),
        (("create", "--from", "-", "--password-stdin"), "both read standard input"),
        (("create", "x", "--effect", "forbid", "--action", "a", "--ttl", "soon"), "--ttl"),
        (("create", "x", "--effect", "forbid", "--action", "a", "--ttl", "31d"), "from 1s to 30d"),
        (("update", "Kept"), "toolgate rules update --help"),
        (("update", "Kept", "--when", "true", "--no-when"), "exclude each other"),
        (("update", "Kept", "--quorum", "2", "--no-terms"), "--no-terms"),
        (("update", "nothing", "--name", "x"), "toolgate rules list"),
        (("show", "nothing"), "toolgate rules list"),
        (("delete", "0000", "--yes"), "toolgate rules list"),
        (("enable", ""), "toolgate rules list"),
    ],
    ids=" ".join,
)
def test_invalid_options_are_named_and_change_nothing(
    shell: Shell, owner: Owner, arguments: tuple[str, ...], hint: str
) -> None:
    owner.http.post("/api/rules", json={"name": "Kept", "effect": "forbid", "actions": ["a.b"]})
    before = rules(owner)
    assert hint in shell.refused("rules", *arguments)
    assert rules(owner) == before


@pytest.mark.parametrize("content", ["[]", "{", '"x"', '{"a": 1, "a": 2}', "\x00"])
def test_file_that_is_not_a_json_object_is_refused(shell: Shell, tmp_path: Path, content: str) -> None:
    file = tmp_path / "rule.json"
    file.write_text(content)
    assert "JSON" in shell.refused("rules", "create", "--from", str(file))


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (("--when", "args.amount >"), "when: Invalid expression"),
        (("--when", "amount > 3"), "Unknown variable or function 'amount'"),
        (("--agent", "nobody"), "not the id or name of an agent"),
        (("--quorum", "2"), "cannot have terms of an approval"),
        (("--action", "a*b"), "stripe.*"),
    ],
    ids=str,
)
def test_gateway_explains_what_is_wrong_with_a_rule(
    shell: Shell, owner: Owner, options: tuple[str, ...], hint: str
) -> None:
    words = ("rules", "create", "x", "--effect", "forbid", "--action", "a.b", *options, "--password-stdin")
    assert hint in shell.refused(*words, typed=f"{PASSWORD}\n")
    assert rules(owner) == []


def test_member_reads_rules_and_changes_none(owner: Owner, home: Path) -> None:
    owner.http.post("/api/rules", json={"name": "Kept", "effect": "forbid", "actions": ["a.b"]})
    with Colleague(owner) as member:
        shell = Shell.of(member)
        assert "Kept" in shell.done("rules", "list")
        words = ("rules", "delete", "Kept", "--yes", "--password-stdin")
        assert "only an admin may do that" in shell.refused(*words, typed=f"{PASSWORD}\n")
    assert len(rules(owner)) == 1


def test_commands_of_the_page_about_rules_print_what_it_shows(
    shell: Shell, owner: Owner, agent_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner.permit(agent_id, "stripe.refund")
    monkeypatch.setenv("TOOLGATE_API_KEY", owner.key)
    monkeypatch.setenv("TOOLGATE_AGENT_ID", agent_id)
    monkeypatch.chdir(tmp_path)
    ran = 0
    for block in blocks("docs/guides/rules.md", "console"):
        lines = block.replace("\\\n", " ")
        for command, output in re.findall(r"^\$ toolgate (.*)\n((?:[^$].*\n)*)", lines, re.MULTILINE):
            words = shlex.split(command.replace("ada@example.com", owner.email))
            file = words[words.index(">") + 1] if ">" in words else None
            if words[:2] == ["rules", "delete"]:
                words.append("--yes")
            if words[0] == "rules" and words[1] not in {"list", "show"}:
                words.append("--password-stdin")
            if file is not None:
                # The page copies a rule of the test environment, which the commands before have not created.
                words = [*words[: words.index(">")], "--environment", "production"]
            ended = shell.run(*words, typed=f"{PASSWORD}\n")
            assert ended.exit_code == (3 if words[0] == "check" else 0), (words, ended.output)
            if file is not None:
                copied = json.loads(ended.stdout) | {"name": "Copied"}
                (tmp_path / file).write_text(json.dumps(copied))
            if output:
                ids = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
                assert ids.sub("ID", ended.stdout) == ids.sub("ID", output)
                ran += 1
    assert ran == 3
    assert [rule["name"] for rule in rules(owner)] == ["Copied", "No refunds abroad"]
