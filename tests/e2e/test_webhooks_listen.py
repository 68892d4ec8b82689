"""`toolgate webhooks listen`, as people who build a receiver run it."""

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from support.command_line import CommandLine
from support.gateway import LiveGateway, Owner
from support.ports import reserve_port
from support.signing import SECRET, signed

pytestmark = pytest.mark.sqlite_only("commands speak HTTP: which database is behind it they cannot see")

EVENT = {
    "type": "approval.requested",
    "timestamp": "2026-11-21T12:00:00.000000Z",
    "data": {"environment": "production", "approval": {"action": "stripe.refund", "note": "a\x1b[2J\u202e"}},
}
BODY = json.dumps(EVENT).encode()


@pytest.fixture
def user(tmp_path: Path) -> CommandLine:
    user = CommandLine(tmp_path / "home")
    user.env["TOOLGATE_WEBHOOK_SECRET"] = SECRET
    return user


class Listening:
    """A listener that runs."""

    def __init__(self, process: "subprocess.Popen[str]", url: str) -> None:
        self.process = process
        self.url = url

    def post(self, body: bytes = BODY, headers: dict[str, str] | None = None) -> int:
        return httpx.post(
            self.url, content=body, headers=headers or {}, timeout=30, trust_env=False
        ).status_code

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def lines_up_to(self, word: str) -> list[str]:
        lines = [self.line()]
        while word not in lines[-1]:
            lines.append(self.line())
        return lines


@contextmanager
def listening(user: CommandLine, *options: str) -> Iterator[Listening]:
    command = user.command("webhooks", "listen", "--port", "0", *options)  # the last --port counts
    with subprocess.Popen(
        command,
        env=user.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        try:
            said = process.stderr.readline()
            yield Listening(process, said.partition("listening on ")[2].partition(";")[0])
        finally:
            process.kill()


def test_an_event_is_printed_and_verified(user):
    """What is right is answered with 204 and laid out, nothing hidden in it; Ctrl-C ends the listener with 130."""
    with listening(user) as there:
        assert there.post(headers=signed(BODY, "msg_7")) == 204
        lines = there.lines_up_to("note")
        assert lines[1].endswith(" approval.requested")
        assert lines[2:4] == ["  id           msg_7", "  signature    valid"]
        assert lines[-2:] == ['  │   action  "stripe.refund"', '  │   note    "a\\x1b[2J\\u202e"']
        there.process.send_signal(signal.SIGINT)
        rest, said = there.process.communicate(timeout=30)
        assert (there.process.returncode, rest, said) == (130, "", "")


def test_what_is_not_right_is_refused_with_the_reason(user):
    """Unsigned, changed, or not even an event: 400, printed all the same, with why."""
    with listening(user) as there:
        assert there.post() == 400
        assert "INVALID: the header webhook-id" in there.lines_up_to("INVALID")[-1]
        assert there.post(BODY + b" ", signed(BODY)) == 400
        assert "INVALID: no signature matches" in there.lines_up_to("INVALID")[-1]
        assert there.post(b"[" * 100_000, signed(BODY)) == 400
        assert there.lines_up_to("99,500")
        assert there.post(b"\xff\x00", signed(BODY)) == 400
        assert "\\\\xff" in there.lines_up_to("│ body")[-1]


def test_a_redelivery_is_told(user):
    """The same id again says so; a forged one before it does not count."""
    with listening(user, "--json") as there:
        assert there.post(BODY + b" ", signed(BODY, "msg_1")) == 400
        for _ in range(2):
            assert there.post(headers=signed(BODY, "msg_1")) == 204
        told = [json.loads(there.line()) for _ in range(3)]
    assert [(one["verified"], one["came_before"]) for one in told] == [
        (False, False),
        (True, False),
        (True, True),
    ]
    assert told[0]["why_not"]
    assert told[1] == {"id": "msg_1", "verified": True, "why_not": None, "came_before": False, "event": EVENT}


def test_only_a_bounded_post_is_read(user):
    """A body that is too long or of unknown length is refused unread, and so is every other method."""
    with listening(user) as there:
        assert httpx.get(there.url, trust_env=False).status_code == 405
        assert there.post(b"x" * (1024 * 1024 + 1)) == 413
        host, port = there.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=30) as raw:
            raw.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            assert raw.recv(100).startswith(b"HTTP/1.1 411")
        with socket.create_connection((host, int(port)), timeout=30) as raw:
            raw.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n")
            assert raw.recv(100).startswith(b"HTTP/1.1 413")
        assert there.post(headers=signed(BODY)) == 204


def test_without_a_usable_secret_nothing_listens(user):
    """Missing, it is asked for at a terminal and refused elsewhere; what is none is refused and not repeated."""
    del user.env["TOOLGATE_WEBHOOK_SECRET"]
    assert "TOOLGATE_WEBHOOK_SECRET" in user.refused("webhooks", "listen", "--port", "0")
    line = user.refused("webhooks", "listen", "--port", "0", "--secret", "sesame")
    assert "whsec_" in line
    assert "sesame" not in line
    with user.at_terminal("webhooks", "listen", "--port", "0") as terminal:
        terminal.wait_for("Secret of the webhook: ")
        terminal.type(SECRET)
        assert SECRET not in terminal.wait_for("stop with Ctrl-C")
        terminal.interrupt()
        assert terminal.end() == 130


def test_a_taken_port_is_told(user):
    """In one line that names it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert port in user.refused("webhooks", "listen", "--port", port)
    assert "nowhere.invalid" in user.refused("webhooks", "listen", "--host", "nowhere.invalid")


def test_what_a_gateway_delivers_is_verified(user, tmp_path):
    """A live gateway's event arrives here, signed with the secret it gave, and is shown as right."""
    port = str(reserve_port())
    private = {"TOOLGATE_WEBHOOKS_ALLOW_PRIVATE": "true"}
    with LiveGateway(tmp_path / "gateway", env=private) as gateway, Owner(gateway.url) as owner:
        made = owner.http.post("/api/webhooks", json={"url": f"http://127.0.0.1:{port}/"})
        assert made.status_code == 201, made.text
        user.env["TOOLGATE_WEBHOOK_SECRET"] = made.json()["secret"]
        with listening(user, "--port", port, "--json") as there:
            agent_id = owner.agent()
            told = json.loads(there.line())
    assert (told["verified"], told["came_before"], told["event"]["type"]) == (True, False, "agent.created")
    assert told["event"]["data"]["agent"]["id"] == agent_id


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["lines", "json"])
def test_numbers_of_strangers(user: CommandLine, options: tuple[str, ...]) -> None:
    """A few characters that stand for gigabytes of digits are shown as they came, and hold nobody up."""
    with listening(user, *options) as listener:
        for number in ("1e999999999", "1e99999999999999999999999"):
            assert listener.post(f'{{"n": {number}}}'.encode()) == 400
            assert any(number in line for line in listener.lines_up_to(number))


def test_nobody_reads_any_more(user: CommandLine) -> None:
    """When what the listener prints goes nowhere, it ends quietly with status 1, and answers nothing in vain."""
    with listening(user) as listener:
        assert listener.process.stdout is not None
        listener.process.stdout.close()
        with pytest.raises(httpx.TransportError):
            listener.post()
        assert listener.process.wait(timeout=60) == 1
        assert listener.process.stderr is not None
        assert listener.process.stderr.read() == ""
