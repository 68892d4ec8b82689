"""Scripted chat model without an API key: it makes four tool calls, one per turn, and then summarizes the results."""

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool

CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("refund", {"order_id": "1001", "amount": 40.0}),
    ("refund", {"order_id": "1002", "amount": 250.0}),
    ("delete_file", {"name": "customers-2019.csv"}),
    ("send_mail", {"to": "ada@example.test", "subject": "Your refund", "body": "40.00 are on their way."}),
)


class ScriptedModel(BaseChatModel):
    """Plays the model's part; the agent's loop around it is the real one."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], **_kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Accept the agent's tools; the script knows which ones it wants."""
        missing = {name for name, _ in CALLS} - {tool.name for tool in tools if isinstance(tool, BaseTool)}
        if missing:
            raise LookupError(f"the script needs the tools {sorted(missing)!r}")
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **_kwargs: Any,
    ) -> ChatResult:
        del stop, run_manager
        results = [message for message in messages if isinstance(message, ToolMessage)]
        if len(results) < len(CALLS):
            name, args = CALLS[len(results)]
            call = {"name": name, "args": args, "id": f"call-{len(results) + 1}", "type": "tool_call"}
            answer = AIMessage(content="", tool_calls=[call])
        else:
            answer = AIMessage(content="\n".join(str(result.content) for result in results))
        return ChatResult(generations=[ChatGeneration(message=answer)])
