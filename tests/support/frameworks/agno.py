"""Agno's `Agent`, its session kept by its own JSON database, and a scripted model."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agno.agent import Agent
from agno.db.json import JsonDb
from agno.models.base import Model
from agno.models.message import Message
from agno.models.response import ModelResponse
from agno.run.agent import RunOutput

from support.frameworks.harness import Call, Harness, Mode, OnHold, Scene, Seen
from toolgate_integrations.agno import aresume, guard_agent, resume


class Scripted(Model):
    """A model that makes the calls of each turn, and says "done" after the last."""

    def __init__(self, *turns: Sequence[Call]) -> None:
        super().__init__(id="scripted", name="scripted", provider="tests")
        self.turns = list(turns)
        self.read: dict[str, str] = {}
        self.errors: dict[str, bool | None] = {}

    def _said(self, messages: list[Message]) -> ModelResponse:
        for each in messages:
            if each.role == "tool":
                self.read[str(each.tool_call_id)] = str(each.content)
                self.errors[str(each.tool_call_id)] = each.tool_call_error
        if not self.turns:
            return ModelResponse(role="assistant", content="done")
        calls = [
            {
                "id": each.id,
                "type": "function",
                "function": {"name": each.tool, "arguments": json.dumps(dict(each.arguments))},
            }
            for each in self.turns.pop(0)
        ]
        return ModelResponse(role="assistant", tool_calls=calls)

    def invoke(self, messages: list[Message], *given: Any, **more: Any) -> ModelResponse:
        return self._said(messages)

    async def ainvoke(self, messages: list[Message], *given: Any, **more: Any) -> ModelResponse:
        return self._said(messages)

    def invoke_stream(self, messages: list[Message], *given: Any, **more: Any) -> Iterator[ModelResponse]:
        yield self._said(messages)

    async def ainvoke_stream(
        self, messages: list[Message], *given: Any, **more: Any
    ) -> AsyncIterator[ModelResponse]:
        yield self._said(messages)

    def _parse_provider_response(self, response: Any, **more: Any) -> Any:
        return response

    def _parse_provider_response_delta(self, response: Any) -> Any:
        return response


def agent(scene: Scene, *turns: Sequence[Call], on_hold: Any = "pause", **options: Any) -> Any:
    """A guarded agent that makes the calls, turn by turn."""
    options = {"tools": list(scene.tools.values()), "name": "treasurer", "telemetry": False, **options}
    return guard_agent(Agent(model=Scripted(*turns), **options), scene.guard, on_hold=on_hold)


def held(run: RunOutput) -> dict[str, str]:
    """The approvals that calls wait for, by the calls."""
    calls = [each.tool_execution for each in run.active_requirements]
    return {str(each.tool_call_id): each.approval_id for each in calls if each and each.approval_id}


class AgnoSession:
    """One session of one agent."""

    def __init__(self, scene: Scene, mode: Mode, folder: Path, on_hold: OnHold) -> None:
        self._scene, self._mode, self._folder, self._on_hold = scene, mode, folder, on_hold
        self._run: RunOutput | None = None
        self._made()

    def _made(self, *calls: Call) -> None:
        db = JsonDb(str(self._folder))
        turns = [calls] if calls else []
        self._agent = agent(
            self._scene, *turns, on_hold=self._on_hold, db=db, session_id="INV-7", add_history_to_context=True
        )

    async def start(self, *calls: Call) -> Seen:
        self._made(*calls)
        if self._mode == "sync":
            return self._seen(await asyncio.to_thread(lambda: resume(self._agent, self._agent.run("go"))))
        return self._seen(await aresume(self._agent, await self._agent.arun("go")))

    async def resume(self, answer: str = "go", only: Sequence[str] | None = None) -> Seen:
        run = self._run or self._agent.get_last_run_output("INV-7")
        for each in run.active_requirements:
            if only is None or each.tool_execution.tool_call_id in only:
                each.confirm() if answer == "go" else each.reject("no")
        if self._mode == "sync":
            return self._seen(await asyncio.to_thread(resume, self._agent, run))
        return self._seen(await aresume(self._agent, run))

    def restarted(self) -> "AgnoSession":
        return AgnoSession(self._scene, self._mode, self._folder, self._on_hold)

    async def close(self) -> None:
        pass

    def _seen(self, run: RunOutput) -> Seen:
        self._run = run
        return Seen(held(run), self._agent.model.read, None if run.is_paused else str(run.content))


class Agno:
    """Agno's agent."""

    name = "agno"
    prefix = "tools"
    modes: Sequence[Mode] = ("sync", "async")
    holds: Sequence[OnHold] = ("pause", "wait", "notify_model", "raise")
    cannot: Mapping[str, str] = {}

    def session(self, scene: Scene, mode: Mode, folder: Path, on_hold: OnHold = "pause") -> AgnoSession:
        return AgnoSession(scene, mode, folder, on_hold)


HARNESSES: list[Harness] = [Agno()]
