"""A server of the official MCP SDK, and its own client in the agent's place, in each era of the protocol."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp import Client
from mcp.server import MCPServer
from mcp.server.request_state import RequestStateSecurity
from mcp_types import CallToolResult, ElicitRequestURLParams, ElicitResult, InputRequiredResult

from support.frameworks.harness import Call, Harness, Mode, OnHold, Scene, Seen
from toolgate_integrations.mcp import GuardExtension

PAGE = "https://toolgate.example.com/approvals/{approval_id}"
STATE_KEYS = ("an example's key that is long enough",)


def bank(scene: Scene, **options: Any) -> MCPServer[Any]:
    """The scene's tools as a server; whoever has its keys can open the state of its paused calls."""
    given: Any = {"name": "bank", "hold_timeout": 0.2, "approval_page": PAGE, **options}
    server: MCPServer[Any] = MCPServer(
        "bank",
        extensions=[GuardExtension(scene.guard, **given)],
        request_state_security=RequestStateSecurity(keys=STATE_KEYS),
    )
    for tool in scene.tools.values():
        server.tool()(tool)
    return server


def text_of(result: CallToolResult) -> str:
    return "".join(getattr(each, "text", "") for each in result.content)


def approval_of(question: Any) -> str:
    assert isinstance(question, ElicitRequestURLParams)
    return question.url.rpartition("/")[2]


def said(answer: str) -> ElicitResult:
    return ElicitResult(action="accept" if answer == "go" else "decline")


async def nobody(*_: object) -> ElicitResult:
    raise AssertionError("answered by the run itself")


def connected(server: Any, era: str, user: Any) -> AbstractAsyncContextManager[Any]:
    """The SDK's client of a server in this process."""
    return Client(server, mode=era, elicitation_callback=user)


@dataclass(frozen=True)
class Kind:
    """How a library's servers are made and reached."""

    serve: Callable[..., Any]
    connect: Callable[[Any, str, Any], AbstractAsyncContextManager[Any]]


OFFICIAL = Kind(bank, connected)


def holding(on_hold: OnHold) -> dict[str, Any]:
    """How a guard is told what held calls do."""
    return {} if on_hold == "pause" else {"on_hold": on_hold, "hold_timeout": None}


class ModernSession:
    """Calls whose results, or sealed states, the client keeps; every request stands alone."""

    def __init__(
        self, scene: Scene, kept: dict[str, tuple[Call, Any]], kind: Kind, on_hold: OnHold = "pause"
    ) -> None:
        self._scene, self._kept, self._kind = scene, dict(kept), kind
        self._server = kind.serve(scene, **holding(on_hold))

    async def start(self, *calls: Call) -> Seen:
        return await self._go([(each, {}) for each in calls])

    async def resume(self, answer: str = "go", only: Sequence[str] | None = None) -> Seen:
        waiting = [
            (call, {"request_state": last.request_state, "input_responses": {"toolgate": said(answer)}})
            for call, last in self._kept.values()
            if isinstance(last, InputRequiredResult) and (only is None or call.id in only)
        ]
        return await self._go(waiting)

    def restarted(self) -> "ModernSession":
        return ModernSession(self._scene, self._kept, self._kind)

    async def close(self) -> None:
        pass

    async def _go(self, calls: Sequence[tuple[Call, dict[str, Any]]]) -> Seen:
        async with self._kind.connect(self._server, "2026-07-28", nobody) as client:
            found = await asyncio.gather(
                *(
                    client.session.call_tool(
                        call.tool, dict(call.arguments), allow_input_required=True, **back
                    )
                    for call, back in calls
                )
            )
        self._kept |= {call.id: (call, result) for (call, _), result in zip(calls, found, strict=True)}
        held, read = {}, {}
        for call, result in self._kept.values():
            if isinstance(result, InputRequiredResult):
                assert result.input_requests is not None
                held[call.id] = approval_of(result.input_requests["toolgate"].params)
            else:
                read[call.id] = text_of(result)
        return Seen(held, read, None if held else "done")


class HandshakeSession:
    """Calls on one connection: while one waits, its user is being asked."""

    def __init__(self, scene: Scene, kind: Kind, on_hold: OnHold = "pause") -> None:
        self._scene, self._kind, self._server = scene, kind, kind.serve(scene, **holding(on_hold))
        self._made: list[Call] = []
        self._calls: dict[str, asyncio.Task[CallToolResult]] = {}
        self._asked: dict[str, asyncio.Future[ElicitResult]] = {}
        self._changed = asyncio.Condition()
        self._ended = asyncio.Event()
        self._connected: asyncio.Task[None] | None = None
        self._client: Any = None

    async def start(self, *calls: Call) -> Seen:
        # A connection is left by the task that made it.
        if self._connected is None:
            ready = asyncio.Event()
            self._connected = asyncio.create_task(self._connect(ready))
            await ready.wait()
        self._made += calls
        for call in calls:
            self._calls[call.id] = asyncio.create_task(self._call(call))
            self._calls[call.id].add_done_callback(lambda _: asyncio.ensure_future(self._tell()))
        return await self._settled()

    async def resume(self, answer: str = "go", only: Sequence[str] | None = None) -> Seen:
        assert only is None
        asked, self._asked = self._asked, {}
        for future in asked.values():
            future.set_result(said(answer))
        return await self._settled()

    def restarted(self) -> "HandshakeSession":
        raise AssertionError("a call ends with its connection")

    async def close(self) -> None:
        for each in self._calls.values():
            each.cancel()
        await asyncio.gather(*self._calls.values(), return_exceptions=True)
        self._ended.set()
        if self._connected is not None:
            await self._connected

    async def _connect(self, ready: asyncio.Event) -> None:
        async with self._kind.connect(self._server, "legacy", self._elicit) as self._client:
            ready.set()
            await self._ended.wait()

    async def _call(self, call: Call) -> CallToolResult:
        result: CallToolResult = await self._client.session.call_tool(call.tool, dict(call.arguments))
        return result

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _elicit(self, _: object, question: Any) -> ElicitResult:
        future: asyncio.Future[ElicitResult] = asyncio.get_running_loop().create_future()
        async with self._changed:
            self._asked[approval_of(question)] = future
            self._changed.notify_all()
        return await future

    async def _settled(self) -> Seen:
        async with self._changed:
            await self._changed.wait_for(
                lambda: sum(not each.done() for each in self._calls.values()) == len(self._asked)
            )
        held = {self._call_of(approval_id): approval_id for approval_id in self._asked}
        read = {call_id: text_of(each.result()) for call_id, each in self._calls.items() if each.done()}
        return Seen(held, read, None if held else "done")

    def _call_of(self, approval_id: str) -> str:
        # Nothing on the wire says for which call a client is asked; the gateway knows.
        asked = self._scene.owner.http.get(f"/api/approvals/{approval_id}").json()["context"]
        [call_id] = [each.id for each in self._made if dict(each.arguments) == asked]
        return call_id


class Modern:
    """Protocol 2026-07-28: no connection, paused calls are sealed states at the client."""

    prefix = "bank"
    modes: Sequence[Mode] = ("async",)
    holds: Sequence[OnHold] = ("pause", "wait", "notify_model", "raise")
    cannot: Mapping[str, str] = {}

    def __init__(self, name: str = "mcp", kind: Kind = OFFICIAL) -> None:
        self.name, self._kind = f"{name}-2026-07-28", kind

    def session(self, scene: Scene, mode: Mode, folder: Path, on_hold: OnHold = "pause") -> ModernSession:
        return ModernSession(scene, {}, self._kind, on_hold)


class Handshake:
    """Protocols up to 2025-11-25: a call waits on its connection."""

    prefix = "bank"
    modes: Sequence[Mode] = ("async",)
    holds: Sequence[OnHold] = ("pause", "wait", "notify_model", "raise")
    cannot: Mapping[str, str] = {
        "test_replayed_after_a_restart": (
            "a paused call ends when its connection is closed; "
            "if the client calls the tool again, this is a new call"
        ),
        "test_a_finished_run_is_not_carried_out_again": (
            "clients of the handshake protocol store no state of a paused call, "
            "so they cannot send a state twice"
        ),
    }

    def __init__(self, name: str = "mcp", kind: Kind = OFFICIAL) -> None:
        self.name, self._kind = f"{name}-handshake", kind

    def session(self, scene: Scene, mode: Mode, folder: Path, on_hold: OnHold = "pause") -> HandshakeSession:
        return HandshakeSession(scene, self._kind, on_hold)


HARNESSES: list[Harness] = [Modern(), Handshake()]
