"""Runs of the Anthropic SDK's tool runners that know their calls, and pause while some of them wait for a person."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from anthropic.lib.tools import (
    BetaAsyncStreamingToolRunner,
    BetaAsyncToolRunner,
    BetaStreamingToolRunner,
    BetaToolRunner,
    ToolError,
)

from toolgate import ConfigurationError
from toolgate_integrations._called import Called, CallsOfRun, PausingRun

__all__ = ["AsyncGuardedRun", "GuardedRun", "by_call", "calls_of", "made", "plain"]

_INTERRUPTED = "The call was interrupted, and may have been carried out in part. It is not carried out again."


class _Run(PausingRun):
    """What runs of both kinds are."""

    _runners: ClassVar[tuple[type, ...]]
    _client: ClassVar[str]

    def __init__(
        self, runner: Any, *, run_id: str | None = None, state: Mapping[str, Any] | None = None
    ) -> None:
        if state is None and not isinstance(runner, self._runners):
            raise ConfigurationError(
                f"runner is {runner!r}; pass what messages.tool_runner(…) of {self._client} returned"
            )
        super().__init__(calls_of(run_id), state)
        self._runner = runner
        self._item: Any = None
        self._last: Any = None

    def _begin(self, item: Any) -> None:
        """The runner yielded something: a message, or the stream of one."""
        self._item = item
        self._calls.made = lambda: _made_now(self._calls, item)

    def _pauses(self, results: Any) -> bool:
        """Whether calls of the message that was handled wait; what the run goes on from is written down then."""
        if self._calls.setup_error is not None:
            raise self._calls.setup_error
        if results is not None and self._calls.held:
            self.state = self._paused(results["content"])
            return True
        # Not before: interrupted meanwhile, this message is still to be handled.
        self._item = None
        return False

    def _paused(self, results: Iterable[Any]) -> Any:
        told: dict[str, Any] = {}

        def look(params: Any) -> Any:
            told.update(params)
            return params

        # The one public way to what was said so far; the runner sends nothing any more.
        self._runner.set_messages_params(look)
        messages, last = plain(told["messages"]), plain(self._last.to_param())
        # Whoever handles the messages may have added this one, and more.
        said = next((at for at, each in enumerate(messages) if made(each) == made(last)), len(messages))
        after = [_unanswered(each) for each in messages[said + 1 :]]
        return plain(self._calls.state([*messages[:said], last], after, by_call(results)))


class GuardedRun(_Run):
    """A run of a synchronous runner; iterated, it yields what the runner does.

    Args:
        runner: What `client.beta.messages.tool_runner(…)` returned, with tools of `guard_tools`.
        run_id: The run's name; None makes one.
        state: Of a run that is still paused; it has no runner.

    Raises:
        ConfigurationError: The runner is none.
    """

    _runners = (BetaToolRunner, BetaStreamingToolRunner)
    _client = "a client"

    def __iter__(self) -> Iterator[Any]:
        """Go on until the run ends or pauses."""
        while self.state is None and self._goes_on():
            item = next(self._runner, None)
            if item is None:
                return
            self._begin(item)
            yield item

    def until_done(self) -> Any:
        """Go on until the run ends or pauses.

        Returns:
            The model's last message; None if the run is paused.
        """
        for _ in self:
            pass
        return None if self.state is not None else self._last

    def _goes_on(self) -> bool:
        """Carry out the calls of the last message, once its reader is done with it."""
        if (item := self._item) is None:
            return True
        self._last = item.get_final_message() if _is_stream(item) else item
        # The runner keeps the answers, and carries nothing out again.
        results = self._runner.generate_tool_call_response() if _runs_tools(self._last) else None
        if self._pauses(results):
            self._runner.close()
            return False
        return True


class AsyncGuardedRun(_Run):
    """As `GuardedRun`, of an asynchronous runner.

    Args:
        runner: As for `GuardedRun`.
        run_id: As for `GuardedRun`.
        state: As for `GuardedRun`.

    Raises:
        ConfigurationError: The runner is none.
    """

    _runners = (BetaAsyncToolRunner, BetaAsyncStreamingToolRunner)
    _client = "an asynchronous client"

    async def __aiter__(self) -> AsyncIterator[Any]:
        """Go on until the run ends or pauses."""
        while self.state is None and await self._goes_on():
            item = await anext(self._runner, None)
            if item is None:
                return
            self._begin(item)
            yield item

    async def until_done(self) -> Any:
        """Go on until the run ends or pauses.

        Returns:
            The model's last message; None if the run is paused.
        """
        async for _ in self:
            pass
        return None if self.state is not None else self._last

    async def _goes_on(self) -> bool:
        if (item := self._item) is None:
            return True
        self._last = await item.get_final_message() if _is_stream(item) else item
        results = await self._runner.generate_tool_call_response() if _runs_tools(self._last) else None
        if self._pauses(results):
            await self._runner.close()
            return False
        return True


def calls_of(run_id: str | None) -> CallsOfRun:
    """The calls of a run; one that was interrupted is told so."""
    return CallsOfRun(lambda: ToolError(_INTERRUPTED), run_id)


def by_call(results: Iterable[Any]) -> dict[Any, Any]:
    """What became of calls, by their ids."""
    return {each["tool_use_id"]: each for each in results}


def made(message: Any) -> list[str]:
    """The ids of the calls that a message makes, as JSON has it."""
    content = message["content"] if message["role"] == "assistant" else ""
    return [] if isinstance(content, str) else [each["id"] for each in content if each["type"] == "tool_use"]


def plain(value: Any) -> Any:
    """As JSON has it."""
    return json.loads(json.dumps(value, default=_dumped))


def _unanswered(message: Any) -> Any:
    """A message without what became of calls: that is written down apart."""
    content = message["content"]
    if isinstance(content, str):
        return message
    return {**message, "content": [each for each in content if each["type"] != "tool_result"]}


def _runs_tools(message: Any) -> bool:
    # The runner carries out the calls of no other message, such as one that was cut off.
    return bool(message.stop_reason == "tool_use")


def _is_stream(item: Any) -> bool:
    return hasattr(item, "get_final_message")


def _made_now(calls: CallsOfRun, item: Any) -> list[Called]:
    """The calls of a message, or of what has come of it."""
    try:
        message = item.current_message_snapshot if _is_stream(item) else item
    except AssertionError:
        # Nothing has come yet.
        return []
    uses = [each for each in getattr(message, "content", ()) if each.type == "tool_use"]
    # The runner hands a tool the very input of its block.
    return [Called(each.name, each.input, each.id, calls) for each in uses]


def _dumped(model: Any) -> Any:
    excluded = getattr(model, "__api_exclude__", None)
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude=excluded)
