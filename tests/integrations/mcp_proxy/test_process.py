"""The proxy as a process: what it is started with, how it ends, and what it leaves behind."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from mcp import Client, MCPError
from support.proxies import ERAS, PROXIES, Bank, text_of
from support.waiting import eventually


async def test_the_server_sees_no_secret_of_ours(bank: Bank) -> None:
    """Neither the gateway's key nor anything else that was not passed on by name."""
    bank.permit("env")
    proxy = bank.proxy("--pass-env", "BANK_TOKEN", env={"BANK_TOKEN": "t0ken", "OTHER_TOKEN": "0ther"})
    async with Client(proxy.spoken()) as client:
        seen = json.loads(text_of(await client.call_tool("env", {})))
    assert seen["BANK_TOKEN"] == "t0ken"
    assert [name for name in seen if name.startswith("TOOLGATE") or name == "OTHER_TOKEN"] == []
    assert bank.owner.key not in json.dumps(seen)


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_that_dies(bank: Bank, era: str) -> None:
    """Its call is answered and recorded as failed; the proxy ends with one line and status 1."""
    bank.permit("die")
    proxy = bank.proxy()
    async with Client(proxy.spoken(), mode=era) as client:
        with pytest.raises(MCPError, match="closed"):
            await client.call_tool("die", {})
        assert await proxy.ended() == 1
    assert proxy.said == f"toolgate: the server {sys.executable!r} ended\n"
    assert bank.logged() == [("die", "failed")]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["no-such-command"], "the server 'no-such-command' cannot be started: No such file or directory"),
        ([sys.executable, "-c", "pass"], "did not complete the initialization"),
        ([sys.executable, "-c", "print('hello', flush=True)"], "did not complete the initialization"),
    ],
)
async def test_a_server_that_cannot_be_had(bank: Bank, command: list[str], said: str) -> None:
    """The client reads why; so does whoever looks at standard error, in one line."""
    await cannot_be_had(bank, said, "--", *command)


async def test_a_server_that_says_nothing(bank: Bank) -> None:
    """It is waited for as long as `--start-timeout` says."""
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    await cannot_be_had(bank, "did not answer within 0.2 seconds", "--start-timeout", "0.2", "--", *command)


async def cannot_be_had(bank: Bank, said: str, *arguments: str) -> None:
    proxy = bank.proxy(*arguments)
    with pytest.RaisesGroup(MCPError, flatten_subgroups=True, allow_unwrapped=True) as told:
        async with Client(proxy.spoken(), mode="legacy"):
            raise AssertionError("there is no server")
    assert said in repr(told.value)
    assert await proxy.ended() == 1
    assert said in proxy.said.splitlines()[-1]
    assert "Traceback" not in proxy.said


async def test_it_ends_with_its_client(bank: Bank) -> None:
    """And so does the server behind it, in the midst of a call too."""
    bank.permit("hang")
    proxy = bank.proxy()
    with pytest.RaisesGroup(MCPError, flatten_subgroups=True, allow_unwrapped=True):
        async with asyncio.timeout(30), Client(proxy.spoken()) as client, asyncio.TaskGroup() as tasks:
            tasks.create_task(client.call_tool("hang", {}))
            await eventually(lambda: _true(bank.ran()))
            raise MCPError(0, "the client has enough")
    assert await proxy.ended() == 0
    assert children(bank.folder) == []


@pytest.mark.parametrize(
    ("how", "status"), [(signal.SIGTERM, 0), (signal.SIGHUP, 0), (signal.SIGINT, 130), (signal.SIGKILL, -9)]
)
async def test_it_ends_when_told_to(bank: Bank, how: signal.Signals, status: int) -> None:
    """With the server behind it, although its client is still there."""
    proxy = bank.proxy()
    async with Client(proxy.spoken()) as client:
        await client.list_tools()
        assert len(children(bank.folder)) == 1
        proxy.process.send_signal(how)
        assert await proxy.ended() == status
    assert "Traceback" not in proxy.said
    await eventually(lambda: _true(not children(bank.folder)))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            (),
            "give exactly one MCP server: either --url ADDRESS, or after -- the command that starts the server",
        ),
        (("--url", "http://127.0.0.1:1/mcp", "--", "cat"), "give exactly one MCP server"),
        (("--url", "ftp://x"), "the server's address is 'ftp://x'; use an address such as"),
        (("--url", "http://ada:secret@x/mcp"), "without a user or a password in it"),
        (("--pass-env", "ABSENT", "--", "cat"), "the environment variable 'ABSENT' is not set"),
        (("--header-env", "A=B", "--", "cat"), "--header-env works only with --url"),
        (("--tool-action", "pay", "--", "cat"), "invalid --tool-action 'pay': write TOOL=ACTION"),
        (("--hold-timeout", "-1", "--", "cat"), "hold_timeout is -1.0"),
        (("--approval-page", "x", "--", "cat"), "approval_page is 'x'"),
    ],
)
def test_wrong_use(bank: Bank, arguments: tuple[str, ...], said: str) -> None:
    """One line that names what is wrong, without what may be a secret."""
    ended = PROXIES.run("mcp-proxy", "--name", "bank", *arguments, env=bank.env)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert "secret" not in ended.stderr


def children(folder: Path) -> list[int]:
    """The servers that run for a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if os.fsencode(folder) in words and any(word.endswith(b"small_server.py") for word in words):
            found.append(int(process.name))
    return found


async def _true(found: object) -> bool:
    return bool(found)
