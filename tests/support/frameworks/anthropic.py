"""The Anthropic SDK's tool runners, against its Messages API on this machine; a paused run is kept as JSON in a file."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from anthropic import Anthropic, AsyncAnthropic, beta_async_tool, beta_tool

from support.frameworks.harness import Call, Harness, Mode, OnHold, Scene, Seen
from support.frameworks.messages_api import MessagesAPI
from toolgate_integrations.anthropic import AsyncGuardedRun, GuardedRun, aresume, guard_tools, resume

ASKED = {"model": "claude-test", "max_tokens": 100}


def tools_of(scene: Scene) -> list[Any]:
    """The scene's tools, for a synchronous runner."""
    return [beta_tool(each) for each in scene.tools.values()]


def async_tools_of(scene: Scene) -> list[Any]:
    """The scene's tools, as coroutine functions."""

    async def look(what: str) -> str:
        """Look at something."""
        return str(scene.tools["look"](what))

    async def pay(to: str, amount: int) -> str:
        """Pay somebody."""
        return scene.pay(to, amount)

    async def drop(table: str) -> str:
        """Drop a table."""
        return scene.drop(table)

    async def burn(what: str) -> str:
        """Fail."""
        return scene.burn(what)

    async def send(to: str, amount: int = 5000) -> str:
        """Send money."""
        return scene.send(to, amount)

    async def tag(labels: list[str]) -> str:
        """Add labels."""
        return scene.tag(labels)

    more = (send, tag) if scene.more else ()
    return [beta_async_tool(each) for each in (look, pay, drop, burn, *more)]


def said_to(runner: Any) -> list[Any]:
    """The conversation of a runner."""
    told: dict[str, Any] = {}

    def look(params: Any) -> Any:
        told.update(params)
        return params

    runner.set_messages_params(look)
    return list(told["messages"])


class AnthropicSession:
    """One conversation, and the API it is held with."""

    def __init__(self, scene: Scene, mode: Mode, file: Path, on_hold: OnHold) -> None:
        self._scene, self._mode, self._file, self._on_hold = scene, mode, file, on_hold
        tools = tools_of(scene) if mode == "sync" else async_tools_of(scene)
        self._tools = guard_tools(tools, scene.guard, agent="treasurer", on_hold=on_hold)
        self._messages: list[Any] = []
        self._runner: Any = None
        self._closing = ExitStack()
        self._api = self._closing.enter_context(MessagesAPI())

    async def start(self, *calls: Call) -> Seen:
        self._api.say(calls)
        said = [*self._messages, {"role": "user", "content": "go"}]
        run_id = "conversation-1"
        if self._mode == "sync":
            return await self._in_a_thread(lambda runner: GuardedRun(runner(said), run_id=run_id))
        async with self._async_client() as client:
            run = AsyncGuardedRun(self._made(client)(said), run_id=run_id)
            return self._seen(run, await run.until_done())

    async def resume(self, answer: str = "go", only: Sequence[str] | None = None) -> Seen:
        state = json.loads(self._file.read_text())
        held = [each["call_id"] for each in state["held"] if only is None or each["call_id"] in only]
        noes = dict.fromkeys(held, "no") if answer == "reject" else None
        if self._mode == "sync":
            return await self._in_a_thread(lambda runner: resume(state, self._tools, runner, rejected=noes))
        async with self._async_client() as client:
            run = await aresume(state, self._tools, self._made(client), rejected=noes)
            return self._seen(run, await run.until_done())

    def restarted(self) -> "AnthropicSession":
        return AnthropicSession(self._scene, self._mode, self._file, self._on_hold)

    async def close(self) -> None:
        self._closing.close()

    async def _in_a_thread(self, begin: Any) -> Seen:
        def go() -> Seen:
            with Anthropic(api_key="scripted", base_url=self._api.url, max_retries=0) as client:
                run = begin(self._made(client))
                return self._seen(run, run.until_done())

        return await asyncio.to_thread(go)

    def _async_client(self) -> AsyncAnthropic:
        return AsyncAnthropic(api_key="scripted", base_url=self._api.url, max_retries=0)

    def _made(self, client: Any) -> Any:
        eagerly = {"stream": True, "run_tools_eagerly": True} if self._mode == "stream" else {}

        def runner(messages: list[Any]) -> Any:
            self._runner = client.beta.messages.tool_runner(
                **ASKED, messages=messages, tools=self._tools, **eagerly
            )
            return self._runner

        return runner

    def _seen(self, run: Any, message: Any) -> Seen:
        if run.state is not None:
            self._file.write_text(json.dumps(run.state))
        if message is not None:
            self._messages = said_to(self._runner)
        held = {each.call_id: each.approval_id for each in run.held}
        text = None if message is None else message.content[0].text
        return Seen(held, {name: said.text for name, said in self._api.read.items()}, text)


class TheAnthropicSDK:
    """The Anthropic SDK's runners; streamed, they run tools while the reply is coming."""

    name = "anthropic"
    prefix = "tools"
    modes: Sequence[Mode] = ("sync", "async", "stream")
    holds: Sequence[OnHold] = ("pause", "wait", "notify_model", "raise")
    cannot: Mapping[str, str] = {}

    def session(self, scene: Scene, mode: Mode, folder: Path, on_hold: OnHold = "pause") -> AnthropicSession:
        return AnthropicSession(scene, mode, folder / "run.json", on_hold)


HARNESSES: list[Harness] = [TheAnthropicSDK()]
