"""Tools of LlamaIndex, guarded: each call is carried out over the bridge, and answered in the framework's own terms."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

from llama_index.core.tools import AsyncBaseTool, BaseTool, FunctionTool, ToolOutput, adapt_to_async_tool
from workflows.runtime.types.results import WaitingForEvent

from toolgate import ApprovalPending, ConfigurationError, GuardError
from toolgate_integrations._arguments import with_signature_defaults
from toolgate_integrations._base import Bridge, ToolCall
from toolgate_integrations._llamaindex_pausing import Place, place_of, turn_of
from toolgate_integrations._telling import areject, refusal_or_raise

__all__ = ["GuardedFunctionTool", "GuardedTool", "guarded", "like"]


class GuardedTool(AsyncBaseTool):
    """A tool of any kind, guarded; made by `guard_tools` and `guard_agent`."""

    def __init__(self, inner: Any, bridge: Bridge, agent: str | None) -> None:
        self._inner, self._bridge, self._agent = inner, bridge, agent

    @property
    def metadata(self) -> Any:
        """What the model is told of the tool, a `ToolMetadata`."""
        return self._inner.metadata

    def __call__(self, *args: Any, **given: Any) -> ToolOutput:
        """As `call`."""
        return self.call(*args, **given)

    def call(self, *args: Any, **given: Any) -> ToolOutput:
        """Ask, let the tool run, record; what is refused is an answer that says so."""
        beside = self._beside(given)
        try:
            unnamed, told = self._named(args, given)

            def run(approved: dict[str, Any]) -> ToolOutput:
                values = [approved.pop(name) for name in unnamed]
                output: ToolOutput = self._inner.call(*values, **approved, **beside)
                return output

            call = self._called(told, None, coroutine=False)
            return self._bridge.run(call, run, _failed, (WaitingForEvent,))
        except GuardError as error:
            return self._told(given, refusal_or_raise(error))

    async def acall(self, *args: Any, **given: Any) -> ToolOutput:
        """As `call`; in an agent's run a held call can pause.

        Raises:
            WaitingForEvent: The call waits for a person, and is carried out again.
        """
        beside, place = self._beside(given), await place_of(self._name)
        try:
            unnamed, told = self._named(args, given)

            async def run(approved: dict[str, Any]) -> ToolOutput:
                values = [approved.pop(name) for name in unnamed]
                with nullcontext() if place is None else place.running():
                    output: ToolOutput = await self._inner.acall(*values, **approved, **beside)
                return output

            call = self._called(told, place, coroutine=True)
            if place is None or self._bridge.on_hold != "event":
                return await self._bridge.arun(call, run, _failed, (WaitingForEvent,))
            async with turn_of(place) as no:
                if no is None:
                    return await self._bridge.arun(call, run, _failed, (WaitingForEvent, ApprovalPending))
                await areject(self._bridge, call, no, place.waited[-1])
                return self._told(given, f"Not done: it was rejected. {no}".strip())
        except GuardError as error:
            return self._told(given, refusal_or_raise(error))

    def of(self, bridge: Bridge, agent: str | None) -> GuardedTool:
        """The tool as an agent has it: one that the same guard has given to another agent acts as that one."""
        if bridge is not self._bridge or agent == self._agent:
            return self
        return type(self)(self._inner, bridge, agent)

    @property
    def _name(self) -> str:
        return str(self.metadata.get_name())

    def _beside(self, given: dict[str, Any]) -> dict[str, Any]:
        """Take out what the framework gave beside the model's arguments."""
        own = getattr(self._inner, "ctx_param_name", None)
        return {own: given.pop(own)} if own in given else {}

    def _named(self, args: tuple[Any, ...], given: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
        """The names of the values that have none, and all that was given by name."""
        known = self.metadata.get_parameters_dict().get("properties", {}) if args else {}
        unnamed = [name for name in known if name not in given][: len(args)]
        if len(unnamed) < len(args):
            raise ConfigurationError(
                f"the tool {self._name!r} was called with {len(args)} values without names, and {len(unnamed)} can be "
                "named; call it with names"
            )
        return unnamed, {**dict(zip(unnamed, args, strict=True)), **given}

    def _called(self, told: dict[str, Any], place: Place | None, *, coroutine: bool) -> ToolCall:
        function = _function(self._inner, coroutine=coroutine)
        # The framework adds what was given in part, and converts nothing.
        told = {**(getattr(self._inner, "partial_params", None) or {}), **told}
        own = getattr(self._inner, "ctx_param_name", None)
        return ToolCall(
            self._name,
            with_signature_defaults(told, function, () if own is None else (own,)),
            # Told that it waits, a model calls again, and that is another call.
            call_id=None if place is None or self._bridge.on_hold == "tell" else place.call_id,
            run_id=None if place is None else place.run_id,
            agent=self._agent if self._agent or place is None else place.agent,
            function=function,
        )

    def _told(self, given: dict[str, Any], text: str) -> ToolOutput:
        # An error, or it would be a `return_direct` tool's last word.
        raw = {"args": (), "kwargs": given}
        return ToolOutput(self._name, text, raw_input=raw, raw_output=text, is_error=True)


class GuardedFunctionTool(GuardedTool, FunctionTool):
    """A `FunctionTool`, guarded: one still, for whoever treats those in their own way."""

    def __init__(self, inner: AsyncBaseTool, bridge: Bridge, agent: str | None) -> None:
        # A tool of another kind is tried with a bare value first, and again with names: it would run twice.
        like(self, inner)
        super().__init__(inner, bridge, agent)

    @property
    def fn(self) -> Callable[..., Any]:
        """The function, guarded: others make tools of their own of it."""

        @functools.wraps(super().fn)
        def standing(*args: Any, **given: Any) -> Any:
            return _raw(self.call(*args, **given))

        return standing

    @property
    def async_fn(self) -> Callable[..., Any]:
        """As `fn`."""

        @functools.wraps(super().async_fn)
        async def standing(*args: Any, **given: Any) -> Any:
            return _raw(await self.acall(*args, **given))

        return standing

    @property
    def real_fn(self) -> Callable[..., Any]:
        """As `fn`, of the kind that the tool was made of."""
        return self.async_fn if inspect.iscoroutinefunction(super().real_fn) else self.fn


def guarded(tools: Iterable[Any], bridge: Bridge, agent: str | None) -> list[AsyncBaseTool]:
    """Tools, guarded; those that are guarded already stay as they are.

    Args:
        tools: The tools, or functions to make them of.
        bridge: Carries out their calls.
        agent: The name of the agent that has them, where that is known.

    Raises:
        ConfigurationError: One is no tool.
    """
    return [_guarded(each, bridge, agent) for each in tools]


def like(one: object, other: object) -> None:
    """Give one what another has, but for what would stand in the way of the guard's own methods."""
    vars(one).update({name: value for name, value in vars(other).items() if not hasattr(type(one), name)})


def _guarded(tool: Any, bridge: Bridge, agent: str | None) -> AsyncBaseTool:
    if isinstance(tool, GuardedTool):
        return tool.of(bridge, agent)
    if not isinstance(tool, BaseTool):
        if not callable(tool):
            raise ConfigurationError(f"{tool!r} is no tool; pass a function, a FunctionTool or another tool")
        tool = FunctionTool.from_defaults(tool)
    kind = GuardedFunctionTool if isinstance(tool, FunctionTool) else GuardedTool
    return kind(adapt_to_async_tool(tool), bridge, agent)


def _function(tool: AsyncBaseTool, *, coroutine: bool) -> object:
    """The function that will be called; the one that the framework makes of the other kind stands for that."""
    if not isinstance(tool, FunctionTool):
        return None
    function = tool.async_fn if coroutine else tool.fn
    return tool.real_fn if function.__module__ == FunctionTool.__module__ else function


def _failed(output: object) -> str | None:
    return (output.content or "error") if isinstance(output, ToolOutput) and output.is_error else None


def _raw(output: ToolOutput) -> object:
    return output.content if output.is_error else output.raw_output
