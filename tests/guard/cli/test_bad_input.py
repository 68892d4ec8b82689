"""Bad input at every command: status 1 and one line that says what to do, or 2 from the parser; nothing changed."""

import unicodedata
from pathlib import Path
from typing import Any

import pytest
from support.gateway import PASSWORD, LiveGateway, Owner
from support.shell import Shell
from support.tables import contents

from toolgate_cli.credentials import login_path

pytestmark = pytest.mark.sqlite_only("commands speak HTTP: which database is behind it they cannot see")

TABLES = ("agents", "permissions", "api_keys", "log_entries", "approvals")
NOBODY = "00000000-0000-7000-8000-000000000000"
LONG = "x" * 300
HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}

#: words → what the line says
WRONG: dict[str, tuple[list[str], str]] = {
    "agent unknown": (["agents", "show", "nobody"], "toolgate agents list"),
    "agent id unknown": (["agents", "show", NOBODY], "toolgate agents list"),
    "agent id too short": (["agents", "disable", "0"], "toolgate agents list"),
    "agent name empty": (["agents", "show", ""], "toolgate agents list"),
    "agent a path": (["agents", "delete", "../../auth/logout", "--yes"], "toolgate agents list"),
    "agent hostile": (["agents", "enable", "\x1b[2J\u202e\ud800"], "\\x1b[2J"),
    "agent name too long": (["agents", "create", LONG], "1-100 printable"),
    "agent name blank": (["agents", "create", " "], "1-100 printable"),
    "agent name half a character": (["agents", "create", "\ud800"], "refused POST"),
    "agent description": (["agents", "create", "a", "--description", "x" * 1001], "at most 1000"),
    "update nothing": (["agents", "update", "bot"], "--name"),
    "update both": (
        ["agents", "update", "bot", "--description", "x", "--no-description"],
        "exclude each other",
    ),
    "update to nothing": (["agents", "update", "bot", "--name", ""], "1-100 printable"),
    "grant to nobody": (["permissions", "create", "nobody", "a.b"], "toolgate agents list"),
    "grant no action": (["permissions", "create", "bot", "two words"], "service.operation"),
    "grant long action": (["permissions", "create", "bot", LONG], "255"),
    "grant no number": (["permissions", "create", "bot", "a.b", "--max-amount", "many"], "--max-amount"),
    "grant negative": (["permissions", "create", "bot", "a.b", "--max-amount", "-1"], "--max-amount"),
    "grant infinity": (["permissions", "create", "bot", "a.b", "--max-amount", "Infinity"], "--max-amount"),
    "grant not a number": (["permissions", "create", "bot", "a.b", "--max-amount", "NaN"], "--max-amount"),
    "grant underscore": (["permissions", "create", "bot", "a.b", "--max-amount", "1_0"], "--max-amount"),
    "grant huge": (["permissions", "create", "bot", "a.b", "--max-amount", "1e999999999"], "--max-amount"),
    "grant dots": (["permissions", "create", "bot", "a.b", "--max-amount", "1.2.3"], "--max-amount"),
    "grant no span": (["permissions", "create", "bot", "a.b", "--approval-ttl", "soon"], "--approval-ttl"),
    "grant long span": (["permissions", "create", "bot", "a.b", "--approval-ttl", "31d"], "from 1s to 30d"),
    "grant no time": (["permissions", "create", "bot", "a.b", "--approval-ttl", "0s"], "from 1s to 30d"),
    "change nothing": (["permissions", "update", "bot", "mail.send"], "--help"),
    "change both": (
        ["permissions", "update", "bot", "mail.send", "--approval-ttl", "1h", "--no-approval-ttl"],
        "exclude each other",
    ),
    "change amounts": (
        ["permissions", "update", "bot", "mail.send", "--max-amount", "1", "--no-max-amount"],
        "exclude each other",
    ),
    "change what is not": (
        ["permissions", "update", "bot", "a.b", "--no-approval-ttl"],
        "toolgate permissions list",
    ),
    "revoke what is not": (["permissions", "delete", "bot", "a.b", "--yes"], "toolgate permissions list"),
    "revoke unasked": (["permissions", "delete", "bot", "mail.send"], "--yes"),
    "permissions of nobody": (["permissions", "list", "nobody"], "toolgate agents list"),
    "keys of nobody": (["keys", "list", "nobody"], "toolgate agents list"),
    "key for nobody": (["keys", "create", "nobody"], "toolgate agents list"),
    "key that is not": (["keys", "delete", "bot", NOBODY, "--yes"], "toolgate keys list"),
    "key a path": (["keys", "delete", "bot", "../..", "--yes"], "toolgate keys list"),
    "regenerate unasked": (["keys", "rotate"], "--yes"),
    "show without password": (["keys", "show"], "--password-stdin"),
    "webhook unknown": (["webhooks", "show", NOBODY], "toolgate webhooks list"),
    "webhook a path": (["webhooks", "delete", "../..", "--yes"], "toolgate webhooks list"),
    "webhook no change": (["webhooks", "update", NOBODY], "--help"),
    "webhook both events": (
        ["webhooks", "update", NOBODY, "--event", "a", "--all-events"],
        "exclude each other",
    ),
    "webhook both descriptions": (
        ["webhooks", "update", NOBODY, "--description", "x", "--no-description"],
        "exclude each other",
    ),
    "webhook without password": (["webhooks", "create", "https://hooks.example.com"], "--password-stdin"),
    "logs of nobody": (["logs", "search", "--agent", "nobody"], "toolgate agents list"),
    "logs no action": (["logs", "search", "--action", "two words"], "--action"),
    "logs no moment": (["logs", "search", "--from", "yesterday"], "--from"),
    "logs no date": (["logs", "search", "--to", "2026-02-30"], "--to"),
    "logs long ago": (["logs", "search", "--from", "99999999d"], "--from"),
    "logs year zero": (["logs", "search", "--from", "0001-01-01T00:00:00+23:00"], "--from"),
    "logs backwards": (["logs", "search", "--from", "1h", "--to", "2h"], "later"),
    "tail no moment": (["logs", "tail", "--from", "noon"], "--from"),
    "tail of nobody": (["logs", "tail", "--agent", "nobody"], "toolgate agents list"),
    "export to a folder": (["logs", "export", "--output", "/"], "regular file"),
    "export to nowhere": (["logs", "export", "--output", "/nowhere/log.csv"], "cannot write"),
    "export backwards": (["logs", "export", "--from", "2026-01-01", "--to", "2026-01-01"], "later"),
    "check no action": (["check", "two words"], "service.operation"),
    "check no field": (["check", "a.b", "--context", "amount"], "NAME=VALUE"),
    "check no object": (["check", "a.b", "--context-json", "[]"], "object"),
    "check blank agent": (["check", "a.b", "--agent", " "], "agent_id"),
    "check readable": (["check", "a.b", "--url", "http://gateway.example"], "https"),
    "check no address": (["check", "a.b", "--url", "gateway"], "https://gateway.example.com"),
    "check without a gateway": (["check", "a.b", "--url", "http://127.0.0.1:9"], "does not respond"),
}

#: words that the parser of the command line refuses
UNUSABLE = [
    ["agents"],
    ["agents", "show"],
    ["agents", "list", "--environment", "staging"],
    ["permissions", "create", "bot"],
    ["permissions", "create", "bot", "a.b", "--required-approvals", "0"],
    ["permissions", "create", "bot", "a.b", "--required-approvals", "eleven"],
    ["keys", "delete", "bot"],
    ["logs", "search", "--limit", "0"],
    ["logs", "search", "--offset", "-1"],
    ["logs", "search", "--status", "done"],
    ["logs", "tail", "--interval", "0"],
    ["logs", "export", "--format", "xml"],
    ["check"],
    ["doctor", "now"],
]


@pytest.fixture
def scene(shell: Shell, owner: Owner, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """An agent with a permission and a key of its own, and a check's settings."""
    agent_id = owner.agent("bot")
    owner.permit(agent_id, "mail.send", max_amount=5)
    owner.http.post(f"/api/agents/{agent_id}/keys")
    monkeypatch.setenv("TOOLGATE_API_KEY", owner.key)
    monkeypatch.setenv("TOOLGATE_AGENT_ID", agent_id)
    return shell


def stand(gateway: LiveGateway, owner: Owner) -> dict[str, list[str]]:
    return contents(gateway, TABLES, owner.user["organization_id"])


def test_what_is_wrong_is_told_and_changes_nothing(
    scene: Shell, live_gateway: LiveGateway, owner: Owner
) -> None:
    """Each case of the table: one line that names the cure, nothing on standard output, nothing at the gateway."""
    before = stand(live_gateway, owner)
    for name, (words, said) in WRONG.items():
        line = scene.refused(*words)
        assert said in line, (name, line)
        assert not {unicodedata.category(char) for char in line} & HIDDEN, (name, line)
        assert stand(live_gateway, owner) == before, name


@pytest.mark.parametrize("words", UNUSABLE, ids=" ".join)
def test_what_no_command_takes_is_wrong_use(home: Path, words: list[str]) -> None:
    """Status 2, before anybody is asked; nobody is even logged in."""
    ended = Shell().run(*words)
    assert ended.exit_code == 2
    assert isinstance(ended.exception, SystemExit)


def commands() -> list[list[str]]:
    """Every command that needs the stored login, with words that would do."""
    return [
        ["agents", "list"],
        ["agents", "show", "bot"],
        ["agents", "create", "another"],
        ["agents", "update", "bot", "--name", "b"],
        ["agents", "disable", "bot"],
        ["agents", "enable", "bot"],
        ["agents", "delete", "bot", "--yes"],
        ["permissions", "list", "bot"],
        ["permissions", "create", "bot", "a.b", "--password-stdin"],
        ["permissions", "update", "bot", "mail.send", "--no-approval-ttl", "--password-stdin"],
        ["permissions", "delete", "bot", "mail.send", "--yes", "--password-stdin"],
        ["keys", "show", "--password-stdin"],
        ["keys", "rotate", "--yes", "--password-stdin"],
        ["keys", "list", "bot"],
        ["keys", "create", "bot", "--password-stdin"],
        ["keys", "delete", "bot", NOBODY, "--yes", "--password-stdin"],
        ["webhooks", "list"],
        ["webhooks", "show", NOBODY],
        ["webhooks", "create", "https://hooks.example.com", "--password-stdin"],
        ["webhooks", "update", NOBODY, "--disable", "--password-stdin"],
        ["webhooks", "delete", NOBODY, "--yes", "--password-stdin"],
        ["logs", "tail"],
        ["logs", "search"],
        ["logs", "export"],
    ]


def test_a_broken_login_is_told(scene: Shell, live_gateway: LiveGateway, owner: Owner) -> None:
    """Missing, no JSON, readable for others, ended: every command says in one line to log in."""
    before = stand(live_gateway, owner)
    good = login_path().read_bytes()
    breaks: list[tuple[str, Any]] = [
        ("not logged in", login_path().unlink),
        ("log in again", lambda: login_path().write_bytes(b"{")),
        ("log in again", lambda: login_path().chmod(0o644)),
    ]
    for said, break_ in breaks:
        login_path().write_bytes(good)
        login_path().chmod(0o600)
        break_()
        for words in commands():
            assert said in scene.refused(*words, typed=PASSWORD), words
    assert stand(live_gateway, owner) == before


def test_a_login_that_has_ended_is_told(scene: Shell, live_gateway: LiveGateway, owner: Owner) -> None:
    """What the stored login does says to log in again; what asks for the password works, or says so too."""
    before = stand(live_gateway, owner)
    token = login_path().read_text()
    login_path().write_text(token.replace('"token": "', '"token": "x'))
    for words in commands():
        if words[:2] in (["keys", "show"], ["keys", "rotate"], ["webhooks", "create"]):
            continue
        line = scene.run(*words, typed=PASSWORD).stderr.splitlines()[-1]
        assert line == "toolgate: your login has expired or was revoked; log in again: toolgate login", words
    assert stand(live_gateway, owner) == before


def test_an_absent_gateway_is_told(scene: Shell, owner: Owner) -> None:
    """Every command but those that wait for it: one line with where nobody answers."""
    login_path().write_text(login_path().read_text().replace(owner.url, "http://127.0.0.1:9"))
    for words in commands():
        if words[:2] != ["logs", "tail"]:
            assert "http://127.0.0.1:9" in scene.refused(*words, typed=PASSWORD), words
