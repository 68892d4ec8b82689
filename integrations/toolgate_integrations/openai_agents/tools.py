"""Guarded function tools of the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import inspect
import json
import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from agents import FunctionTool, RunContextWrapper
from agents.tool_context import ToolContext

from toolgate import ApprovalPending, GuardError, is_guarded
from toolgate._drivers import adrive
from toolgate_integrations._naming import normalize_id
from toolgate_integrations.base import Bridge, InvalidArgumentsError, ToolCall
from toolgate_integrations.openai_agents.internals import (
    Seen,
    agent_of,
    function_of,
    make_refusing_invoker,
    make_watched_invoker,
    pauses_inside,
    remote_of,
    schema_of,
)
from toolgate_integrations.refusals import UNREADABLE

__all__ = ["GuardedTool", "guarded_tool"]

T = TypeVar("T")


async def resume_inside(
    bridge: Bridge,
    call: ToolCall,
    tool: Callable[[dict[str, Any]], Awaitable[T]],
    failed: Callable[[T], str | None],
    pauses: tuple[type[BaseException], ...],
) -> T:
    """Continue a call whose tool runs an agent that has paused, without consuming a second approval.

    The arguments are those of `Bridge.arun`. The call continues without another check only if the gateway reports
    that its approval was already consumed. Any other call is checked as usual.
    """
    # Only one request is sent, because the state of the approval could change between two requests.
    if not (await adrive(bridge.preview_steps(call))).already_used:
        return await bridge.arun(call, tool, failed, pauses)
    with bridge.acting(call, pauses):
        action, call_id = bridge.action_of(call), normalize_id(call.call_id)
        record = partial(bridge.guard.record, action, call_id=call_id)
        try:
            answer = await tool(dict(call.arguments))
        except pauses:
            raise
        except BaseException as error:
            record("failed", {**call.arguments, "error": type(error).__name__})
            raise
        why = failed(answer)
        record("success" if why is None else "failed", {**call.arguments, **({"error": why} if why else {})})
        return answer


class _PausedError(Exception):
    """Raised if an agent that runs as a tool has paused; the tool is called again after the decision."""

    def __init__(self, answer: Any) -> None:
        super().__init__("the agent paused until a person decides")
        self.answer = answer


class GuardedTool:
    """Callable object that the SDK calls to run a guarded tool.

    Attributes:
        tool: The original tool.
        agent_name: Name of the agent that has the tool.
        pauses: True if a call that requires an approval pauses the run.
    """

    def __init__(self, tool: FunctionTool, agent_name: str, bridge: Bridge) -> None:
        self.tool = tool
        self.agent_name = agent_name
        self._bridge = bridge
        # The tool is copied, because the SDK's error handling is bound to one tool object.
        self._inner = copy.copy(tool)
        self._is_agent = agent_of(tool) is not None
        self._function = function_of(tool)
        self._schema = schema_of(tool)
        self._remote = remote_of(tool)
        # A guarded function checks the call only when it runs. It is then too late to pause the run for an approval.
        asks_itself = is_guarded(self._function)
        self.pauses = bridge.on_hold == "pause" and not asks_itself
        self._named = bridge.names_calls and not asks_itself

    async def __call__(self, context: ToolContext[Any], text: str) -> Any:
        """Check the call, run the tool if the call is allowed, and log the outcome; otherwise return the reason."""
        arguments = read(text)
        if arguments is None:
            await self._bridge.areject(
                self.unread_call(context.tool_call_id), "the arguments are not a JSON object"
            )
            return UNREADABLE
        seen, outside = Seen(), contextvars.copy_context()
        try:
            call = self.call(arguments, context.tool_call_id)
        except InvalidArgumentsError as error:
            return await make_refusing_invoker(self._inner, error.__cause__)(context, text)

        async def run(approved: dict[str, Any]) -> Any:
            # The tool receives the checked arguments instead of the model's text, which its parser could read
            # differently.
            given = json.dumps(sent := call.to_send(approved))
            if sent != arguments:
                context.tool_arguments = given
            answer = await self._run(context, given, seen, outside)
            if self._is_agent and pauses_inside(context):
                raise _PausedError(answer)
            return answer

        continued = self._is_agent and pauses_inside(context)
        carry_out = partial(resume_inside, self._bridge) if continued else self._bridge.arun
        try:
            answer = await carry_out(call, run, lambda _: seen.why, (_PausedError,))
        except _PausedError as paused:
            return paused.answer
        except GuardError as error:
            return self._refusal(error)
        # The SDK converts the refusal of a function that is decorated with `@guarded` to text, so the error is read
        # from `seen`.
        return self._refusal(seen.error) if isinstance(seen.error, GuardError) else answer

    def call(self, arguments: Mapping[str, Any], call_id: str | None) -> ToolCall:
        """Return the `ToolCall` with the arguments that the tool's function receives.

        Raises:
            InvalidArgumentsError: The tool's validation rejects the arguments.
        """
        server, name = self._remote or (None, self.tool.name)
        # The run id is empty, because the SDK has none; the model's call ids are unique within a process.
        received = self._bridge.received.of(name, arguments, self._schema, "", call_id)
        return ToolCall(
            name,
            received.values,
            # The id is omitted if the model has to repeat the call: the repeated call has another id, which the
            # approval would not cover.
            call_id=call_id if self._named else None,
            agent=self.agent_name,
            function=self._function,
            server=server,
            received=received,
        )

    def unread_call(self, call_id: str | None) -> ToolCall:
        """Return a `ToolCall` without arguments, for the log entry of a call whose arguments cannot be parsed."""
        server, name = self._remote or (None, self.tool.name)
        named = call_id if self._named else None
        return ToolCall(
            name, {}, call_id=named, agent=self.agent_name, function=self._function, server=server
        )

    async def needs_approval(
        self, context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str
    ) -> bool:
        """Return whether the run must pause for a call; if so, the call's approval request has been created."""
        try:
            if await adrive(self._bridge.find_pending_steps(self.call(arguments, call_id))) is not None:
                return True
        except InvalidArgumentsError:
            # The SDK reports this error to the model when it invokes the tool.
            return False
        except GuardError:
            # The call is checked again when the SDK invokes the tool; the model reads the refusal then.
            return False
        return await self.own_policy(context, arguments, call_id)

    async def own_policy(
        self, context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str
    ) -> bool:
        """Return whether the tool's own `needs_approval` setting requires an approval of the SDK's user."""
        policy = self.tool.needs_approval
        answer = policy(context, arguments, call_id) if callable(policy) else policy
        return bool(await answer if inspect.isawaitable(answer) else answer)

    def _refusal(self, error: GuardError) -> str:
        if isinstance(error, ApprovalPending) and self.pauses:
            return (
                f"Not done: {error.action!r} is not approved (approval {error.approval_id}): the "
                "gateway has not decided yet, and only a decision at the gateway counts. "
                "Calling the tool again creates a new request."
            )
        return self._bridge.refusal(error)

    async def _run(
        self, context: ToolContext[Any], text: str, seen: Seen, outside: contextvars.Context
    ) -> Any:
        running = make_watched_invoker(self._inner, seen)(context, text)
        if not self._is_agent:
            return await running
        # The tool calls that the agent makes are separate from this call. The agent therefore runs without the context
        # variables of this call, before and after a pause.
        return await asyncio.create_task(_awaited(running), context=outside)


def guarded_tool(tool: FunctionTool, agent_name: str, bridge: Bridge) -> FunctionTool:
    """Return a copy of a function tool that checks and logs every call."""
    guarded = copy.copy(tool)
    invoker = GuardedTool(tool, agent_name, bridge)
    guarded.on_invoke_tool = invoker
    if invoker.pauses:
        guarded.needs_approval = invoker.needs_approval
    return guarded


def read(text: str | None) -> dict[str, Any] | None:
    """Parse the arguments of a model's call; return None if they are not an unambiguous JSON object.

    A text is rejected if different JSON parsers could read it differently, such as an object that contains a member
    twice.
    """
    try:
        found = json.loads(
            text or "{}", object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite
        )
        # Encoding fails if a string contains a lone surrogate, which cannot be sent to the gateway.
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        raise ValueError("a key occurs twice")
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("a number is too large")
    return number


async def _awaited(running: Any) -> Any:
    return await running
