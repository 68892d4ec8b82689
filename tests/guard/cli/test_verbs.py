"""One set of verbs for agents, permissions, keys and webhooks, and the former verbs as hidden aliases."""

from typing import Any

import pytest
from typer.main import get_command

from toolgate_cli.app import app

ROOT: Any = get_command(app)
VERBS = {"list", "show", "create", "update", "delete"}


@pytest.mark.parametrize("group", ["agents", "permissions", "webhooks"])
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
