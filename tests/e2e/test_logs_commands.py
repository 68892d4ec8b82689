"""`toolgate logs` as a user runs it: followed through outages, exported at a terminal, interrupted."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.bulk import write_entries
from support.command_line import CommandLine
from support.gateway import LiveGateway, Owner
from support.waiting import until

pytestmark = pytest.mark.sqlite_only("commands speak HTTP: which database is behind it they cannot see")


@pytest.fixture
def user(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "home")


@contextmanager
def tailing(user: CommandLine, *options: str) -> Iterator["subprocess.Popen[str]"]:
    """Run `tail` without a terminal, once it has said that it follows."""
    command = user.command("logs", "tail", "--interval", "0.2", "--json", *options)
    with subprocess.Popen(
        command, env=user.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as tail:
        assert tail.stderr is not None
        assert "following" in tail.stderr.readline()
        try:
            yield tail
        finally:
            tail.kill()


def next_ids(tail: "subprocess.Popen[str]", count: int) -> list[str]:
    assert tail.stdout is not None
    return [json.loads(tail.stdout.readline())["id"] for _ in range(count)]


def test_each_entry_is_shown_once_through_outages(user: CommandLine, tmp_path: Path) -> None:
    """The gateway is killed twice while agents record: all entries are shown, each once, in order; Ctrl-C ends with 130."""
    with LiveGateway(tmp_path / "gateway") as gateway, Owner(gateway.url) as owner:
        user.log_in(owner)
        agent_id = owner.agent("refund-bot")
        before = [owner.log(agent_id, "a.b").json()["id"] for _ in range(3)]
        with tailing(user, "--lines", "2") as tail:
            assert next_ids(tail, 2) == before[1:]
            for _ in range(2):
                # Fewer than a pipe holds: the tail must be free to notice the outage.
                recorded = [owner.log(agent_id, "a.b").json()["id"] for _ in range(60)]
                gateway.kill()
                assert tail.stderr is not None
                assert "; retrying" in tail.stderr.readline()
                gateway.start()
                assert "is available again" in tail.stderr.readline()
                recorded += [owner.log(agent_id, "a.b").json()["id"] for _ in range(60)]
                assert next_ids(tail, len(recorded)) == recorded
            tail.send_signal(signal.SIGINT)
            rest, said = tail.communicate(timeout=30)
    assert (tail.returncode, rest) == (130, "")
    assert "Traceback" not in said


def test_a_tail_is_narrowed_and_goes_back(user: CommandLine, owner: Owner) -> None:
    """To an agent, a text and what came out; --from brings what was there, and at a terminal it is a line each."""
    user.log_in(owner)
    agent_id, other = owner.agent("refund-bot"), owner.agent("mail-bot")
    owner.log(agent_id, "stripe.refund", "failed", context={"to": "ada@example.test", "amount": 5})
    owner.log(agent_id, "stripe.refund", context={"to": "ada@example.test"})
    owner.log(other, "stripe.refund", "failed", context={"to": "ada@example.test"})
    words = ("--agent", "refund-bot", "--status", "failed", "--text", "ADA", "--from", "1h")
    with user.at_terminal("logs", "tail", "--interval", "0.2", *words, columns=150) as terminal:
        terminal.wait_for("stop with Ctrl-C\n")
        shown = terminal.wait_for("amount=5 to=ada@example.test\n")
        assert shown.count("\n") == 1
        assert shown.split()[2:5] == ["failed", "refund-bot", "stripe.refund"]
        owner.log(agent_id, "stripe.refund", "failed", context={"to": "eve"})
        owner.log(agent_id, "mail.send", "failed", context={"to": "Ada"})
        assert "eve" not in terminal.wait_for("to=Ada\n")
        terminal.interrupt()
        assert terminal.end() == 130
        assert "Traceback" not in terminal.shown


def test_a_tail_ends_with_its_login(user: CommandLine, owner: Owner) -> None:
    """It does not go on asking with a token that works no more."""
    user.log_in(owner)
    with tailing(user) as tail:
        token = json.loads(user.login_file.read_text())["token"]
        owner.http.post("/auth/logout", headers={"Authorization": f"Bearer {token}"})
        out, said = tail.communicate(timeout=30)
    assert (tail.returncode, out) == (1, "")
    assert said == "toolgate: your login has expired or was revoked; log in again: toolgate login\n"


def test_a_closed_pipe_ends_it_quietly(user: CommandLine, owner: Owner) -> None:
    """`toolgate logs tail | head -1` leaves no traceback."""
    user.log_in(owner)
    agent_id = owner.agent("refund-bot")
    with tailing(user) as tail:
        owner.log(agent_id, "a.b")
        next_ids(tail, 1)
        assert tail.stdout is not None
        tail.stdout.close()
        assert tail.stderr is not None

        def ended() -> bool:
            owner.log(agent_id, "a.b")
            return tail.poll() is not None

        until(ended)
        assert "Traceback" not in tail.stderr.read()
    assert tail.returncode == 1


def test_an_export_shows_where_it_stands(
    user: CommandLine, live_gateway: LiveGateway, owner: Owner, tmp_path: Path
) -> None:
    """At a terminal a bar goes to the number of entries; onto the terminal itself nothing is exported."""
    user.log_in(owner)
    write_entries(live_gateway, owner, [owner.agent("refund-bot")], 1500)
    path = tmp_path / "log.jsonl"
    with user.at_terminal("logs", "export", "--output", str(path)) as terminal:
        shown = terminal.wait_for("wrote 1,500 entries")
        assert terminal.end() == 0
    assert "1500/1500" in shown
    assert len(path.read_text().splitlines()) == 1500
    with user.at_terminal("logs", "export") as terminal:
        assert terminal.end() == 1
        assert "--output" in terminal.shown


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("interrupted", marks=pytest.mark.slow),
        "killed",
        pytest.param("gateway killed", marks=pytest.mark.slow),
    ],
)
def test_half_an_export_has_no_name(user: CommandLine, tmp_path: Path, how: str) -> None:
    """Whoever dies in the middle: there is no file of that name, and the former one is as it was."""
    path = tmp_path / "log.jsonl"
    with LiveGateway(tmp_path / "gateway") as gateway, Owner(gateway.url) as owner:
        user.log_in(owner)
        # As much as no buffer between the two holds.
        context = json.dumps({"note": "x" * 30_000})
        write_entries(gateway, owner, [owner.agent("refund-bot")], 3000, context=context)
        for former in (None, "before"):
            if former is not None:
                path.write_text(former)
            command = user.command("logs", "export", "--output", str(path), "--force")
            with subprocess.Popen(command, env=user.env, stderr=subprocess.PIPE, text=True) as export:
                until(lambda: [one for one in tmp_path.glob(".log.jsonl.*.part") if one.stat().st_size])
                if how == "gateway killed":
                    gateway.kill()
                else:
                    export.send_signal(signal.SIGINT if how == "interrupted" else signal.SIGKILL)
                _, said = export.communicate(timeout=60)
            if how == "gateway killed":
                gateway.start()
            codes = {"interrupted": 130, "killed": -signal.SIGKILL, "gateway killed": 1}
            assert export.returncode == codes[how], said
            assert "Traceback" not in said
            assert (path.read_text() if path.exists() else None) == former
            left = list(tmp_path.glob(".log.jsonl.*.part"))
            assert bool(left) == (how == "killed")
            for one in left:
                one.unlink()
