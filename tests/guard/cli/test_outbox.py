"""`toolgate outbox`, in this process, with outboxes that guards have filled."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.gateway import LiveGateway, Owner
from typer.testing import CliRunner

from toolgate import Guard
from toolgate._call import new_entry
from toolgate_cli.app import app

pytestmark = pytest.mark.sqlite_only("commands speak HTTP: which database is behind it they cannot see")

Run = Callable[..., Any]
SECRET = "sesame-open-sesame"


@pytest.fixture
def run(home: Path) -> Run:
    def run(*arguments: str) -> Any:
        return CliRunner().invoke(app, ["outbox", *arguments])

    return run


@pytest.fixture
def environment(
    home: Path, live_gateway: LiveGateway, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """The agent's own settings, with an agent that may add."""
    agent_id = owner.agent()
    owner.permit(agent_id, "math.add")
    settings = {"URL": live_gateway.url, "API_KEY": owner.key, "AGENT_ID": agent_id}
    for name, value in settings.items():
        monkeypatch.setenv(f"TOOLGATE_{name}", value)
    return settings


def leave(*actions: str, agent_id: str | None = None, parked: str | None = None) -> None:
    """Have a process record actions and die before it sends them."""
    with Guard() as guard:
        sender = guard._guard_state.recorder.sender()
        for action in actions:
            entry = new_entry(
                action=action,
                agent_id=agent_id or guard._guard_state.settings.agent_id or "",
                status="success",
                context={"note": SECRET},
            )
            sender.outbox.add(entry)
        if parked is not None:
            rows = sender.outbox.batch(old=False, after=0, limit=100)
            sender.outbox.settle([], [(row, parked) for row in rows])
        sender.outbox.close()
        # Closed as if nothing were left to send.
        guard._guard_state._closed = True


def listed(run: Run) -> list[dict[str, Any]]:
    ended = run("list", "--json")
    assert ended.exit_code == 0, ended.output
    found: list[dict[str, Any]] = json.loads(ended.stdout)
    return found


def refused(ended: Any) -> str:
    assert (ended.exit_code, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    return str(line)


def test_what_is_left_is_listed(run: Run, environment: dict[str, str]) -> None:
    """Key, state, action and gateway of each entry, and never an argument or the API key."""
    leave("math.add", "mail.send")
    found = listed(run)
    assert [(one["state"], one["action"], one["status"]) for one in found] == [
        ("left", "math.add", "success"),
        ("left", "mail.send", "success"),
    ]
    assert {one["url"] for one in found} == {environment["URL"]}
    shown = run("list")
    assert shown.exit_code == 0
    assert found[0]["key"][:12] in shown.stdout
    assert "2 left" in shown.stdout
    for secret in (SECRET, environment["API_KEY"]):
        assert secret not in shown.output + json.dumps(found)


def test_so_many_are_listed(run: Run, environment: dict[str, str]) -> None:
    """`--limit` shows the oldest, as a table and as JSON; what is counted is all there is."""
    leave("one.one", "two.two", "three.three")
    found = json.loads(run("list", "--json", "--limit", "2").stdout)
    assert [one["action"] for one in found] == ["one.one", "two.two"]
    shown = run("list", "--limit", "1").stdout
    assert ("one.one" in shown, "two.two" in shown, "3 left" in shown) == (True, False, True)


def test_live_and_dead_are_told_apart(run: Run, environment: dict[str, str]) -> None:
    """What a live process runs or sends is its own; what a dead one ran is an orphan."""
    with Guard() as guard:
        seen: list[str] = []
        guard.guarded("math.add")(lambda: seen.extend(one["state"] for one in listed(run)))()
        assert seen == ["running"]
        assert guard.flush()
        lock = guard._guard_state.recorder.sender().outbox._file_lock
        assert lock is not None
        guard.guarded("math.add")(
            lambda: (lock.release(), seen.extend(one["state"] for one in listed(run)))
        )()
        assert seen[1] == "orphan"


def test_retry_sends_what_was_left(run: Run, environment: dict[str, str], owner: Owner) -> None:
    """Everything the gateway takes is there afterwards, and the outbox is empty."""
    leave("math.add", "math.add")
    ended = run("retry")
    assert ended.exit_code == 0, ended.output
    assert [entry["action"] for entry in owner.entries()] == ["math.add", "math.add"]
    assert listed(run) == []
    assert "no unsent entries" in run("list").stdout


def test_retry_puts_parked_entries_back(run: Run, environment: dict[str, str], owner: Owner) -> None:
    """What was refused goes out once its cause is gone; refused again it is parked again, with the reason."""
    leave("math.add", agent_id="nobody")
    assert run("retry").exit_code == 0
    [parked] = listed(run)
    assert (parked["state"], "404" in parked["reason"]) == ("parked", True)
    ended = run("retry")
    assert "tried to send 1 parked entries again" in ended.stdout
    assert [one["state"] for one in listed(run)] == ["parked"]
    assert owner.entries() == []


def test_retry_without_a_gateway_changes_nothing(
    run: Run, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says that nobody answered, and what was parked for that gateway stays parked."""
    # Bound and not listening: nobody else can have it meanwhile.
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setenv("TOOLGATE_URL", f"http://127.0.0.1:{nobody.getsockname()[1]}")
        leave("math.add", parked="404: Agent not found")
        assert "does not accept log entries now" in refused(run("retry"))
    assert [(one["state"], one["reason"]) for one in listed(run)] == [("parked", "404: Agent not found")]


def test_drop_asks(run: Run, environment: dict[str, str]) -> None:
    """Without a terminal and without --yes nothing is struck out."""
    leave("math.add")
    [one] = listed(run)
    assert "--yes" in refused(run("purge", one["key"]))
    assert len(listed(run)) == 1


def test_drop_strikes_out_what_is_named(run: Run, environment: dict[str, str]) -> None:
    """By a beginning of its key, and nothing else."""
    leave("one.one", "two.two")
    first, second = listed(run)
    assert run("purge", first["key"][:10], "--yes").exit_code == 0
    assert listed(run) == [second]


def test_drop_all_of_a_gateway(run: Run, environment: dict[str, str]) -> None:
    """What was kept for a gateway that is gone goes, what is another's stays."""
    leave("math.add")
    assert "nothing to delete" in refused(run("purge", "--gateway", "https://other.example", "--yes"))
    ended = run("purge", "--gateway", f"{environment['URL']}/", "--yes")
    assert "deleted 1" in ended.stdout
    assert listed(run) == []


def test_drop_leaves_what_is_running(run: Run, environment: dict[str, str]) -> None:
    """The intent of a live process's call cannot be struck out."""
    with Guard() as guard:

        def tool() -> None:
            [one] = listed(run)
            assert "no entry" in refused(run("purge", one["key"], "--yes"))
            assert "nothing" in refused(run("purge", "--gateway", environment["URL"], "--yes"))

        guard.guarded("math.add")(tool)()
        assert guard.flush()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["purge"], "exactly one way"),
        (["purge", "abcd", "--parked"], "exactly one way"),
        (["purge", "abcd", "--yes"], "no entry"),
        (["purge", "a", "--yes"], "no entry"),
        (["purge", "--parked", "--yes"], "nothing to delete"),
    ],
    ids=str,
)
def test_wrong_words(run: Run, environment: dict[str, str], words: list[str], said: str) -> None:
    """One line says what to write, and nothing is struck out."""
    leave("math.add")
    assert said in refused(run(*words))
    assert len(listed(run)) == 1


@pytest.mark.parametrize("command", ["list", "retry", "purge --parked"])
def test_no_outbox(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """Without a file, in memory, or with a file of something else: one line, no traceback, nothing made."""
    assert "there is no outbox" in refused(run(*command.split()))
    assert not (home / "state").exists()
    monkeypatch.setenv("TOOLGATE_OUTBOX", "memory")
    assert "'memory'" in refused(run(*command.split()))
    (home / "other.db").write_bytes(b"something else" * 100)
    monkeypatch.setenv("TOOLGATE_OUTBOX", str(home / "other.db"))
    monkeypatch.setenv("TOOLGATE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("TOOLGATE_API_KEY", "ak_" + "a" * 37)
    assert "is not an outbox" in refused(run(*command.split()))


def test_retry_needs_a_key(run: Run, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The missing setting is named."""
    leave("math.add")
    monkeypatch.delenv("TOOLGATE_API_KEY")
    assert "TOOLGATE_API_KEY" in refused(run("retry"))
