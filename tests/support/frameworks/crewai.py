"""CrewAI's `Crew` with one agent and a scripted model, that calls functions natively or by ReAct's text."""

import asyncio
import atexit
import json
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Read when it is imported; it would send telemetry, and keep databases at home.
_STORAGE = tempfile.TemporaryDirectory()
atexit.register(_STORAGE.cleanup)
os.environ |= {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_DISABLE_TRACKING": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "OTEL_SDK_DISABLED": "true",
    "CREWAI_STORAGE_DIR": _STORAGE.name,
}

with warnings.catch_warnings():
    # Its packages import each other in circles, and what it brings along uses what is deprecated.
    warnings.simplefilter("ignore")
    from crewai import Agent, Crew, Task
    from crewai.llms.base_llm import BaseLLM
    from crewai.tools import tool
    from pydantic import Field

    from support.frameworks.harness import Call, Harness, Mode, OnHold, Scene, Seen
    from toolgate_integrations.crewai import GuardHooks


class Scripted(BaseLLM):
    """Makes the calls of each turn, and says "done" after the last."""

    native: bool = True
    turns: list[Any] = Field(default_factory=list)
    #: what it was given, each time
    given: list[Any] = Field(default_factory=list)

    def supports_function_calling(self) -> bool:
        return self.native

    def call(self, messages: Any, *_: Any, **__: Any) -> Any:
        self.given.append([dict(each) for each in messages])
        return self.turns.pop(0) if self.turns else "Thought: done\nFinal Answer: done"

    async def acall(self, messages: Any, *_: Any, **__: Any) -> Any:
        return self.call(messages)

    @property
    def read(self) -> list[str]:
        """What it read of its calls, in their order."""
        messages = self.given[-1]
        if self.native:
            return [str(each["content"]) for each in messages if each.get("role") == "tool"]
        said = [str(each["content"]) for each in messages if each.get("role") == "assistant"]
        return [each.split("\nObservation:", 1)[1].strip() for each in said if "\nObservation:" in each]


def scripted(*turns: Sequence[Call], native: bool = True) -> Scripted:
    """A model that makes the calls of each turn; by ReAct one call is a turn."""
    if native:
        said: list[Any] = [[_native(each) for each in turn] for turn in turns]
    else:
        said = [_text(each) for turn in turns for each in turn]
    return Scripted(model="scripted", native=native, turns=said)


def crew(llm: Scripted, tools: Sequence[Any], *, cache: bool = False, **options: Any) -> Crew:
    """A crew of one agent with one task."""
    agent = Agent(
        role="treasurer", goal="Pay.", backstory="Pays.", llm=llm, tools=list(tools), max_iter=20, **options
    )
    task = Task(description="Pay what is due.", expected_output="What was paid.", agent=agent)
    return Crew(agents=[agent], tasks=[task], cache=cache, tracing=False)


@contextmanager
def quiet() -> Iterator[None]:
    """Around all that makes or runs a crew: the framework warns of fields of its own, which nobody has used."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


class CrewAISession:
    """One crew, kicked off once for each turn."""

    def __init__(self, scene: Scene, mode: Mode, native: bool, on_hold: OnHold) -> None:
        self._scene, self._mode, self._native = scene, mode, native
        self._hooks = GuardHooks(scene.guard, on_hold=on_hold)
        self._hooks.register()
        self._read: dict[str, str] = {}

    async def start(self, *calls: Call) -> Seen:
        llm = scripted(calls, native=self._native)
        with quiet():
            made = crew(llm, [tool(each) for each in self._scene.tools.values()])
            output = await (made.akickoff() if self._mode == "async" else asyncio.to_thread(made.kickoff))
        self._read |= dict(zip([each.id for each in calls], llm.read, strict=True))
        return Seen(read=self._read, text=output.raw.split("Final Answer: ")[-1])

    async def resume(self, answer: str = "go", only: Sequence[str] | None = None) -> Seen:
        raise NotImplementedError("nothing pauses a crew")

    def restarted(self) -> "CrewAISession":
        raise NotImplementedError("nothing pauses a crew")

    async def close(self) -> None:
        self._hooks.unregister()


class CrewAI:
    """A crew's agent."""

    prefix = "tools"
    holds: Sequence[OnHold] = ("notify_model", "wait", "raise")

    def __init__(self, name: str, modes: Sequence[Mode], cannot: Mapping[str, str], *, native: bool) -> None:
        self.name, self.modes, self.cannot, self._native = name, modes, cannot, native

    def session(
        self, scene: Scene, mode: Mode, folder: Path, on_hold: OnHold = "notify_model"
    ) -> CrewAISession:
        return CrewAISession(scene, mode, self._native, on_hold)


def _native(call: Call) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.tool, "arguments": json.dumps(call.arguments)},
    }


def _text(call: Call) -> str:
    return f"Thought: go\nAction: {call.tool}\nAction Input: {json.dumps(call.arguments)}"


_ONE = "in each turn of CrewAI's ReAct loop, the model makes only one call"

HARNESSES: list[Harness] = [
    CrewAI("crewai", ("sync", "async"), {}, native=True),
    CrewAI(
        "crewai-react",
        ("sync",),
        {"test_waited_for_in_parallel": _ONE, "test_told_in_parallel": _ONE},
        native=False,
    ),
]
