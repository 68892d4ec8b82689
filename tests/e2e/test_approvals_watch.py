"""`toolgate approvals watch`: live, at a terminal and in a pipe."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.command_line import CommandLine
from support.gateway import LiveGateway, Owner

pytestmark = pytest.mark.sqlite_only("commands speak HTTP: which database is behind it they cannot see")


@pytest.fixture
def user(tmp_path: Path, owner: Owner) -> CommandLine:
    """The owner at a shell, logged in."""
    user = CommandLine(tmp_path / "home")
    user.log_in(owner)
    return user


@pytest.fixture
def held_agent(owner: Owner) -> str:
    """An agent whose refunds are held."""
    agent_id = owner.agent("shop-assistant")
    owner.permit(agent_id, "stripe.refund", requires_approval=True)
    return agent_id


def hold(owner: Owner, agent_id: str, amount: int) -> str:
    approval_id: str = owner.check(agent_id, "stripe.refund", {"amount": amount}).json()["approval_id"]
    return approval_id


@contextmanager
def piped(user: CommandLine, *options: str) -> Iterator["subprocess.Popen[str]"]:
    """Run `watch` without a terminal."""
    command = user.command("approvals", "watch", "--interval", "0.2", *options)
    with subprocess.Popen(
        command, env=user.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watch:
        try:
            yield watch
        finally:
            watch.kill()


def test_each_request_is_shown_as_it_comes(user, owner, held_agent):
    """What waits already and what comes is laid out as show does; each change is told; Ctrl-C ends it with 130."""
    waiting = hold(owner, held_agent, 1)
    with user.at_terminal("approvals", "watch", "--interval", "0.2") as terminal:
        assert owner.url in terminal.wait_for("stop with Ctrl-C")
        terminal.wait_for(f"Approval {waiting} · pending")
        terminal.wait_for("│ amount  1\n")
        coming = hold(owner, held_agent, 2)
        terminal.wait_for(f"Approval {coming} · pending")
        terminal.wait_for("│ amount  2\n")
        owner.http.post(f"/api/approvals/{coming}/approve", json={"note": "fine"})
        terminal.wait_for(
            f'{coming} · stripe.refund of shop-assistant: now approved by {owner.email}, note: "fine"'
        )
        owner.check(held_agent, "stripe.refund", {"amount": 2})
        terminal.wait_for(f"{coming} · stripe.refund of shop-assistant: now consumed")
        owner.http.post(f"/api/approvals/{waiting}/deny")
        terminal.wait_for(f"{waiting} · stripe.refund of shop-assistant: now denied")
        terminal.interrupt()
        assert terminal.end() == 130
        assert "Traceback" not in terminal.shown


def test_json_is_one_object_a_line(user, owner, held_agent):
    """For programs: each new request and each change, in the gateway's words, and nothing else on standard output."""
    with piped(user, "--json") as watch:
        assert watch.stdout is not None
        assert watch.stderr is not None
        approval_id = hold(owner, held_agent, 7)
        first = json.loads(watch.stdout.readline())
        owner.http.post(f"/api/approvals/{approval_id}/deny", json={"note": "no"})
        second = json.loads(watch.stdout.readline())
        watch.send_signal(signal.SIGINT)
        rest, said = watch.communicate(timeout=30)
    assert (first["event"], first["approval"]["id"], first["approval"]["context"]) == (
        "requested",
        approval_id,
        {"amount": 7},
    )
    assert (second["event"], second["approval"]["status"], second["approval"]["note"]) == (
        "changed",
        "denied",
        "no",
    )
    assert (watch.returncode, rest) == (130, "")
    assert said.splitlines() == [
        f"toolgate: watching the approval requests of the production environment at {owner.url}; stop with Ctrl-C"
    ]


def test_it_outlives_its_gateway(user, tmp_path):
    """A gateway that is killed and comes back is told of once each; what happened meanwhile is shown then."""
    with LiveGateway(tmp_path / "gateway") as gateway, Owner(gateway.url) as owner:
        user.log_in(owner)
        agent_id = owner.agent("shop-assistant")
        owner.permit(agent_id, "stripe.refund", requires_approval=True)
        before = hold(owner, agent_id, 1)
        with user.at_terminal("approvals", "watch", "--interval", "0.2") as terminal:
            terminal.wait_for(before)
            gateway.kill()
            terminal.wait_for("; retrying")
            gateway.start()
            shown = terminal.wait_for("the gateway is available again")
            assert "retrying" not in shown
            after = hold(owner, agent_id, 2)
            shown = terminal.wait_for(after)
            assert before not in shown


def test_a_login_that_ends_ends_the_watch(user, owner):
    """A watch does not go on asking with a token that works no more."""
    with piped(user) as watch:
        assert watch.stderr is not None
        watch.stderr.readline()
        token = json.loads(user.login_file.read_text())["token"]
        owner.http.post("/auth/logout", headers={"Authorization": f"Bearer {token}"})
        out, said = watch.communicate(timeout=30)
    assert (watch.returncode, out) == (1, "")
    assert said == "toolgate: your login has expired or was revoked; log in again: toolgate login\n"
