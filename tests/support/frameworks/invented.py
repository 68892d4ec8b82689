"""A small agent framework of our own invention, with the habits of real ones: `your_framework` of docs/frameworks/custom.

A loop that calls the tools of a turn in parallel, synchronously or not, through hooks. It pauses natively, and its state
goes on in another process. Its bad habits are real ones too: what `before` raises is swallowed and the tool runs, `after`
is called for refused calls as well, threads begin without the caller's context, and answers are cached.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Answer", "Hooks", "Loop", "Pause", "ToolCall"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call, as the model made it."""

    tool: str
    arguments: dict[str, Any]
    id: str
    thread: str = "thread-1"
    agent: str = "treasurer"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model reads of a call; errors are not cached."""

    text: str
    is_error: bool = False


class Pause(Exception):
    """Raised by a hook or tool: the call is carried out again, hook and all, when the run is gone on with."""

    def __init__(self, about: str) -> None:
        super().__init__(about)
        self.about = about


@dataclass(frozen=True, slots=True)
class Hooks:
    """What may be hung in: around a tool, or before and after it."""

    around: Callable[[ToolCall, Callable[[dict[str, Any]], Answer]], Answer] | None = None
    aaround: Callable[[ToolCall, Callable[[dict[str, Any]], Awaitable[Answer]]], Awaitable[Answer]] | None = (
        None
    )
    before: Callable[[ToolCall], Answer | None] | None = None
    after: Callable[[ToolCall, Answer | None, Exception | None], None] | None = None
    rejected: Callable[[ToolCall, str, str], None] | None = None
    before_model: Callable[[], None] | None = None


@dataclass
class Loop:
    """One run of one agent with a scripted model.

    Attributes:
        tools: functions by name.
        hooks: what is hung in.
        turns: what the model is going to call, turn by turn; then it says "done".
        tells_errors: a tool's error is told as an answer before a hook around it sees it.
        caches: a call with the same arguments is answered from memory, past hook and tool; errors are not kept.
    """

    tools: dict[str, Callable[..., Any]]
    hooks: Hooks
    turns: list[Sequence[ToolCall]] = field(default_factory=list)
    tells_errors: bool = False
    caches: bool = False
    read: dict[str, str] = field(default_factory=dict)
    paused: dict[str, tuple[ToolCall, str]] = field(default_factory=dict)
    text: str | None = None
    cached: dict[str, Answer] = field(default_factory=dict)

    def run(self) -> None:
        """Go on until the run ends or pauses; the calls of a turn run in threads."""
        for calls in self._turns():
            with ThreadPoolExecutor() as pool:
                self._note(calls, list(pool.map(self._called, calls)))

    async def arun(self) -> None:
        """As `run`, with tasks."""
        for calls in self._turns():
            self._note(calls, await asyncio.gather(*map(self._acalled, calls)))

    def reject(self, call_id: str, why: str) -> None:
        """Answer a paused call with no: no hook sees the call again."""
        call, about = self.paused.pop(call_id)
        self.read[call_id] = f"rejected: {why}"
        if self.hooks.rejected is not None:
            self.hooks.rejected(call, about, why)

    def state(self) -> str:
        """What another process needs to go on."""
        return json.dumps(
            {"read": self.read, "paused": [(asdict(call), about) for call, about in self.paused.values()]}
        )

    def load(self, state: str) -> None:
        """Take up the state of a run."""
        kept = json.loads(state)
        self.read = kept["read"]
        self.paused = {call["id"]: (ToolCall(**call), about) for call, about in kept["paused"]}

    def _turns(self) -> Iterator[Sequence[ToolCall]]:
        self.text = None
        if self.paused:
            calls, self.paused = [call for call, _ in self.paused.values()], {}
            yield calls
        while not self.paused:
            if self.hooks.before_model is not None:
                self.hooks.before_model()
            if not self.turns:
                self.text = "done"
                return
            yield self.turns.pop(0)

    def _note(self, calls: Sequence[ToolCall], answers: Sequence[Answer | Pause]) -> None:
        for call, answer in zip(calls, answers, strict=True):
            if isinstance(answer, Pause):
                self.paused[call.id] = (call, answer.about)
            else:
                self.read[call.id] = answer.text

    def _called(self, call: ToolCall) -> Answer | Pause:
        key = json.dumps([call.tool, call.arguments], sort_keys=True)
        if self.caches and key in self.cached:
            return self.cached[key]
        answer = self._through_hooks(call)
        if isinstance(answer, Answer) and not answer.is_error:
            self.cached[key] = answer
        return answer

    def _through_hooks(self, call: ToolCall) -> Answer | Pause:
        try:
            if self.hooks.around is not None:
                return self.hooks.around(call, lambda arguments: self._run_tool(call, arguments))
            return self._between(call)
        except Pause as pause:
            return pause
        except Exception as error:
            return Answer(f"error: {error}", is_error=True)

    async def _acalled(self, call: ToolCall) -> Answer | Pause:
        async def run(arguments: dict[str, Any]) -> Answer:
            await asyncio.sleep(0)
            return self._run_tool(call, arguments)

        assert self.hooks.aaround is not None
        try:
            return await self.hooks.aaround(call, run)
        except Pause as pause:
            return pause
        except Exception as error:
            return Answer(f"error: {error}", is_error=True)

    def _between(self, call: ToolCall) -> Answer:
        assert self.hooks.before is not None
        assert self.hooks.after is not None
        instead = None
        try:
            instead = self.hooks.before(call)
        except Pause:
            raise
        except Exception:
            # The habit this is here for: a hook that fails is taken for one that has no opinion.
            instead = None
        answer, error = instead, None
        try:
            answer = answer or self._run_tool(call, call.arguments)
        except Exception as raised:
            error = raised
        with suppress(Exception):
            self.hooks.after(call, answer, error)
        if error is not None:
            raise error
        assert answer is not None
        return answer

    def _run_tool(self, call: ToolCall, arguments: dict[str, Any]) -> Answer:
        try:
            return Answer(str(self.tools[call.tool](**arguments)))
        except Pause:
            raise
        except Exception as error:
            if not self.tells_errors:
                raise
            return Answer(f"error: {error}", is_error=True)
