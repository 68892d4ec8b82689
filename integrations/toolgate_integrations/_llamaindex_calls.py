"""One call of a tool of LlamaIndex, carried out over the bridge and answered in the framework's own terms."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

from llama_index.core.tools import AsyncBaseTool, FunctionTool, ToolOutput
from workflows.runtime.types.results import WaitingForEvent

from toolgate import ApprovalPending, ConfigurationError, Guard, GuardError
from toolgate_integrations._base import Bridge, ToolActions, ToolCall, valid_on_hold
from toolgate_integrations._llamaindex_pausing import Pausing, Place, place_of
from toolgate_integrations.refusals import refusal_text

__all__ = ["Gate", "OnHold", "Way"]

OnHold = Literal["event", "wait", "tell"]
logger = logging.getLogger("toolgate")


class Gate:
    """What every call of some tools goes through.

    Args:
        guard: The guard that asks; None is the environment's.
        tool_actions: Actions of tools by their names.
        agents: Agent ids by the names of the framework's agents.
        on_hold: What a held call does.

    Raises:
        ConfigurationError: An argument is wrong.
    """

    def __init__(
        self,
        guard: Guard | None,
        tool_actions: ToolActions | None,
        agents: Mapping[str, str] | None,
        on_hold: OnHold,
    ) -> None:
        valid_on_hold(on_hold, "event")
        self.on_hold = on_hold
        self.bridge = Bridge(guard, tool_actions=tool_actions, agents=agents, on_hold=on_hold)
        self.pausing = Pausing()


@dataclass(slots=True)
class Way:
    """How the calls of one tool go.

    Attributes:
        tool: The tool, an `AsyncBaseTool`; each takes arguments of its own.
        gate: What they go through.
        agent: The name of the agent that has the tool, where that is known.
    """

    tool: Any
    gate: Gate
    agent: str | None
    _names: list[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._names = list(self.tool.metadata.get_parameters_dict().get("properties", {}))

    @property
    def name(self) -> str:
        """The tool's name."""
        return str(self.tool.metadata.get_name())

    def call(self, args: tuple[Any, ...], given: dict[str, Any]) -> ToolOutput:
        """Ask, let the tool run, record; outside of a run, so that what is held cannot pause."""
        try:
            told, beside, back = self._read(args, given)

            def run(approved: dict[str, Any]) -> ToolOutput:
                placed, named = back(approved)
                output: ToolOutput = self.tool.call(*placed, **named, **beside)
                return output

            call = ToolCall(self.name, told, agent=self.agent, function=_function(self.tool, coroutine=False))
            return self.gate.bridge.run(call, run, _failed, (WaitingForEvent,))
        except GuardError as error:
            return self._refusal(given, error)

    async def acall(self, args: tuple[Any, ...], given: dict[str, Any]) -> ToolOutput:
        """Ask, let the tool run, record; what is held pauses the agent's step.

        Raises:
            WaitingForEvent: The call waits for a person, and is carried out again.
        """
        place = await place_of(self.name)
        try:
            told, beside, back = self._read(args, given)
            call = self._named(told, place)

            async def run(approved: dict[str, Any]) -> ToolOutput:
                placed, named = back(approved)
                with nullcontext() if place is None else place.running():
                    output: ToolOutput = await self.tool.acall(*placed, **named, **beside)
                return output

            if place is None or self.gate.on_hold != "event":
                return await self.gate.bridge.arun(call, run, _failed, (WaitingForEvent,))
            async with self.gate.pausing.alone(place):
                return await self._pausing(call, place, given, run)
        except GuardError as error:
            return self._refusal(given, error)

    async def _pausing(
        self,
        call: ToolCall,
        place: Place,
        given: dict[str, Any],
        run: Callable[[dict[str, Any]], Awaitable[ToolOutput]],
    ) -> ToolOutput:
        answer = await place.answer()
        if answer is not None and answer.no is not None:
            try:
                await self.gate.bridge.areject(call, answer.no, answer.approval_id)
            except GuardError as error:
                logger.warning("the rejection of a call of %r was not recorded: %s", call.name, error)
            return self._told(given, f"Not done: it was rejected. {answer.no}".strip())
        try:
            return await self.gate.bridge.arun(call, run, _failed, (WaitingForEvent, ApprovalPending))
        except ApprovalPending as pending:
            await place.pause(pending)
            raise

    def _named(self, told: dict[str, Any], place: Place | None) -> ToolCall:
        function = _function(self.tool, coroutine=True)
        if place is None:
            return ToolCall(self.name, told, agent=self.agent, function=function)
        return ToolCall(
            self.name,
            told,
            # Told that it waits, a model calls again, and that is another call.
            call_id=None if self.gate.on_hold == "tell" else place.call_id,
            run_id=place.run_id,
            agent=self.agent or place.agent,
            function=function,
        )

    def _read(
        self, args: tuple[Any, ...], given: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any], _Back]:
        """What the model gave, by name; what the framework gave beside; and how the tool is given it again."""
        own = getattr(self.tool, "ctx_param_name", None)
        beside = {own: given[own]} if own in given else {}
        named = {name: value for name, value in given.items() if name not in beside}
        places = [name for name in self._names if name not in given][: len(args)]
        if len(places) < len(args):
            raise ConfigurationError(
                f"the tool {self.name!r} was called with {len(args)} values without names, and {len(places)} can be "
                "named; call it with names"
            )

        def back(approved: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
            rest = {name: value for name, value in approved.items() if name not in places}
            return [approved[name] for name in places], rest

        return {**dict(zip(places, args, strict=True)), **named}, beside, back

    def _refusal(self, given: dict[str, Any], error: GuardError) -> ToolOutput:
        if isinstance(error, ConfigurationError):
            logger.warning("a call of the tool %r was refused: %s", self.name, error)
        return self._told(given, refusal_text(error))

    def _told(self, given: dict[str, Any], text: str) -> ToolOutput:
        # An error, or it would be a `return_direct` tool's last word.
        own = getattr(self.tool, "ctx_param_name", None)
        kwargs = {name: value for name, value in given.items() if name != own}
        return ToolOutput(
            tool_name=self.name,
            content=text,
            raw_input={"args": (), "kwargs": kwargs},
            raw_output=text,
            is_error=True,
        )


_Back = Callable[[dict[str, Any]], tuple[list[Any], dict[str, Any]]]


def _function(tool: AsyncBaseTool, *, coroutine: bool) -> object:
    """The function that will be called; the one that the framework makes of the other kind stands for that."""
    if not isinstance(tool, FunctionTool):
        return None
    function = tool.async_fn if coroutine else tool.fn
    return tool.real_fn if function.__module__ == FunctionTool.__module__ else function


def _failed(output: object) -> str | None:
    return (output.content or "error") if isinstance(output, ToolOutput) and output.is_error else None
