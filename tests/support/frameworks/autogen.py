"""AutoGen's `AssistantAgent`, alone and in a team, and a scripted model client."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import TextMessageTermination
from autogen_agentchat.messages import TextMessage, ToolCallExecutionEvent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, ModelInfo, RequestUsage

from support.frameworks.harness import Call, Harness, Mode, OnHold, Scene, Seen
from toolgate_integrations.autogen import GuardedWorkbench

NOTHING = RequestUsage(prompt_tokens=0, completion_tokens=0)


class Model(ChatCompletionClient):
    """Makes the calls of each turn, and says "done" after the last."""

    def __init__(self, *turns: Sequence[Call]) -> None:
        self.turns = list(turns)

    async def create(self, messages: Sequence[LLMMessage], **_: Any) -> CreateResult:
        if not self.turns:
            return CreateResult(finish_reason="stop", content="done", usage=NOTHING, cached=False)
        calls = [
            FunctionCall(id=each.id, name=each.tool, arguments=json.dumps(each.arguments))
            for each in self.turns.pop(0)
        ]
        return CreateResult(finish_reason="function_calls", content=calls, usage=NOTHING, cached=False)

    async def create_stream(
        self, messages: Sequence[LLMMessage], **_: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        yield await self.create(messages)

    async def close(self) -> None:
        pass

    def actual_usage(self) -> RequestUsage:
        return NOTHING

    def total_usage(self) -> RequestUsage:
        return NOTHING

    def count_tokens(self, messages: Sequence[LLMMessage], **_: Any) -> int:
        return 0

    def remaining_tokens(self, messages: Sequence[LLMMessage], **_: Any) -> int:
        return 1000

    @property
    def capabilities(self) -> Any:
        return self.model_info

    @property
    def model_info(self) -> ModelInfo:
        return ModelInfo(
            vision=False, function_calling=True, json_output=False, family="unknown", structured_output=False
        )


def agent(model: Model, workbench: Any, **options: Any) -> AssistantAgent:
    """An agent with a scripted model."""
    return AssistantAgent("treasurer", model, workbench=workbench, max_tool_iterations=5, **options)


def read(messages: Sequence[Any]) -> dict[str, str]:
    """What the model has read of each call."""
    events = [each for each in messages if isinstance(each, ToolCallExecutionEvent)]
    return {result.call_id: result.content for each in events for result in each.content}


class AutoGenSession:
    """One conversation with one agent, or a team of it."""

    def __init__(self, scene: Scene, mode: Mode, on_hold: Any, *, team: bool) -> None:
        self._model, self._mode, self._token = Model(), mode, CancellationToken()
        bench = GuardedWorkbench(list(scene.tools.values()), scene.guard, on_hold=on_hold)
        made = agent(self._model, bench)
        self._runs: Any = (
            RoundRobinGroupChat([made], termination_condition=TextMessageTermination("treasurer"))
            if team
            else made
        )
        self._messages: list[Any] = []

    async def start(self, *calls: Call) -> Seen:
        self._model.turns.append(calls)
        given: Any = {"task": "go", "cancellation_token": self._token}
        if self._mode == "stream":
            async for result in self._runs.run_stream(**given):
                last = result
        else:
            last = await self._runs.run(**given)
        self._messages += last.messages
        said = self._messages[-1]
        return Seen({}, read(self._messages), said.content if isinstance(said, TextMessage) else None)

    async def resume(self, answer: str = "go", only: Sequence[str] | None = None) -> Seen:
        raise AssertionError("no run of AutoGen's is paused for a call")

    def restarted(self) -> "AutoGenSession":
        raise AssertionError("no run of AutoGen's is paused for a call")

    async def close(self) -> None:
        self._token.cancel()


class AutoGen:
    """AutoGen's agent."""

    name = "autogen"
    prefix = "tools"
    modes: Sequence[Mode] = ("async",)
    holds: Sequence[OnHold] = ("notify_model", "wait", "raise")
    cannot: Mapping[str, str] = {}
    team = False

    def session(
        self, scene: Scene, mode: Mode, folder: Path, on_hold: OnHold = "notify_model"
    ) -> AutoGenSession:
        return AutoGenSession(scene, mode, on_hold, team=self.team)


class AutoGenTeam(AutoGen):
    """A team of AutoGen's."""

    name = "autogen-team"
    modes: Sequence[Mode] = ("stream",)
    team = True


HARNESSES: list[Harness] = [AutoGen(), AutoGenTeam()]
