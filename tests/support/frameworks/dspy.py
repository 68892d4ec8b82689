"""DSPy's `ReAct` and `ReActV2`, and its own `DummyLM`."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dspy
from dspy.utils import DummyLM

from support.frameworks.harness import Call, Harness, Mode, OnHold, Scene, Seen
from toolgate_integrations.dspy import guard_tools


def react(*calls: Call) -> DummyLM:
    """A model that makes the calls one by one, as `ReAct` has it."""
    made = [(each.tool, dict(each.arguments)) for each in calls]
    turns = [
        {"next_thought": "next", "next_tool_name": name, "next_tool_args": json.dumps(arguments)}
        for name, arguments in [*made, ("finish", {})]
    ]
    return DummyLM([*turns, {"reasoning": "all of it", "answer": "done"}])


def react_v2(*calls: Call) -> DummyLM:
    """A model that makes the calls in one turn, as `ReActV2` has it."""
    turn = [{"id": each.id, "name": each.tool, "args": dict(each.arguments)} for each in calls]
    return DummyLM(
        [
            {"next_thought": "next", "tool_calls": json.dumps({"tool_calls": made})}
            for made in (turn, [{"name": "submit", "args": {"answer": "done"}}])
        ]
    )


class DSPySession:
    """Programs that are run one after the other: DSPy has no conversation."""

    def __init__(self, scene: Scene, mode: Mode, on_hold: OnHold, *, second: bool) -> None:
        self._mode, self._second = mode, second
        self._tools = guard_tools(scene.tools.values(), scene.guard, on_hold=on_hold)

    async def start(self, *calls: Call) -> Seen:
        kind = dspy.ReActV2 if self._second else dspy.ReAct
        program = kind("question -> answer", tools=self._tools)
        with dspy.context(lm=react_v2(*calls) if self._second else react(*calls)):
            if self._mode == "sync":
                said = await asyncio.to_thread(program, question="go")
            else:
                said = await program.acall(question="go")
        return Seen({}, self._read(said, calls), said.answer)

    async def resume(self, answer: str = "go", only: Sequence[str] | None = None) -> Seen:
        raise NotImplementedError("DSPy has no pause")

    def restarted(self) -> "DSPySession":
        raise NotImplementedError("DSPy has no pause")

    async def close(self) -> None:
        pass

    def _read(self, said: Any, calls: Sequence[Call]) -> dict[str, str]:
        if not self._second:
            return {each.id: str(said.trajectory[f"observation_{at}"]) for at, each in enumerate(calls)}
        results = said.history.messages[0]["tool_calls"].tool_call_results.tool_call_results
        return {each.id: str(result.value) for each, result in zip(calls, results, strict=True)}


class DSPy:
    """An agent of DSPy."""

    prefix = "tools"
    modes: Sequence[Mode] = ("sync", "async")
    holds: Sequence[OnHold] = ("notify_model", "wait", "raise")
    cannot: Mapping[str, str] = {}

    def __init__(self, name: str, *, second: bool) -> None:
        self.name, self._second = name, second

    def session(
        self, scene: Scene, mode: Mode, folder: Path, on_hold: OnHold = "notify_model"
    ) -> DSPySession:
        return DSPySession(scene, mode, on_hold, second=self._second)


HARNESSES: list[Harness] = [DSPy("dspy-react", second=False), DSPy("dspy-reactv2", second=True)]
