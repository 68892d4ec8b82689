"""`toolgate mcp-proxy` as a client starts it: a process, spoken to over its standard input and output."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from mcp import Client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from support.forking import Forked, ForkServer
from support.gateway import Owner
from support.serving import environment
from support.waiting import eventually

PROXIES = ForkServer(
    "toolgate_integrations.mcp_proxy",
    "uvicorn.lifespan.on",
    *("toolgate_cli.app", "toolgate._state", "toolgate._http.client", "toolgate._outbox.sender"),
    *("anyio._backends._asyncio", "httpx", "tenacity.asyncio", "rich.table"),
)
SMALL = Path(__file__).with_name("small_server.py")
#: of the client: a handshake, or protocol 2026-07-28, which a proxy speaks too
ERAS = ("legacy", "auto")
PAGE = "https://toolgate.example.com/approvals/{approval_id}"


@dataclass
class Bank:
    """A server called `bank` behind the proxy, and an agent that may use its tools, or some of them."""

    owner: Owner
    agent_id: str
    folder: Path
    proxies: list["Proxy"] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        return environment(
            self.folder,
            {
                "TOOLGATE_URL": self.owner.url,
                "TOOLGATE_API_KEY": self.owner.key,
                "TOOLGATE_AGENT_ID": self.agent_id,
                "XDG_STATE_HOME": str(self.folder / "state"),
            },
        )

    @property
    def small(self) -> list[str]:
        """The words that start the small server."""
        return ["--", sys.executable, str(SMALL), str(self.folder)]

    def permit(self, *tools: str, **fields: object) -> None:
        for tool in tools:
            self.owner.permit(self.agent_id, f"bank.{tool}", **fields)

    def ran(self) -> list[tuple[str, Any]]:
        """The tools that ran, and with what."""
        file = self.folder / "ran.jsonl"
        return [tuple(json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []

    def tells(self, *tools: Mapping[str, Any]) -> None:
        """Let the small server list these tools from now on."""
        filled = [
            {"description": f"Does {each['name']}.", "inputSchema": {"type": "object"}, **each}
            for each in tools
        ]
        (self.folder / "tools.json").write_text(json.dumps(filled))

    def logged(self) -> list[tuple[str, str]]:
        """Each log entry's tool and status; sorted."""
        return sorted((each["action"].split(".")[-1], each["status"]) for each in self.owner.entries())

    async def pending(self) -> str:
        """The id of the one request that waits, once it does."""
        found: list[str] = []

        async def asked() -> bool:
            waiting = await asyncio.to_thread(
                self.owner.http.get, "/api/approvals", params={"status": "pending"}
            )
            found[:] = [each["id"] for each in waiting.json()]
            return bool(found)

        await eventually(asked)
        (approval_id,) = found
        return approval_id

    def decide(self, approval_id: str, how: str = "approve") -> None:
        answer = self.owner.http.post(f"/api/approvals/{approval_id}/{how}", json={})
        assert answer.status_code == 200, answer.text

    def trust(self, *arguments: str) -> Any:
        return PROXIES.run("mcp", "trust", "bank", *arguments, env=self.env)

    def proxy(self, *arguments: str, env: Mapping[str, str] | None = None) -> "Proxy":
        """Start a proxy; without a server named it is in front of the small one."""
        if "--" not in arguments and "--url" not in arguments:
            arguments = (*arguments, *self.small)
        said = self.folder / f"said-{len(self.proxies)}"
        proxy = Proxy(("mcp-proxy", "--name", "bank", *arguments), {**self.env, **(env or {})}, said)
        self.proxies.append(proxy)
        return proxy

    @asynccontextmanager
    async def client(self, *arguments: str, mode: str = "auto", **options: Any) -> AsyncIterator[Any]:
        """A client of a proxy of its own; at the end the proxy must have ended well."""
        proxy = self.proxy(*arguments)
        try:
            async with Client(proxy.spoken(), mode=mode, **options) as client:
                yield client
            assert await proxy.ended() == 0, proxy.said
        finally:
            proxy.gone()


class Proxy:
    """One process."""

    def __init__(self, arguments: tuple[str, ...], env: Mapping[str, str], said: Path) -> None:
        self._said = said
        theirs_in, self.write = os.pipe()
        self.read, theirs_out = os.pipe()
        with said.open("wb") as error:
            streams = (theirs_in, theirs_out, error.fileno())
            self.process: Forked = PROXIES.speak(*arguments, env=env, streams=streams)
        os.close(theirs_in)
        os.close(theirs_out)

    @property
    def said(self) -> str:
        """What stands on its standard error."""
        return self._said.read_text()

    def gone(self) -> None:
        """End it, if it has not ended."""
        self.process.kill()
        self.process.wait(30)

    async def ended(self) -> int:
        """Its exit code, once it has ended."""
        return await asyncio.to_thread(self.process.wait, 30)

    @asynccontextmanager
    async def spoken(self) -> AsyncIterator[Any]:
        """A client's transport."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=1 << 24)
        to, _ = await loop.connect_write_pipe(asyncio.Protocol, os.fdopen(self.write, "wb"))
        come, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(self.read, "rb")
        )
        heard, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        answers, sent = anyio.create_memory_object_stream[SessionMessage](0)

        async def hear() -> None:
            async with heard:
                while line := await reader.readline():
                    await heard.send(
                        SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
                    )

        async def speak() -> None:
            async with sent:
                async for each in sent:
                    to.write(each.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hear)
            tasks.start_soon(speak)
            try:
                yield messages, answers
            finally:
                to.close()
                tasks.cancel_scope.cancel()
                come.close()
                messages.close()
                answers.close()


def text_of(result: Any) -> str:
    """What a model reads of a result."""
    return "".join(getattr(each, "text", "") for each in result.content)
