"""Strands' `Agent`, its session kept in files, and a scripted model."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from strands import Agent, tool
from strands.models import Model
from strands.session.file_session_manager import FileSessionManager

from support.frameworks.harness import Call, Harness, Mode, OnHold, Scene, Seen
from toolgate_integrations.strands import GuardPlugin


class Scripted(Model):
    """A model that makes the calls of each turn, and says "done" after the last."""

    def __init__(self, *turns: Sequence[Call]) -> None:
        self._turns = list(turns)

    def update_config(self, **_: Any) -> None:
        pass

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        calls = self._turns.pop(0) if self._turns else ()
        yield {"messageStart": {"role": "assistant"}}
        for each in calls:
            yield {"contentBlockStart": {"start": {"toolUse": {"toolUseId": each.id, "name": each.tool}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(each.arguments)}}}}
            yield {"contentBlockStop": {}}
        if not calls:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": "done"}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if calls else "end_turn"}}


def agent(scene: Scene, *calls: Call, **options: Any) -> Any:
    """A guarded agent that makes the calls in one turn."""
    tools = [tool(each) for each in scene.tools.values()]
    options = {"name": "treasurer", "tools": tools, "plugins": [GuardPlugin(scene.guard)], **options}
    return Agent(model=Scripted(calls), callback_handler=None, **options)


def read(agent: Any) -> dict[str, tuple[str, str]]:
    """The status of each call and what the model read of it."""
    blocks = [
        block["toolResult"] for each in agent.messages for block in each["content"] if "toolResult" in block
    ]
    return {each["toolUseId"]: (each["status"], each["content"][0]["text"]) for each in blocks}


def answers(held: Mapping[str, str], said: Any) -> list[Any]:
    """The same answer to interrupts, by their ids."""
    return [{"interruptResponse": {"interruptId": each, "response": said}} for each in held.values()]


class StrandsSession:
    """One session of one agent."""

    def __init__(self, scene: Scene, mode: Mode, folder: Path, on_hold: OnHold) -> None:
        self._scene, self._mode, self._folder, self._on_hold = scene, mode, folder, on_hold
        plugin = GuardPlugin(scene.guard, on_hold=on_hold)
        kept = FileSessionManager(session_id="session-1", storage_dir=str(folder / "sessions"))
        self._agent = agent(scene, agent_id="agent-1", plugins=[plugin], session_manager=kept)
        self._asked = folder / "interrupts.json"

    async def start(self, *calls: Call) -> Seen:
        self._agent.model = Scripted(calls)
        return await self._run("go")

    async def resume(self, answer: str = "go", only: Sequence[str] | None = None) -> Seen:
        asked = json.loads(self._asked.read_text())
        chosen = {each: asked[each] for each in asked if only is None or each in only}
        return await self._run(answers(chosen, "y" if answer == "go" else "n"))

    def restarted(self) -> "StrandsSession":
        return StrandsSession(self._scene, self._mode, self._folder, self._on_hold)

    async def close(self) -> None:
        pass

    async def _run(self, prompt: Any) -> Seen:
        if self._mode == "sync":
            result = await asyncio.to_thread(self._agent, prompt)
        else:
            result = await self._agent.invoke_async(prompt)
        paused = result.interrupts or ()
        self._asked.write_text(json.dumps({each.reason["tool_use_id"]: each.id for each in paused}))
        held = {each.reason["tool_use_id"]: each.reason["approval_id"] for each in paused}
        texts = {call_id: text for call_id, (_, text) in read(self._agent).items()}
        return Seen(held, texts, None if result.stop_reason == "interrupt" else str(result).strip())


class Strands:
    """Strands' agent."""

    name = "strands"
    prefix = "tools"
    modes: Sequence[Mode] = ("sync", "async")
    holds: Sequence[OnHold] = ("pause", "wait", "notify_model", "raise")
    cannot: Mapping[str, str] = {}

    def session(self, scene: Scene, mode: Mode, folder: Path, on_hold: OnHold = "pause") -> StrandsSession:
        return StrandsSession(scene, mode, folder, on_hold)


HARNESSES: list[Harness] = [Strands()]
