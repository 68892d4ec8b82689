"""smolagents' `ToolCallingAgent` and `CodeAgent`, and a scripted model."""

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from smolagents import ActionStep, CodeAgent, LogLevel, Tool, ToolCallingAgent
from smolagents.models import (
    ChatMessage,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    MessageRole,
    Model,
)

from support.frameworks.harness import Call, Harness, Mode, OnHold, Scene, Seen
from toolgate_integrations.smolagents import guard_agent

DONE = Call("final_answer", {"answer": "done"}, "call-done")


class Scripted(Model):
    """A model that says its turns one after the other: calls of tools, or code."""

    def __init__(self, *turns: Sequence[Call] | str) -> None:
        super().__init__(model_id="scripted")
        self.turns = list(turns)

    def generate(self, messages: Any, *given: Any, **more: Any) -> ChatMessage:
        turn = self.turns.pop(0)
        if isinstance(turn, str):
            return ChatMessage(role=MessageRole.ASSISTANT, content=f"<code>\n{turn}\n</code>")
        calls = [
            ChatMessageToolCall(
                id=each.id,
                type="function",
                function=ChatMessageToolCallFunction(name=each.tool, arguments=dict(each.arguments)),
            )
            for each in turn
        ]
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=calls)


def tools(scene: Scene) -> list[Tool]:
    """The scene's tools, as this framework wants them: with every argument described."""
    kinds = {"amount": "integer", "labels": "array"}

    def made(name: str, function: Any) -> Tool:
        arguments = [each for each in function.__annotations__ if each != "return"]
        described: dict[str, Any] = {
            each: {"type": kinds.get(each, "string"), "description": each} for each in arguments
        }
        if name == "send":
            described["amount"]["nullable"] = True

        def forward(_self: Any, *args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        # As a tool's own method has it, with the defaults.
        own, signature = (
            inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
            inspect.signature(function),
        )
        forward.__signature__ = signature.replace(  # type: ignore[attr-defined]  # read by inspect.signature
            parameters=[own, *signature.parameters.values()]
        )
        members = {
            "name": name,
            "description": function.__doc__,
            "inputs": described,
            "output_type": "string",
            "skip_forward_signature_validation": True,
            "forward": forward,
        }
        return type("SceneTool", (Tool,), members)()

    return [made(name, function) for name, function in scene.tools.items()]


def agent(scene: Scene, *turns: Sequence[Call] | str, kind: Any = None, **options: Any) -> Any:
    """A guarded agent that makes the calls, turn by turn, or runs the code."""
    kind = kind or (CodeAgent if any(isinstance(each, str) for each in turns) else ToolCallingAgent)
    holding = {"on_hold": options.pop("on_hold")} if "on_hold" in options else {}
    options = {"tools": tools(scene), "name": "treasurer", "verbosity_level": LogLevel.OFF, **options}
    return guard_agent(kind(model=Scripted(*turns), **options), scene.guard, **holding)


def steps(agent: Any) -> list[ActionStep]:
    """What the agent did, step by step."""
    return [each for each in agent.memory.steps if isinstance(each, ActionStep)]


def code(calls: Sequence[Call]) -> str:
    """Code that makes calls, and prints on a line for each what came of it."""
    written = []
    for each in calls:
        given = ", ".join(f"{name}={value!r}" for name, value in each.arguments.items())
        written += [
            "try:",
            f"    print('{each.id}', {each.tool}({given}))",
            "except Exception as error:",
            f"    print('{each.id}', error)",
        ]
    return "\n".join(written)


class SmolagentsSession:
    """One conversation of one agent."""

    def __init__(self, scene: Scene, on_hold: OnHold, *, coded: bool) -> None:
        self._coded = coded
        # Code waits as long as it takes only where nothing ends it before.
        options = {"executor_kwargs": {"timeout_seconds": None}} if coded else {}
        kind = CodeAgent if coded else ToolCallingAgent
        self._agent = agent(scene, kind=kind, on_hold=on_hold, **options)

    async def start(self, *calls: Call) -> Seen:
        self._agent.model.turns = [code(calls), "final_answer('done')"] if self._coded else [calls, [DONE]]
        before = len(steps(self._agent))
        text = await asyncio.to_thread(self._agent.run, "go", reset=False)
        return Seen({}, self._read(steps(self._agent)[before], calls), str(text))

    async def resume(self, answer: str = "go", only: Sequence[str] | None = None) -> Seen:
        raise NotImplementedError("smolagents has no pause")

    def restarted(self) -> "SmolagentsSession":
        raise NotImplementedError("smolagents has no pause")

    async def close(self) -> None:
        pass

    def _read(self, step: ActionStep, calls: Sequence[Call]) -> dict[str, str]:
        lines = (step.observations or str(step.error)).splitlines()
        if self._coded:
            return {
                each.id: line[len(each.id) + 1 :]
                for each in calls
                for line in lines
                if line.startswith(each.id)
            }
        # In the order of their ids, whichever came first.
        return dict(zip(sorted(each.id for each in calls), lines, strict=False))


class Smolagents:
    """An agent of smolagents."""

    prefix = "tools"
    modes: Sequence[Mode] = ("sync",)
    holds: Sequence[OnHold] = ("notify_model", "wait", "raise")
    cannot: Mapping[str, str] = {}

    def __init__(self, name: str, *, coded: bool) -> None:
        self.name, self._coded = name, coded

    def session(
        self, scene: Scene, mode: Mode, folder: Path, on_hold: OnHold = "notify_model"
    ) -> SmolagentsSession:
        return SmolagentsSession(scene, on_hold, coded=self._coded)


HARNESSES: list[Harness] = [
    Smolagents("smolagents", coded=False),
    Smolagents("smolagents-codeagent", coded=True),
]
