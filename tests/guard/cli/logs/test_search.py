"""`toolgate logs search` and `export`, in this process, at a live gateway."""

import csv
import io
import json
import stat
import unicodedata
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.bulk import write_entries
from support.gateway import LiveGateway, Owner
from support.pretend_gateway import PretendGateway
from support.shell import Shell

pytestmark = pytest.mark.sqlite_only("commands speak HTTP: which database is behind it they cannot see")

HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
HOSTILE = "a\x1b[2J\u202e\u2028\n[bold]"


@pytest.fixture
def agent_id(owner: Owner) -> str:
    return owner.agent("refund-bot")


def found(shell: Shell, *options: str) -> list[dict[str, Any]]:
    out = shell.done("logs", "search", "--json", *options)
    assert out.isascii()
    return [json.loads(line) for line in out.splitlines()]


def test_entries_are_searched(shell: Shell, owner: Owner, agent_id: str) -> None:
    """By agent, action, status, time and text; in JSON with the API's fields, newest first."""
    other = owner.agent("mail-bot")
    owner.log(agent_id, "stripe.refund", context={"amount": 250, "to": "Ada@Example.test"})
    owner.log(agent_id, "stripe.refund", "failed", context={"error": {"type": "Timeout"}})
    owner.log(other, "mail.send", context={"lines": ["Hello", "World"]})
    everything = found(shell)
    listed = owner.entries()
    assert everything == listed
    assert found(shell, "--agent", "mail-bot") == found(shell, "--agent", other) == listed[:1]
    assert found(shell, "--action", "stripe.refund") == listed[1:]
    assert found(shell, "--status", "failed") == listed[1:2]
    assert found(shell, "--text", "ada@example") == listed[2:]
    assert found(shell, "--text", "TIMEOUT") == listed[1:2]
    assert found(shell, "--text", "world") == found(shell, "--text", "lines") == listed[:1]
    assert found(shell, "--from", listed[1]["created_at"], "--to", listed[0]["created_at"]) == listed[1:2]
    assert found(shell, "--from", "1h") == listed
    assert found(shell, "--to", "1h") == found(shell, "--environment", "test") == []
    assert "no entries in the production environment at" in shell.done("logs", "search", "--text", "nowhere")


def test_pages_follow_each_other(
    shell: Shell, live_gateway: LiveGateway, owner: Owner, agent_id: str
) -> None:
    """--limit and --offset cut the same list; whether more follows is told."""
    write_entries(live_gateway, owner, [agent_id], 250)
    ids = [entry["id"] for entry in found(shell, "--limit", "10000")]
    assert len(ids) == 250
    pages = [found(shell, "--limit", "100", "--offset", str(offset)) for offset in (0, 100, 200)]
    assert [entry["id"] for page in pages for entry in page] == ids
    assert "--offset 50" in shell.done("logs", "search")
    assert "more" not in shell.done("logs", "search", "--limit", "250")
    assert "more" not in shell.done("logs", "search", "--limit", "5", "--offset", "245")


def test_digits_are_kept(shell: Shell, owner: Owner, agent_id: str) -> None:
    """A number is printed as it was recorded."""
    digits = "12345678901234567890.1234567890123456789"
    body = f'{{"agent_id":"{agent_id}","action":"a.b","status":"success","context":{{"amount":{digits}}}}}'
    answer = httpx.post(f"{owner.url}/sdk/log", content=body, headers={"X-API-Key": owner.key}, timeout=30)
    assert answer.status_code == 200
    for words in (["search"], ["search", "--json"], ["export"]):
        assert digits in shell.done("logs", *words)


def test_hostile_entries_are_shown(shell: Shell, owner: Owner, agent_id: str) -> None:
    """Whatever an agent recorded, no character of it moves a cursor or hides, and a row is a row."""
    owner.log(agent_id, "a.b", context={"amount": HOSTILE, HOSTILE: [HOSTILE], "empty": ""})
    out = shell.done("logs", "search")
    assert not {unicodedata.category(char) for char in out.replace("\n", "")} & HIDDEN
    assert "[bold]" in out
    assert len([line for line in out.splitlines() if "refund-bot" in line]) == 1


@pytest.mark.parametrize("name", ["log.jsonl", "log.json", "log.csv", "log"])
def test_an_export_is_a_file(
    shell: Shell, live_gateway: LiveGateway, owner: Owner, agent_id: str, home: Path, name: str
) -> None:
    """Its form follows its name; all entries that match are in it; it is its owner's alone."""
    newest = datetime.now(UTC)
    write_entries(live_gateway, owner, [agent_id], 230, newest=newest, context='{"note": "two\\nlines"}')
    path = home / name
    ended = shell.run(
        "logs", "export", "--output", str(path), "--from", (newest - timedelta(hours=1)).isoformat()
    )
    assert (ended.exit_code, ended.stdout) == (0, "")
    assert "230 entries" in ended.stderr
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text()
    if name.endswith(".csv"):
        entries = list(csv.DictReader(io.StringIO(text)))
    elif name.endswith(".json"):
        entries = json.loads(text)
    else:
        entries = [json.loads(line) for line in text.splitlines()]
    assert [one["id"] for one in entries] == [one["id"] for one in found(shell, "--limit", "10000")]
    assert [one.name for one in home.iterdir() if one.name.startswith(".log")] == []


def test_an_empty_export_is_a_whole_file(shell: Shell, owner: Owner, home: Path) -> None:
    """An array, headings, or nothing at all."""
    for form, content in (("json", "[]\n"), ("jsonl", "")):
        assert shell.done("logs", "export", "--format", form) == content
    assert shell.done("logs", "export", "--format", "csv").startswith("id,")


def test_an_export_that_breaks_off_leaves_no_file(gateway: PretendGateway, run: Any, home: Path) -> None:
    """A gateway that dies in the middle: one line, status 1, the former file untouched and no draft beside it."""
    gateway.raw["GET", "/api/logs/export"] = '{"id": "half'
    gateway.headers["GET", "/api/logs/export"] = {"Content-Length": "1000"}
    path = home / "log.jsonl"
    path.write_text("before")
    before = sorted(home.iterdir())
    ended = run("logs", "export", "--output", str(path), "--force")
    assert ended.exit_code == 1
    assert isinstance(ended.exception, SystemExit)
    (line,) = ended.stderr.splitlines()
    assert "does not respond" in line
    assert path.read_text() == "before"
    assert sorted(home.iterdir()) == before
    assert run("logs", "search").exit_code == 1


@pytest.mark.parametrize(
    "line", ["{", "1", "{}", '{"id": 1}', "\xff", "[" * 100_000], ids=lambda one: one[:9]
)
def test_what_is_no_entry_is_refused(gateway: PretendGateway, run: Any, line: str) -> None:
    """What is no gateway of ours ends the search in one line."""
    gateway.raw["GET", "/api/logs/export"] = line
    ended = run("logs", "search")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert isinstance(ended.exception, SystemExit)
    assert len(ended.stderr.splitlines()) == 1
