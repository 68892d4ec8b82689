"""Runs of the Anthropic SDK's tool runners that know their calls, and pause while some of them wait for a person."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from anthropic.lib.tools import (
    BetaAsyncStreamingToolRunner,
    BetaAsyncToolRunner,
    BetaStreamingToolRunner,
    BetaToolRunner,
)

from toolgate import ConfigurationError
from toolgate_integrations._anthropic_turns import HeldCall, Turns

__all__ = ["AsyncGuardedRun", "GuardedRun", "made", "plain"]


class _Run:
    """What runs of both kinds are.

    Attributes:
        state: What a paused run goes on from, as JSON has it; None while it is not paused.
    """

    def __init__(self, runner: Any, run_id: str | None, state: Mapping[str, Any] | None) -> None:
        if run_id is not None and not isinstance(run_id, str):
            raise ConfigurationError(f"run_id is {run_id!r}; pass text, or leave it out")
        self.state: dict[str, Any] | None = None if state is None else dict(state)
        self._runner = runner
        self._turns = Turns() if run_id is None else Turns(run_id)
        self._item: Any = None
        self._last: Any = None

    @property
    def run_id(self) -> str:
        """The run's name; the same after a pause."""
        return self._turns.run_id

    @property
    def held(self) -> tuple[HeldCall, ...]:
        """The calls that wait for a person, once the run is paused."""
        return () if self.state is None else tuple(HeldCall(**each) for each in self.state["held"])

    def _begin(self, item: Any) -> None:
        """The runner yielded something: a message, or the stream of one."""
        self._item = item
        streamed = hasattr(item, "get_final_message")
        self._turns.blocks = lambda: _calls_of(_snapshot(item) if streamed else item)

    def _pause(self, results: Any) -> None:
        """Write down what the run goes on from."""
        told: dict[str, Any] = {}

        def look(params: Any) -> Any:
            told.update(params)
            return params

        # The one public way to what was said so far; the runner sends nothing any more.
        self._runner.set_messages_params(look)
        messages, last = plain(told["messages"]), plain(self._last.to_param())
        held = self._turns.held
        # Whoever handles the messages may have added this one, and more.
        said = next((at for at, each in enumerate(messages) if made(each) == made(last)), len(messages))
        self.state = {
            "run_id": self.run_id,
            "messages": [*messages[:said], last],
            "after": [_unanswered(each) for each in messages[said + 1 :]],
            "results": [each for each in plain(results["content"]) if each["tool_use_id"] not in held],
            "held": plain([asdict(each) for each in held.values()]),
        }


class GuardedRun(_Run):
    """A run of a synchronous runner; iterated, it yields what the runner does.

    Args:
        runner: What `client.beta.messages.tool_runner(…)` returned, with tools of `guard_tools`.
        run_id: The run's name; None makes one.
        state: Of a run that is still paused; it has no runner.

    Raises:
        ConfigurationError: The runner is none.
    """

    def __init__(
        self, runner: Any, *, run_id: str | None = None, state: Mapping[str, Any] | None = None
    ) -> None:
        if state is None and not isinstance(runner, (BetaToolRunner, BetaStreamingToolRunner)):
            raise ConfigurationError(
                f"runner is {runner!r}; pass what messages.tool_runner(…) of a client returned"
            )
        super().__init__(runner, run_id, state)

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
        self._last = item.get_final_message() if hasattr(item, "get_final_message") else item
        if _runs_tools(self._last):
            # The runner keeps the answers, and carries nothing out again.
            results = self._runner.generate_tool_call_response()
            if self._turns.held:
                self._pause(results)
                self._runner.close()
                return False
        # Not before: interrupted meanwhile, this message is still to be handled.
        self._item = None
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

    def __init__(
        self, runner: Any, *, run_id: str | None = None, state: Mapping[str, Any] | None = None
    ) -> None:
        if state is None and not isinstance(runner, (BetaAsyncToolRunner, BetaAsyncStreamingToolRunner)):
            raise ConfigurationError(
                f"runner is {runner!r}; pass what messages.tool_runner(…) of an asynchronous client returned"
            )
        super().__init__(runner, run_id, state)

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
        self._last = await item.get_final_message() if hasattr(item, "get_final_message") else item
        if _runs_tools(self._last):
            results = await self._runner.generate_tool_call_response()
            if self._turns.held:
                self._pause(results)
                await self._runner.close()
                return False
        self._item = None
        return True


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


def _snapshot(stream: Any) -> Any:
    try:
        return stream.current_message_snapshot
    except AssertionError:
        # Nothing has come yet.
        return None


def _calls_of(message: Any) -> list[Any]:
    return [each for each in getattr(message, "content", ()) if each.type == "tool_use"]


def _dumped(model: Any) -> Any:
    excluded = getattr(model, "__api_exclude__", None)
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude=excluded)
