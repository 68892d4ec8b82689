"""The shop's agent: LangChain's own loop, the shop's guarded tools, any chat model."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import ToolCallRequest, wrap_tool_call
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import ToolMessage
from langgraph.types import Command

from toolgate import GuardError
from toolgate_integrations.refusals import refusal_text

sys.path.insert(0, str(Path(__file__).parent))

from script import ScriptedModel
from shop import delete_file, refund, send_mail

TASK = (
    "You work for a small shop. Do these four things, one after the other, each exactly once and each with one tool "
    "call, even if an earlier one was refused; never repeat a refused call. "
    "1. Refund 40.00 of order 1001. 2. Refund 250.00 of order 1002. 3. Delete the file customers-2019.csv. "
    "4. Send ada@example.test a mail with the subject 'Your refund' saying that 40.00 are on their way. "
    "Then say in a few words what was done and what was not."
)


def run(model: BaseChatModel, on_call: Callable[[Mapping[str, Any]], None] | None = None) -> str:
    """Do the task and return the model's last words.

    Args:
        model: the chat model.
        on_call: called with the arguments of each tool call before the gateway is asked.
    """

    @wrap_tool_call
    def tell_the_model(
        request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        """Return a denial to the model as a tool result, so that the run continues."""
        call = request.tool_call
        if on_call is not None:
            on_call(call["args"])
        try:
            return handler(request)
        except GuardError as error:
            return ToolMessage(
                refusal_text(error), name=call["name"], tool_call_id=call["id"], status="error"
            )

    agent = create_agent(model, tools=[refund, delete_file, send_mail], middleware=[tell_the_model])
    result = agent.invoke({"messages": [{"role": "user", "content": TASK}]})
    return str(result["messages"][-1].text)


if __name__ == "__main__":
    print(run(ScriptedModel()))
