"""Resumption of paused runs of the OpenAI Agents SDK, with the gateway's decisions about their calls."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agents import Agent, FunctionTool, RunContextWrapper, Runner, RunResult, RunState
from agents.items import ToolApprovalItem
from agents.result import RunResultStreaming

from toolgate import ActionDenied, ApprovalPending, ConfigurationError, GatewayUnavailable
from toolgate._drivers import adrive
from toolgate._telemetry import warn_renamed
from toolgate_integrations.base import Bridge, InvalidArgumentsError, ToolCall
from toolgate_integrations.openai_agents.tools import GuardedTool, read
from toolgate_integrations.refusals import UNREADABLE

__all__ = [
    "Settled",
    "aresume",
    "aresume_streamed",
    "resume",
    "resume_streamed",
    "resume_sync",
    "settle",
]

if TYPE_CHECKING:
    from toolgate_integrations.openai_agents import GuardedAgent
_NO_MORE: Final = "the approval request was rejected, cancelled, or expired"


@dataclass(frozen=True)
class Settled:
    """State of a paused run, after the gateway's decisions were written into it.

    Attributes:
        state: The state, for `Runner.run`.
        waiting: Ids of the approval requests that are still pending, by call id.
    """

    state: RunState[Any, Any]
    waiting: Mapping[str, str]


async def settle(agent: GuardedAgent, state: RunState[Any, Any] | str | Mapping[str, Any]) -> Settled:
    """Write the gateway's decisions into the state of a paused run; only the gateway can approve a call.

    A pending call stays pending. If a call was rejected in the state, its approval request is cancelled.

    Args:
        agent: The guarded agent that began the run.
        state: The result of `result.to_state()`, also as text or as JSON.

    Raises:
        ApprovalPending: A call was approved in the state, but its approval request is still pending at the gateway.
        GatewayUnavailable: The gateway did not respond; the state was not changed.
        ConfigurationError: `state` is not the state of a guarded agent.
    """
    bridge = agent.guarding.bridge
    if isinstance(state, str):
        state = await RunState.from_string(agent, state)
    elif isinstance(state, Mapping):
        state = await RunState.from_json(agent, dict(state))
    found = [await _Item.of(state, item) for item in state.get_interruptions()]
    verdicts = [(item, await item.verdict(bridge)) for item in found if item is not None]
    waiting: dict[str, str] = {}
    for item, verdict in verdicts:
        if verdict.waits_for is not None:
            waiting[item.call_id] = verdict.waits_for
        elif verdict.refused is not None:
            await item.refuse(state, bridge, verdict)
        elif verdict.approved:
            state.approve(item.item)
    return Settled(state, waiting)


async def aresume(
    agent: GuardedAgent, state: RunState[Any, Any] | str | Mapping[str, Any], **options: Any
) -> RunResult:
    """Resume a paused run with the gateway's decisions; a call that is still pending pauses the run again.

    Args:
        agent: The guarded agent that began the run.
        state: The result of `result.to_state()`, also as text or as JSON, from any process.
        **options: Options of `Runner.run`.

    Raises:
        ApprovalPending: A call was approved in the state, but its approval request is still pending at the gateway.
        GatewayUnavailable: The gateway did not respond; the state was not changed.
        ConfigurationError: `state` is not the state of a guarded agent.
    """
    return await Runner.run(agent, (await settle(agent, state)).state, **options)


def resume(agent: GuardedAgent, state: RunState[Any, Any] | str | Mapping[str, Any], **options: Any) -> Any:
    """Resume a paused run synchronously, like `aresume`, and return the `RunResult`.

    If an event loop is running, the result is an awaitable, and a deprecation warning is issued, because this
    function was asynchronous until version 0.1.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        settled = _default_loop().run_until_complete(settle(agent, state))
        return Runner.run_sync(agent, settled.state, **options)
    warn_renamed("await resume(…)", "await aresume(…)")
    return aresume(agent, state, **options)


def resume_sync(*args: Any, **options: Any) -> Any:
    """Deprecated name of `resume`."""
    warn_renamed("resume_sync", "resume")
    return resume(*args, **options)


def _default_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop that `Runner.run_sync` uses, because connections to MCP servers work only in this loop."""
    policy = asyncio.get_event_loop_policy()
    with warnings.catch_warnings():
        # From Python 3.12 on, `get_event_loop` warns if there is no event loop.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            loop = policy.get_event_loop()
        except RuntimeError:
            loop = policy.new_event_loop()
    if loop.is_closed():
        loop = policy.new_event_loop()
    policy.set_event_loop(loop)
    return loop


async def aresume_streamed(
    agent: GuardedAgent, state: RunState[Any, Any] | str | Mapping[str, Any], **options: Any
) -> RunResultStreaming:
    """Resume a paused run like `aresume`, but return the streamed result of `Runner.run_streamed`."""
    return Runner.run_streamed(agent, (await settle(agent, state)).state, **options)


async def resume_streamed(*args: Any, **options: Any) -> RunResultStreaming:
    """Deprecated name of `aresume_streamed`."""
    warn_renamed("resume_streamed", "aresume_streamed")
    return await aresume_streamed(*args, **options)


@dataclass(frozen=True)
class _Verdict:
    """The gateway's decision about a paused call; all attributes have their default values if there is no decision.

    Attributes:
        approved: True if the gateway allows the call.
        waits_for: Id of the approval request for which the call still waits, or None.
        refused: Reason why the call must not run, for the log entry; None if it is not refused.
        told: Text that the model reads if the call is refused.
        request: Id of the approval request to cancel, or None.
    """

    approved: bool = False
    waits_for: str | None = None
    refused: str | None = None
    told: str | None = None
    request: str | None = None


@dataclass(frozen=True)
class _Item:
    """A tool call that has paused the run.

    Attributes:
        item: The SDK's object for the paused call.
        tool: Callable object with which the SDK runs the guarded tool.
        arguments: The model's arguments; None if they are not a JSON object.
        answer: True or False if the SDK's state contains an approval or rejection; None if it contains neither.
        context: Context of the run.
    """

    item: ToolApprovalItem
    tool: GuardedTool
    arguments: dict[str, Any] | None
    answer: bool | None
    context: RunContextWrapper[Any]

    @classmethod
    async def of(cls, state: RunState[Any, Any], item: ToolApprovalItem) -> _Item | None:
        """Return the paused call for an SDK item, or None if the gateway does not check calls to this tool."""
        # If an agent runs as a tool, the user's answers to the calls of this agent are in a nested state.
        find = getattr(state, "_find_nested_approval_state", None)
        owner, kept = (find(item) if find is not None else None) or (state, item)
        context = owner._context  # noqa: SLF001 - there is no public attribute
        if context is None:
            raise ConfigurationError(
                "the state has no context; pass the value that result.to_state() returned"
            )
        tool = await _tool(item, context)
        if tool is None:
            return None
        answer = context.get_approval_status(kept.tool_name or "", kept.call_id or "", existing_pending=kept)
        return cls(item, tool, read(item.arguments), answer, context)

    @property
    def call_id(self) -> str:
        """The SDK's id of the call."""
        return self.item.call_id or ""

    @property
    def call(self) -> ToolCall:
        """The `ToolCall` that was checked before the run paused."""
        try:
            return self.tool.call(self.arguments or {}, self.call_id)
        except InvalidArgumentsError:
            return self.tool.unread_call(self.call_id)

    async def verdict(self, bridge: Bridge) -> _Verdict:
        """Return the gateway's decision about the call.

        Raises:
            ApprovalPending: The call was approved in the state, but its approval request is still pending at the
                gateway.
        """
        if self.answer is False:
            return _Verdict(
                refused="the call was rejected in the framework", request=await self._request(bridge)
            )
        if not self.tool.pauses:
            # The run was paused by the tool's own approval policy, about which the gateway does not decide.
            return _Verdict()
        if self.arguments is None:
            return _Verdict(refused="the arguments are not a JSON object", told=UNREADABLE)
        looked = await adrive(bridge.preview_steps(self.call))
        if looked.allowed:
            return await self._approved()
        if looked.blocked:
            return self._refused(bridge, looked.reason or "the gateway gave no reason")
        if looked.approval_id is None:
            return _Verdict(
                refused=_NO_MORE, told=f"Not done: {_NO_MORE}. Calling the tool again creates a new request."
            )
        approval = await bridge.guard.aapproval(looked.approval_id, newest=True)
        if approval.status == "approved":
            return await self._approved()
        if approval.status != "pending":
            return self._refused(bridge, approval.note or f"the approval request is {approval.status}")
        if self.answer:
            raise ApprovalPending(
                action=bridge.action_of(self.call),
                agent_id=approval.agent_id or "",
                approval_id=approval.approval_id,
                reason=f"call {self.call_id!r} was approved in the run's state, but only the gateway can "
                "approve it; decide the request at the gateway",
            )
        return _Verdict(waits_for=approval.approval_id)

    async def refuse(self, state: RunState[Any, Any], bridge: Bridge, verdict: _Verdict) -> None:
        """Log the refusal of the call, and write it into the SDK's state unless the state already contains it."""
        await bridge.areject(self.call, verdict.refused or "", verdict.request)
        if self.answer is not False:
            state.reject(self.item, rejection_message=verdict.told)

    async def _request(self, bridge: Bridge) -> str | None:
        """Return the id of the newest approval request of the call, or None."""
        try:
            looked = await adrive(bridge.preview_steps(self.call))
            if looked.approval_id is None:
                return None
            return (await bridge.guard.aapproval(looked.approval_id, newest=True)).approval_id
        except GatewayUnavailable:
            return None

    async def _approved(self) -> _Verdict:
        # If the tool's own policy also requires an approval by the SDK's user, the call is not approved here, because
        # the gateway's decision does not replace that approval.
        own = await self.tool.own_policy(self.context, self.arguments or {}, self.call_id)
        return _Verdict(approved=not own)

    def _refused(self, bridge: Bridge, why: str) -> _Verdict:
        error = ActionDenied(action=bridge.action_of(self.call), agent_id="", reason=why)
        return _Verdict(refused=why, told=bridge.refusal(error))


async def _tool(item: ToolApprovalItem, context: RunContextWrapper[Any]) -> GuardedTool | None:
    agent: object = item.agent
    if not isinstance(agent, Agent) or getattr(agent, "guarding", None) is None:
        raise ConfigurationError(
            f"the state is of agent {getattr(agent, 'name', None)!r}, which is not guarded; load the state "
            "with the agent that guard_agent returned"
        )
    for tool in await agent.get_all_tools(context):
        if isinstance(tool, FunctionTool) and tool.name == item.tool_name:
            return tool.on_invoke_tool if isinstance(tool.on_invoke_tool, GuardedTool) else None
    return None
