"""Semantic Kernel's `ChatCompletionAgent`, its chat history kept in a file, and a scripted model."""

import functools
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from semantic_kernel import Kernel
from semantic_kernel.agents import ChatCompletionAgent, ChatHistoryAgentThread
from semantic_kernel.connectors.ai.chat_completion_client_base import ChatCompletionClientBase
from semantic_kernel.contents import (
    AuthorRole,
    ChatHistory,
    ChatMessageContent,
    FunctionCallContent,
    FunctionResultContent,
    StreamingChatMessageContent,
    StreamingTextContent,
    TextContent,
)
from semantic_kernel.functions import KernelArguments, kernel_function

from support.frameworks.harness import Call, Harness, Mode, OnHold, Scene, Seen
from toolgate_integrations.semantic_kernel import aresume, guard_kernel, waiting


class Scripted(ChatCompletionClientBase):
    """A model that makes the calls of each turn, and says "done" after the last."""

    SUPPORTS_FUNCTION_CALLING = True
    turns: list[Any]

    def _items(self, text: type[Any], **options: Any) -> list[Any]:
        calls = self.turns.pop(0) if self.turns else ()
        return [
            FunctionCallContent(id=each.id, name=f"bank-{each.tool}", arguments=json.dumps(each.arguments))
            for each in calls
        ] or [text(text="done", **options)]

    async def _inner_get_chat_message_contents(self, chat_history: Any, settings: Any) -> list[Any]:
        return [ChatMessageContent(role=AuthorRole.ASSISTANT, items=self._items(TextContent))]

    async def _inner_get_streaming_chat_message_contents(
        self, chat_history: Any, settings: Any, function_invoke_attempt: int = 0
    ) -> AsyncGenerator[list[Any], Any]:
        items = self._items(StreamingTextContent, choice_index=0)
        yield [StreamingChatMessageContent(role=AuthorRole.ASSISTANT, choice_index=0, items=items)]

    def _update_function_choice_settings_callback(self) -> Callable[..., None]:
        return lambda *_, **__: None

    def _reset_function_choice_settings(self, settings: Any) -> None:
        pass

    def _verify_function_choice_settings(self, settings: Any) -> None:
        pass


def function(tool: Callable[..., Any]) -> Any:
    """A kernel's function of a tool, which may be a method."""

    @kernel_function
    @functools.wraps(tool)
    def called(*given: Any, **named: Any) -> Any:
        return tool(*given, **named)

    return called


def kernel(
    scene: Scene, *turns: Sequence[Call], functions: Iterable[Any] | None = None, **options: Any
) -> Any:
    """A guarded kernel with the functions as its plugin `bank`, and a model that makes the calls of each turn."""
    made = Kernel(services=Scripted(ai_model_id="scripted", turns=list(turns)))
    added = [function(each) for each in scene.tools.values()] if functions is None else list(functions)
    made.add_functions(plugin_name="bank", functions=added)
    return guard_kernel(made, scene.guard, **options)


def arguments(**more: Any) -> KernelArguments:
    """What the run is told beside: its own name."""
    return KernelArguments(toolgate_run_id="run-1", **more)


async def history_of(thread: Any) -> ChatHistory:
    """All messages of a thread."""
    return ChatHistory(messages=[each async for each in thread.get_messages()])


async def asked(
    kernel: Any, history: ChatHistory, said: str | None = "go", **options: Any
) -> tuple[str, ChatHistory]:
    """The agent's last word, and the history with what came of it."""
    agent = ChatCompletionAgent(kernel=kernel, name="treasurer")
    thread = ChatHistoryAgentThread(chat_history=history)
    options = {"arguments": arguments(), **options}
    response = await agent.get_response(said, thread=thread, **options)
    return str(response.message.content), await history_of(thread)


async def streamed(kernel: Any, history: ChatHistory, said: str | None = "go") -> tuple[str, ChatHistory]:
    """As `asked`, while it is written."""
    agent = ChatCompletionAgent(kernel=kernel, name="treasurer")
    thread = ChatHistoryAgentThread(chat_history=history)
    parts = [each async for each in agent.invoke_stream(said, thread=thread, arguments=arguments())]
    return "".join(str(each.message.content) for each in parts), await history_of(thread)


def read(history: ChatHistory) -> dict[str, str]:
    """What the model read of each call."""
    items = [item for message in history.messages for item in message.items]
    return {str(each.id): str(each.result) for each in items if isinstance(each, FunctionResultContent)}


class SemanticKernelSession:
    """One conversation with one agent."""

    def __init__(self, scene: Scene, mode: Mode, file: Path, on_hold: OnHold) -> None:
        self._scene, self._mode, self._file, self._on_hold = scene, mode, file, on_hold
        self._history = ChatHistory.restore_chat_history(file.read_text()) if file.exists() else ChatHistory()
        self._kernel = self._made()

    def _made(self, *calls: Call) -> Any:
        on_hold = self._on_hold
        return kernel(self._scene, *([calls] if calls else []), on_hold=on_hold)

    async def start(self, *calls: Call) -> Seen:
        self._kernel = self._made(*calls)
        return await self._run("go")

    async def resume(self, answer: str = "go", only: Sequence[str] | None = None) -> Seen:
        held = [each for each in waiting(self._history) if only is None or each in only]
        noes = dict.fromkeys(held, "no") if answer == "reject" else {}
        if await aresume(self._kernel, self._history, arguments=arguments(), rejected=noes):
            return self._seen("")
        return await self._run(None)

    def restarted(self) -> "SemanticKernelSession":
        return SemanticKernelSession(self._scene, self._mode, self._file, self._on_hold)

    async def close(self) -> None:
        pass

    async def _run(self, said: str | None) -> Seen:
        run = asked if self._mode == "async" else streamed
        text, self._history = await run(self._kernel, self._history, said)
        return self._seen(text)

    def _seen(self, text: str) -> Seen:
        self._file.write_text(self._history.serialize())
        held = waiting(self._history)
        return Seen(held, read(self._history), None if held else text)


class SemanticKernel:
    """Semantic Kernel's agent."""

    name = "semantic_kernel"
    prefix = "bank"
    modes: Sequence[Mode] = ("async", "stream")
    holds: Sequence[OnHold] = ("pause", "wait", "notify_model", "raise")
    cannot: Mapping[str, str] = {}

    def session(
        self, scene: Scene, mode: Mode, folder: Path, on_hold: OnHold = "pause"
    ) -> SemanticKernelSession:
        return SemanticKernelSession(scene, mode, folder / "history.json", on_hold)


HARNESSES: list[Harness] = [SemanticKernel()]
