"""Haystack's `Agent`, its messages kept as JSON in a file, and its own `MockChatGenerator`."""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

from haystack.components.agents import Agent
from haystack.components.generators.chat import MockChatGenerator
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.hooks.human_in_the_loop import ToolExecutionDecision
from haystack.tools import Tool, create_tool_from_function

from support.frameworks.harness import Call, Harness, Mode, OnHold, Scene, Seen
from toolgate_integrations.haystack import aresume, guard_hooks, held_calls, resume


def tools_of(scene: Scene) -> list[Tool]:
    """The scene's tools, as Haystack takes them."""
    return [create_tool_from_function(each) for each in scene.tools.values()]


def called(*calls: Call) -> ChatMessage:
    """What a model says that makes these calls."""
    made = [ToolCall(each.tool, dict(each.arguments), each.id) for each in calls]
    return ChatMessage.from_assistant("Let me see.", tool_calls=made)


def read(messages: Sequence[ChatMessage]) -> dict[str | None, str]:
    """What the model read of each call."""
    return {one.origin.id: str(one.result) for each in messages for one in each.tool_call_results}


def stored(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """A conversation as it comes back from a store."""
    text = json.dumps([each.to_dict() for each in messages])
    return [ChatMessage.from_dict(each) for each in json.loads(text)]


class HaystackSession:
    """One conversation of one agent."""

    def __init__(self, scene: Scene, mode: Mode, file: Path, on_hold: OnHold) -> None:
        self._scene, self._mode, self._file, self._on_hold = scene, mode, file, on_hold
        self._messages: list[ChatMessage] = []
        if file.exists():
            self._messages = [ChatMessage.from_dict(each) for each in json.loads(file.read_text())]

    def _agent(self, *said: Any) -> Agent:
        hooks = guard_hooks(
            self._scene.guard,
            agent="treasurer",
            on_hold=self._on_hold,
        )
        model = MockChatGenerator(responses=[*said, "done"])
        return Agent(chat_generator=model, tools=tools_of(self._scene), hooks=hooks, system_prompt="Pay.")

    async def start(self, *calls: Call) -> Seen:
        agent, given = self._agent(called(*calls)), [*self._messages[1:], ChatMessage.from_user("go")]
        context = {"run_id": "conversation-1"}
        if self._mode == "sync":
            result = await asyncio.to_thread(agent.run, given, hook_context=context)
        else:
            result = await agent.run_async(given, hook_context=context)
        return self._seen(result)

    async def resume(self, answer: str = "go", only: Sequence[str] | None = None) -> Seen:
        decisions = [
            ToolExecutionDecision(each.tool_call.tool_name, answer == "go", each.tool_call.id, feedback="no")
            for each in held_calls(self._messages)
            if only is None or each.tool_call.id in only
        ]
        if self._mode == "sync":
            return self._seen(await asyncio.to_thread(resume, self._agent(), self._messages, decisions))
        return self._seen(await aresume(self._agent(), self._messages, decisions))

    def restarted(self) -> "HaystackSession":
        return HaystackSession(self._scene, self._mode, self._file, self._on_hold)

    async def close(self) -> None:
        pass

    def _seen(self, result: Mapping[str, Any]) -> Seen:
        self._messages = result["messages"]
        self._file.write_text(json.dumps([each.to_dict() for each in self._messages]))
        held = {str(each.tool_call.id): each.approval_id for each in held_calls(self._messages)}
        text = result["last_message"].text if result["exit_reason"] == "text" else None
        return Seen(held, {str(name): said for name, said in read(self._messages).items()}, text)


class Haystack:
    """Haystack's agent."""

    name = "haystack"
    prefix = "tools"
    modes: Sequence[Mode] = ("sync", "async")
    holds: Sequence[OnHold] = ("pause", "wait", "notify_model", "raise")
    cannot: Mapping[str, str] = {}

    def session(self, scene: Scene, mode: Mode, folder: Path, on_hold: OnHold = "pause") -> HaystackSession:
        return HaystackSession(scene, mode, folder / "messages.json", on_hold)


HARNESSES: list[Harness] = [Haystack()]
