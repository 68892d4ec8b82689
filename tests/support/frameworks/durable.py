"""A process that carries out one step of a durable run, and may die of it: `python -m support.frameworks.durable`."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command

from support.frameworks.graphs import tool_graph
from support.frameworks.scripted import calling
from toolgate import Guard
from toolgate_integrations.langchain import GuardMiddleware

PAY = ("pay", {"to": "eve", "amount": 40}, "call-pay")
LOOK = ("look", {"what": "sky"}, "call-look")


def die() -> None:
    """As `kill -9` ends it."""
    os.kill(os.getpid(), signal.SIGKILL)


class DiesOfIt(GuardMiddleware):
    """The process ends when the call is held, before anything of the pause is written down."""

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        try:
            return super().wrap_tool_call(request, handler)
        except GraphBubbleUp:
            die()
            raise


def main(step: str, shape: str, folder: Path, dies: str) -> None:
    """Go one step.

    Args:
        step: `start`; `again` after a death; `resume` after a pause.
        shape: `agent` or `graph`.
        folder: of the checkpoints, and of the file that says what ran.
        dies: `held`: while pausing; `ran`: when the payment is made; otherwise not.
    """

    def look(what: str) -> str:
        """Look at something."""
        _ran(folder, f"look {what}")
        return f"seen {what}"

    def pay(to: str, amount: int) -> str:
        """Pay somebody."""
        _ran(folder, f"pay {to} {amount}")
        if dies == "ran":
            die()
        return f"paid {amount} to {to}"

    tools = [tool(look), tool(pay)]
    with SqliteSaver.from_conn_string(str(folder / "checkpoints.db")) as saver, Guard() as guarding:
        guard = (DiesOfIt if dies == "held" else GuardMiddleware)(guarding)
        model = calling([PAY] if shape == "alone" else [LOOK, PAY]) if step == "start" else calling()
        graph: Any
        if shape == "graph":
            graph = tool_graph(model, tools, guard, saver)
        else:
            graph = create_agent(model, tools, middleware=[guard], checkpointer=saver)
        config = {"configurable": {"thread_id": "thread-1"}}
        given: Any = {"start": {"messages": [("user", "go")]}, "again": None, "resume": Command(resume="go")}
        graph.invoke(given[step], config, durability="sync")
        state = graph.get_state(config)
        guarding.flush(30)
        sys.stdout.write(
            json.dumps(
                {
                    "held": [each.value["approval_id"] for each in state.interrupts],
                    "last": str(state.values["messages"][-1].content),
                    "read": [str(each.content) for each in state.values["messages"] if each.type == "tool"],
                }
            )
        )


def _ran(folder: Path, what: str) -> None:
    with (folder / "ran.txt").open("a") as file:
        file.write(f"{what}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
