"""LangChain's `create_agent` and a plain LangGraph with a `ToolNode`, and a scripted chat model."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from support.frameworks.graphs import tool_graph
from support.frameworks.harness import Call, Harness, Mode, OnHold, Scene, Seen
from support.frameworks.scripted import Model
from toolgate_integrations.langchain import GuardMiddleware


class LangChainSession:
    """One thread of one agent."""

    def __init__(self, scene: Scene, mode: Mode, saver: Any, on_hold: OnHold = "pause") -> None:
        self._scene, self._mode, self._saver = scene, mode, saver
        self._config: Any = {"configurable": {"thread_id": "thread-1"}}
        self._said: list[AIMessage] = []
        model = Model(messages=iter(self._saying()))
        tools = [tool(each) for each in scene.tools.values()]
        guard = GuardMiddleware(scene.guard, on_hold=on_hold)
        self._agent = self.made_of(model, tools, guard, saver)

    def made_of(self, model: Model, tools: Any, guard: GuardMiddleware, saver: Any) -> Any:
        return create_agent(model, tools, middleware=[guard], checkpointer=saver, name="treasurer")

    def _saying(self) -> Any:
        while True:
            yield self._said.pop(0) if self._said else AIMessage("done")

    async def start(self, *calls: Call) -> Seen:
        made = [{"name": each.tool, "args": dict(each.arguments), "id": each.id} for each in calls]
        self._said.append(AIMessage("", tool_calls=made))
        return await self._run({"messages": [("user", "go")]})

    async def resume(self, answer: str = "go", only: Sequence[str] | None = None) -> Seen:
        waiting = self._agent.get_state(self._config).interrupts
        said = {"type": "approve"} if answer == "go" else {"type": "reject", "message": "no"}
        chosen = [each for each in waiting if only is None or each.value["tool_call_id"] in only]
        return await self._run(Command(resume={each.id: said for each in chosen}))

    def restarted(self) -> "LangChainSession":
        return type(self)(self._scene, self._mode, self._saver)

    async def close(self) -> None:
        pass

    async def _run(self, given: Any) -> Seen:
        if self._mode == "sync":
            await asyncio.to_thread(self._agent.invoke, given, self._config)
        elif self._mode == "async":
            await self._agent.ainvoke(given, self._config)
        else:
            async for _ in self._agent.astream(given, self._config, stream_mode=["updates", "messages"]):
                pass
        return self._seen()

    def _seen(self) -> Seen:
        state = self._agent.get_state(self._config)
        waiting = [one for each in state.interrupts for one in (each.value, *each.value.get("others", ()))]
        held = {each["tool_call_id"]: each["approval_id"] for each in waiting}
        messages = state.values["messages"]
        read = {each.tool_call_id: str(each.content) for each in messages if isinstance(each, ToolMessage)}
        last = messages[-1]
        text = str(last.content) if isinstance(last, AIMessage) and not held else None
        return Seen(held, read, text)


class LangGraphSession(LangChainSession):
    """One thread of one graph, in which all tool calls of a turn are one task."""

    def made_of(self, model: Model, tools: Any, guard: GuardMiddleware, saver: Any) -> Any:
        return tool_graph(model, tools, guard, saver)


class LangChain:
    """LangChain's agent."""

    name = "langchain"
    prefix = "tools"
    modes: Sequence[Mode] = ("sync", "async", "stream")
    holds: Sequence[OnHold] = ("pause", "wait", "notify_model", "raise")
    cannot: Mapping[str, str] = {}

    def session(self, scene: Scene, mode: Mode, folder: Path, on_hold: OnHold = "pause") -> LangChainSession:
        return LangChainSession(scene, mode, InMemorySaver(), on_hold)


class LangGraph:
    """A graph with a `ToolNode`."""

    name = "langchain-toolnode"
    prefix = "tools"
    modes: Sequence[Mode] = ("sync", "async")
    holds: Sequence[OnHold] = ("pause", "wait", "notify_model", "raise")
    cannot: Mapping[str, str] = {}

    def session(self, scene: Scene, mode: Mode, folder: Path, on_hold: OnHold = "pause") -> LangGraphSession:
        return LangGraphSession(scene, mode, InMemorySaver(), on_hold)


HARNESSES: list[Harness] = [LangChain(), LangGraph()]
