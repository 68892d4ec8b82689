"""One set of verbs for agents, permissions, keys and webhooks, and the former verbs as hidden aliases."""

from pathlib import Path
from typing import Any

import pytest
from support.shell import Shell
from typer.main import get_command

from toolgate_cli.app import app
from toolgate_cli.renamed import COMMANDS, OPTIONS

ROOT: Any = get_command(app)
VERBS = {"list", "show", "create", "update", "delete"}


@pytest.mark.parametrize("group", ["agents", "permissions", "rules", "budgets", "webhooks"])
def test_resources_have_the_same_verbs(group: str) -> None:
    visible = {name for name, command in ROOT.commands[group].commands.items() if not command.hidden}
    assert visible >= VERBS


def test_keys_have_no_fields_to_update() -> None:
    visible = {name for name, command in ROOT.commands["keys"].commands.items() if not command.hidden}
    assert visible == VERBS - {"update"} | {"rotate"}


@pytest.mark.parametrize(
    ("group", "former", "verb"),
    [
        ("agents", "activate", "enable"),
        ("agents", "deactivate", "disable"),
        ("permissions", "grant", "create"),
        ("permissions", "change", "update"),
        ("permissions", "revoke", "delete"),
        ("keys", "regenerate", "rotate"),
        ("outbox", "drop", "purge"),
        ("grants", "delete", "revoke"),
        ("approvals", "reject", "deny"),
    ],
)
def test_former_verbs_are_hidden_aliases(group: str, former: str, verb: str) -> None:
    commands = ROOT.commands[group].commands
    assert commands[former].hidden
    assert not commands[verb].hidden
    assert [one.opts for one in commands[former].params] == [one.opts for one in commands[verb].params]
    assert commands[former].help == commands[verb].help


@pytest.mark.parametrize(
    ("words", "former", "name"),
    [
        (("permissions", "create"), "--ttl", "--approval-ttl"),
        (("permissions", "update"), "--ttl", "--approval-ttl"),
        (("permissions", "update"), "--no-ttl", "--no-approval-ttl"),
        (("approvals", "approve"), "--any", "--ignore-field"),
        (("logs", "search"), "--text", "--query"),
        (("logs", "tail"), "--text", "--query"),
    ],
)
def test_former_options_still_work(words: tuple[str, str], former: str, name: str) -> None:
    group, verb = words
    options = [set(one.opts) for one in ROOT.commands[group].commands[verb].params]
    assert any({former, name} <= names for names in options)


@pytest.mark.parametrize(
    ("words", "warnings"),
    [
        (
            ("keys", "regenerate"),
            ["'keys regenerate' is deprecated and accepted until version 0.2; use 'keys rotate'"],
        ),
        (
            ("permissions", "grant", "bot", "mail.send", "--ttl=1h"),
            [
                "'permissions grant' is deprecated and accepted until version 0.2; use 'permissions create'",
                "--ttl is deprecated and accepted until version 0.2; use --approval-ttl",
            ],
        ),
        (
            ("logs", "search", "--text", "a"),
            ["--text is deprecated and accepted until version 0.2; use --query"],
        ),
        (("permissions", "create", "bot", "mail.send", "--approval-ttl", "1h"), []),
        (("permissions", "create", "--", "--ttl", "mail.send"), []),
    ],
)
def test_a_former_name_is_reported_once(home: Path, words: tuple[str, ...], warnings: list[str]) -> None:
    """Before anything else; each of these commands then fails, because nobody is logged in."""
    ended = Shell().run(*words)
    assert ended.exit_code == 1
    assert ended.stdout == ""
    *lines, error = ended.stderr.splitlines()
    assert lines == [f"toolgate: {warning}" for warning in warnings]
    assert "login" in error


def test_renamed_commands_and_options_exist() -> None:
    for group, names in COMMANDS.items():
        assert ROOT.commands[group].commands.keys() >= {*names, *names.values()}
    groups = [ROOT.commands[name].commands.values() for name in ("permissions", "approvals", "logs")]
    options = {name for commands in groups for one in commands for param in one.params for name in param.opts}
    assert options >= {*OPTIONS, *OPTIONS.values()}
