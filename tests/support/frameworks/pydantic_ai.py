"""Pydantic AI's `Agent`, its history kept as JSON in a file, and its own `FunctionModel`."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ToolDenied
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from support.frameworks.harness import Call, Harness, Mode, OnHold, Scene, Seen
from toolgate_integrations.pydantic_ai import GuardCapability


def scripted(*turns: Sequence[Call]) -> FunctionModel:
    """A model that makes the calls of each turn, and says "done" after the last."""

    def parts(messages: list[ModelMessage]) -> list[TextPart | ToolCallPart]:
        turn = sum(isinstance(each, ModelResponse) for each in messages)
        if turn >= len(turns):
            return [TextPart("done")]
        return [ToolCallPart(each.tool, dict(each.arguments), each.id) for each in turns[turn]]

    def say(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=parts(messages))

    async def stream(
        messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        for at, part in enumerate(parts(messages)):
            if isinstance(part, TextPart):
                yield part.content
            else:
                yield {
                    at: DeltaToolCall(part.tool_name, json.dumps(part.args), tool_call_id=part.tool_call_id)
                }

    return FunctionModel(say, stream_function=stream)


def run_sync(agent: Any, given: dict[str, Any]) -> Any:
    """`Agent.run_sync` on a loop of its own, which is closed: the framework leaves the one it makes."""
    with asyncio.Runner() as runner:
        asyncio.set_event_loop(runner.get_loop())
        return agent.run_sync(**given)


def agent(scene: Scene, *calls: Call, output_type: Any = (str, DeferredToolRequests), **options: Any) -> Any:
    """A guarded agent that makes the calls in one turn."""
    options = {"tools": list(scene.tools.values()), "capabilities": [GuardCapability(scene.guard)], **options}
    return Agent(
        scripted(calls),
        output_type=list(output_type) if isinstance(output_type, tuple) else output_type,
        **options,
    )


def read(result: Any) -> dict[str, tuple[str, str]]:
    """The outcome of each call and what the model read of it."""
    parts = [part for message in result.all_messages() for part in message.parts]
    return {
        each.tool_call_id: (each.outcome, str(each.content))
        for each in parts
        if isinstance(each, ToolReturnPart)
    }


async def resumed(agent: Any, result: Any, **answers: Any) -> Any:
    """The run, gone on with: the answer to each of its held calls."""
    results = result.output.build_results(approvals={f"call-{name}": said for name, said in answers.items()})
    return await agent.run(message_history=result.all_messages(), deferred_tool_results=results)


class PydanticAISession:
    """One conversation of one agent."""

    def __init__(self, scene: Scene, mode: Mode, file: Path, on_hold: OnHold = "pause") -> None:
        self._scene, self._mode, self._file = scene, mode, file
        self._on_hold: Any = on_hold
        self._held: dict[str, str] = {}
        self._history: list[ModelMessage] = []
        self._agent = self._made()
        if file.exists():
            self._held = json.loads(file.with_suffix(".held").read_text())
            self._history = ModelMessagesTypeAdapter.validate_json(file.read_bytes())

    def _made(self, *calls: Call) -> Any:
        return Agent(
            scripted(calls),
            name="treasurer",
            tools=list(self._scene.tools.values()),
            output_type=[str, DeferredToolRequests],
            capabilities=[GuardCapability(self._scene.guard, on_hold=self._on_hold)],
        )

    async def start(self, *calls: Call) -> Seen:
        self._agent = self._made(*calls)
        return await self._run(user_prompt="go", conversation_id="talk")

    async def resume(self, answer: str = "go", only: Sequence[str] | None = None) -> Seen:
        said: Any = True if answer == "go" else ToolDenied("no")
        chosen = {each: said for each in self._held if only is None or each in only}
        results = DeferredToolResults(approvals=chosen)
        return await self._run(message_history=self._history, deferred_tool_results=results)

    def restarted(self) -> "PydanticAISession":
        return PydanticAISession(self._scene, self._mode, self._file)

    async def close(self) -> None:
        pass

    async def _run(self, **given: Any) -> Seen:
        if self._mode == "sync":
            result = await asyncio.to_thread(run_sync, self._agent, given)
            output = result.output
        elif self._mode == "async":
            result = await self._agent.run(**given)
            output = result.output
        else:
            async with self._agent.run_stream(**given) as result:
                output = await result.get_output()
        self._history = result.all_messages()
        self._file.write_bytes(result.all_messages_json())
        held = output.metadata if isinstance(output, DeferredToolRequests) else {}
        self._held = {each: said["approval_id"] for each, said in held.items()}
        self._file.with_suffix(".held").write_text(json.dumps(self._held))
        return Seen(self._held, self._read(), output if isinstance(output, str) else None)

    def _read(self) -> dict[str, str]:
        parts = [part for message in self._history for part in message.parts]
        return {each.tool_call_id: str(each.content) for each in parts if isinstance(each, ToolReturnPart)}


class PydanticAI:
    """Pydantic AI's agent."""

    name = "pydantic_ai"
    prefix = "tools"
    modes: Sequence[Mode] = ("sync", "async", "stream")
    holds: Sequence[OnHold] = ("pause", "wait", "notify_model", "raise")
    cannot: Mapping[str, str] = {}

    def session(self, scene: Scene, mode: Mode, folder: Path, on_hold: OnHold = "pause") -> PydanticAISession:
        return PydanticAISession(scene, mode, folder / "history.json", on_hold)


HARNESSES: list[Harness] = [PydanticAI()]
