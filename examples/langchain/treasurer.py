"""A LangChain agent whose payments require an approval, and whose run is resumed in another process."""

import os
import sys
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command

from toolgate_integrations.langchain import GuardMiddleware

INVOICES = {"INV-7": 120.5}
TASK = (
    "Read invoice INV-7, then pay it: one tool call each. Say in one sentence what was done and what was not."
)
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("read_invoice", {"number": "INV-7"}),
    ("pay_invoice", {"number": "INV-7", "amount": 120.5}),
)


def read_invoice(number: str) -> str:
    """Look at an invoice."""
    return f"{number}: {INVOICES[number]:.2f} euros, from Ada Ltd."


def pay_invoice(number: str, amount: float) -> str:
    """Pay an invoice."""
    with Path(os.environ.get("PAYMENTS_FILE", "payments.txt")).open("a") as payments:
        payments.write(f"{number} {amount:.2f}\n")
    return f"paid {amount:.2f} for {number}"


class Scripted(BaseChatModel):
    """Scripted model for runs without an API key."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_tools: Any, **_kwargs: Any) -> "Scripted":
        """Take the tools; the script knows them."""
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **_kwargs: Any,
    ) -> ChatResult:
        del stop, run_manager
        results = [each for each in messages if isinstance(each, ToolMessage)]
        if len(results) < len(CALLS):
            name, args = CALLS[len(results)]
            answer = AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"call-{len(results)}"}])
        else:
            answer = AIMessage(f"I read INV-7. Result of the payment: {results[-1].text}")
        return ChatResult(generations=[ChatGeneration(message=answer)])


def run(checkpoints: Path) -> str:
    """Start a run, or resume the last one. The checkpoints contain its state.

    Returns:
        The model's last words, or what waits for a person.
    """
    named = os.environ.get("LANGCHAIN_MODEL")
    model = init_chat_model(named) if named else Scripted()
    with SqliteSaver.from_conn_string(str(checkpoints)) as saver:
        agent: Any = create_agent(
            model,
            tools=[read_invoice, pay_invoice],
            middleware=[GuardMiddleware()],
            checkpointer=saver,
            name="treasurer",
        )
        thread = {"configurable": {"thread_id": "INV-7"}}
        waiting = agent.get_state(thread).interrupts
        # It only wakes the run: whether the payment is approved is what the gateway is asked.
        woken = Command(resume={each.id: {"type": "approve"} for each in waiting})
        result = agent.invoke(woken if waiting else {"messages": [("user", TASK)]}, thread)
        held = [each.value for each in agent.get_state(thread).interrupts]
    if held:
        return "\n".join(
            f"waits for a person: {each['name']}, approval {each['approval_id']}" for each in held
        )
    return str(result["messages"][-1].text)


if __name__ == "__main__":
    print(run(Path(sys.argv[1] if len(sys.argv) > 1 else "treasurer.db")))
