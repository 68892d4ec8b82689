"""A plain LangGraph with a `ToolNode`, in which all tool calls of a turn are one task."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import ToolMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command

from toolgate_integrations.langchain import GuardMiddleware

__all__ = ["Run", "tool_graph"]


def tool_graph(model: BaseChatModel, tools: Sequence[Any], guard: GuardMiddleware, saver: Any) -> Any:
    """The graph that LangGraph's own documents begin with."""

    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    node = ToolNode(tools, wrap_tool_call=guard.wrap_tool_call, awrap_tool_call=guard.awrap_tool_call)
    graph = StateGraph(MessagesState)
    graph.add_node("model", ask)
    graph.add_node("tools", node)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver)


@dataclass
class Run:
    """One thread of a graph or an agent.

    Attributes:
        graph: compiled.
        mode: how it is called.
        config: of the thread.
    """

    graph: Any
    mode: Literal["sync", "async"] = "sync"
    config: Any = None

    def __post_init__(self) -> None:
        self.config = self.config or {"configurable": {"thread_id": "thread-1"}}

    async def start(self) -> None:
        await self._go({"messages": [("user", "go")]})

    async def resume(self, answer: object) -> None:
        """Answer what it is paused for, all of it with the same."""
        await self._go(Command(resume={each.id: answer for each in self.interrupts}))

    async def _go(self, given: Any) -> None:
        call: Callable[..., Any] = self.graph.invoke if self.mode == "sync" else self.graph.ainvoke
        outcome = call(given, self.config)
        if self.mode == "async":
            await outcome

    @property
    def interrupts(self) -> Sequence[Any]:
        """What it is paused by."""
        found: Sequence[Any] = self.graph.get_state(self.config).interrupts
        return found

    @property
    def held(self) -> Mapping[str, str]:
        """The calls it is paused for, and the approval each waits for."""
        waiting = [one for each in self.interrupts for one in (each.value, *each.value.get("others", ()))]
        return {each["tool_call_id"]: each["approval_id"] for each in waiting}

    @property
    def read(self) -> Mapping[str, str]:
        """What the model read of each call."""
        messages = self.graph.get_state(self.config).values["messages"]
        return {each.tool_call_id: str(each.content) for each in messages if isinstance(each, ToolMessage)}
