"""The Agents SDK's runner, and a scripted model of its own interface."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, RunState, function_tool, set_tracing_disabled
from agents.usage import Usage
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from support.frameworks.harness import Call, Harness, Mode, OnHold, Scene, Seen
from toolgate_integrations.openai_agents import aresume, aresume_streamed, guard_agent, resume

set_tracing_disabled(True)


def called(name: str, arguments: Mapping[str, Any] | str, call_id: str) -> ResponseFunctionToolCall:
    """A call as the model makes it; text goes as it is."""
    text = arguments if isinstance(arguments, str) else json.dumps(dict(arguments))
    return ResponseFunctionToolCall(arguments=text, call_id=call_id, name=name, type="function_call")


def said(text: str) -> ResponseOutputMessage:
    """A last word."""
    content = [ResponseOutputText(annotations=[], text=text, type="output_text")]
    return ResponseOutputMessage(
        id="msg", content=content, role="assistant", status="completed", type="message"
    )


class Scripted(Model):
    """Says what it is told to, turn by turn, and then "done"; the SDK's own double is not in the oldest version."""

    def __init__(self, *turns: Sequence[Any]) -> None:
        self.turns = list(turns)
        self.read: list[Any] = []

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:  # noqa: A002 - the SDK's own name
        self.read.append(input)
        turn = self.turns.pop(0) if self.turns else [said("done")]
        return ModelResponse(output=list(turn), usage=Usage(), response_id=None)

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        answer = await self.get_response(*args, **kwargs)
        response = Response(
            id="resp",
            created_at=0,
            model="scripted",
            object="response",
            output=answer.output,
            parallel_tool_calls=True,
            tool_choice="auto",
            tools=[],
        )
        yield ResponseCompletedEvent(response=response, sequence_number=0, type="response.completed")


async def in_sync(run: Any, *args: Any) -> Any:
    """Run what wants no event loop in a thread of its own, and close the loop it leaves there."""

    def alone() -> Any:
        asyncio.set_event_loop(loop := asyncio.new_event_loop())
        try:
            return run(*args)
        finally:
            loop.close()

    return await asyncio.to_thread(alone)


def outputs(result: Any) -> dict[str, str]:
    """What the model reads of calls, by id."""
    items = result.to_input_list()
    return {
        each["call_id"]: _text(each["output"]) for each in items if each.get("type") == "function_call_output"
    }


def _text(output: Any) -> str:
    return output if isinstance(output, str) else " ".join(str(part.get("text")) for part in output)


class OpenAISession:
    """One run of one agent; what is durable is its state as text."""

    def __init__(self, scene: Scene, mode: Mode, state: str | None = None, on_hold: OnHold = "pause") -> None:
        self._scene, self._mode, self._state = scene, mode, state
        self._model = Scripted()
        tools = [function_tool(each) for each in scene.tools.values()]
        self.agent = guard_agent(
            Agent("treasurer", model=self._model, tools=tools),
            scene.guard,
            on_hold=on_hold,
        )

    async def start(self, *calls: Call) -> Seen:
        self._model.turns.append([called(each.tool, each.arguments, each.id) for each in calls])
        if self._mode == "sync":
            return self._seen(await in_sync(Runner.run_sync, self.agent, "go"))
        if self._mode == "async":
            return self._seen(await Runner.run(self.agent, "go"))
        return await self._streamed(Runner.run_streamed(self.agent, "go"))

    async def resume(self, answer: str = "go", only: Sequence[str] | None = None) -> Seen:
        assert self._state is not None
        state = await RunState.from_string(self.agent, self._state)
        if answer == "reject":
            for item in state.get_interruptions():
                if only is None or item.call_id in only:
                    state.reject(item)
        if self._mode == "sync":
            return self._seen(await in_sync(resume, self.agent, state))
        if self._mode == "async":
            return self._seen(await aresume(self.agent, state))
        return await self._streamed(await aresume_streamed(self.agent, state))

    def restarted(self) -> "OpenAISession":
        return OpenAISession(self._scene, self._mode, self._state)

    async def close(self) -> None:
        pass

    async def _streamed(self, running: Any) -> Seen:
        async for _ in running.stream_events():
            pass
        return self._seen(running)

    def _seen(self, result: Any) -> Seen:
        self._state = result.to_state().to_string()
        held = {each.call_id: self._approval_of(each) for each in result.interruptions}
        items = result.to_input_list()
        read = {
            each["call_id"]: str(each["output"])
            for each in items
            if each.get("type") == "function_call_output"
        }
        return Seen(held, read, None if held else str(result.final_output))

    def _approval_of(self, item: Any) -> str:
        given = json.loads(item.arguments)
        asked = self._scene.guard.check(f"tools.{item.tool_name}", given, call_id=item.call_id, dry_run=True)
        assert asked.approval_id is not None
        return asked.approval_id


class OpenAIAgents:
    """The Agents SDK."""

    name = "openai-agents"
    prefix = "tools"
    modes: Sequence[Mode] = ("sync", "async", "stream")
    holds: Sequence[OnHold] = ("pause", "wait", "notify_model", "raise")
    cannot: Mapping[str, str] = {}

    def session(self, scene: Scene, mode: Mode, folder: Path, on_hold: OnHold = "pause") -> OpenAISession:
        return OpenAISession(scene, mode, on_hold=on_hold)


HARNESSES: list[Harness] = [OpenAIAgents()]
