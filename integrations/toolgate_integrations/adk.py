"""Google's Agent Development Kit: `App(…, plugins=[GuardPlugin()])`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Literal

from toolgate import (
    ApprovalExpired,
    ApprovalPending,
    ConfigurationError,
    GatewayProtocolError,
    GatewayUnavailable,
    Guard,
    GuardError,
    is_guarded,
)
from toolgate_integrations._arguments import InvalidArgumentsError
from toolgate_integrations._base import Bridge, ToolActions, ToolCall, require, valid_on_hold
from toolgate_integrations._setup_errors import SETUP_ERRORS
from toolgate_integrations._telling import areject, refusal_or_raise, shown

require("adk")

from google.adk.agents.invocation_context import InvocationContext
from google.adk.events import Event
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from toolgate_integrations._adk_calls import (
    PAUSES,
    Asked,
    Open,
    StoppedError,
    asked_for,
    confirms,
    failure,
    inside,
    outer,
    recordable,
    schema_of,
    served_by,
    stopped,
)

__all__ = ["GuardPlugin"]

OnHold = Literal["confirmation", "wait", "tell"]
_WHY = "rejected where the session is gone on with"
_REJECTED = "Not done: it was rejected. Do not ask for it again."
_ENDED = "Not done: its approval request has ended. Asking again makes a new request."
logger = logging.getLogger("toolgate")


class GuardPlugin(BasePlugin):
    """Guards every tool call of an app, of all its agents; list it first.

    Args:
        guard: The guard that asks; None is the environment's.
        tool_actions: Actions of tools by their names: a mapping, or a function of the name. Others are
            `tools.<name>`, and `<prefix>.<name>` for those of MCP servers.
        agents: Agent ids by the names given to `LlmAgent(name=…)`.
        on_hold: What a held call does: `confirmation` ends the run with the framework's own request, `wait` waits for
            the person within the run, `tell` lets the model read that it waits.
        name: The plugin's name in the app.

    Raises:
        ConfigurationError: An argument is wrong.
    """

    def __init__(
        self,
        guard: Guard | None = None,
        *,
        tool_actions: ToolActions | None = None,
        agents: Mapping[str, str] | None = None,
        on_hold: OnHold = "confirmation",
        name: str = "toolgate",
    ) -> None:
        super().__init__(name=name)
        valid_on_hold(on_hold, "confirmation")
        self._bridge = Bridge(guard, tool_actions=tool_actions, agents=agents, on_hold=on_hold)
        # By the identity of the framework's context, which is kept with it.
        self._open: dict[int, Open] = {}
        self._undecided: dict[str, list[Asked]] = {}

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """Ask; what is refused is told to the model in the tool's place."""
        try:
            call = self._call(tool, tool_args, tool_context)
        except InvalidArgumentsError as error:
            return {"error": f"Invoking `{tool.name}()` failed: {error.__cause__}"}
        answered = tool_context.tool_confirmation
        # The framework itself runs a tool whose user said no, if the tool is not declared to be confirmed.
        if answered is not None and answered.confirmed is not True:
            return await self._rejected(call, tool_context)
        if answered is not None and (ended := await self._expired(call, tool_context)) is not None:
            return ended
        begun = None
        try:
            if isinstance(tool, AgentTool) and not getattr(tool, "include_plugins", True):
                raise ConfigurationError(
                    f"the tools of the agent {tool.name!r} would not be asked about; make it a tool with "
                    "include_plugins=True"
                )
            if not is_guarded(call.function):
                begun = await self._bridge.abegin(call, PAUSES)
                tool_args.clear()
                tool_args.update(call.to_send(begun.arguments))
        except ApprovalPending as pending:
            if answered is None:
                return self._told(tool_context, pending)
            # Of a call that was confirmed, the framework takes no second request: the model has to call again.
            await self._bridge.areject(call, _ENDED, pending.approval_id, final=False)
            return {"error": _ENDED}
        except GuardError as error:
            return self._told(tool_context, error)
        opened = Open(tool_context, call, begun)
        opened.around.enter_context(
            self._bridge.bearing(call, PAUSES) if begun is None else self._bridge.within(call)
        )
        opened.around.enter_context(inside(call))
        self._open[id(tool_context)] = opened
        task = asyncio.current_task()
        if task is not None:
            task.add_done_callback(partial(self._broken, tool_context))
        return None

    async def after_tool_callback(
        self, *, tool_context: ToolContext, result: dict[str, Any], **_: Any
    ) -> dict[str, Any] | None:
        """Record what came of a tool that ran; the framework tells of those that were refused, too."""
        opened = self._closed(tool_context)
        if opened is not None and opened.begun is not None:
            if stopped(tool_context):
                opened.begun.not_run(StoppedError("it asks its user"))
            else:
                opened.begun.run(lambda: result, failure)
        return None

    async def on_tool_error_callback(
        self, *, tool_context: ToolContext, error: BaseException, **_: Any
    ) -> dict[str, Any] | None:
        """Record a tool that raised; what a function that is guarded itself was refused is told to the model."""
        opened = self._closed(tool_context)
        if opened is not None and opened.begun is not None:
            opened.begun.not_run(recordable(error))
        elif opened is not None and isinstance(error, GuardError):
            return self._told(tool_context, error)
        return None

    async def on_user_message_callback(
        self, *, invocation_context: InvocationContext, user_message: types.Content
    ) -> types.Content | None:
        """Take out what confirms calls that are undecided at the gateway: their requests stay open."""
        undecided: list[Asked] = []
        left: list[types.Part] = []
        for part in user_message.parts or ():
            asked = asked_for(invocation_context.session.events, confirms(part))
            if asked is not None and await self._waits(asked):
                undecided.append(asked)
            else:
                left.append(part)
        if undecided and left:
            return types.Content(role=user_message.role, parts=left)
        if undecided:
            self._undecided[invocation_context.invocation_id] = undecided
        return None

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> types.Content | None:
        """End a run at once that would go on with undecided calls only, with their requests."""
        undecided = self._undecided.get(invocation_context.invocation_id)
        if undecided is None:
            return None
        return types.Content(
            role="model", parts=[types.Part(function_call=each.request) for each in undecided]
        )

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> Event | None:
        """Let such a request be the one of the agent that made it: it is answered as the first was."""
        undecided = self._undecided.pop(invocation_context.invocation_id, None)
        if undecided is None:
            return None
        ids = {each.request.id for each in undecided if each.request.id}
        return event.model_copy(update={"author": undecided[0].author, "long_running_tool_ids": ids})

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Say what is missing where other plugins hid the ends of calls."""
        for opened in list(self._open.values()):
            if opened.context.invocation_id == invocation_context.invocation_id:
                self._closed(opened.context)
                logger.warning(
                    "what came of a call of the tool %r is not known; list the guard first in plugins=[…]",
                    opened.call.name,
                )

    async def _waits(self, asked: Asked) -> bool:
        if asked.approval_id is None:
            return False
        try:
            newest = await self._bridge.guard.aapproval(asked.approval_id, newest=True)
        except (GatewayUnavailable, GatewayProtocolError):
            # Nobody can say: nothing runs, and the request is not used up.
            return True
        except GuardError:
            return False
        return newest.status == "pending"

    async def _expired(self, call: ToolCall, context: ToolContext) -> dict[str, Any] | None:
        """What the model reads of a call whose request has expired, and None of any other; no new one is made."""
        asked = asked_for(context.session.events, context.function_call_id)
        if asked is None or asked.approval_id is None:
            return None
        try:
            newest = await self._bridge.guard.aapproval(asked.approval_id, newest=True)
        except GuardError:
            # The check says what is wrong.
            return None
        if newest.status != "expired":
            return None
        action = self._bridge.action_of(call)
        expired = ApprovalExpired(
            action=action, agent_id=newest.agent_id or "", approval_id=asked.approval_id
        )
        return {"error": refusal_or_raise(expired)}

    async def _rejected(self, call: ToolCall, context: ToolContext) -> dict[str, Any]:
        """Take a no; whose request it is, the session says, and not the answer."""
        asked = asked_for(context.session.events, context.function_call_id)
        await areject(self._bridge, call, _WHY, None if asked is None else asked.approval_id)
        return {"error": _REJECTED}

    def _told(self, context: ToolContext, error: GuardError) -> dict[str, Any]:
        """What the model reads of a call that was refused; one that is held ends the run with a request."""
        if isinstance(error, SETUP_ERRORS):
            self._bridge.report(error)
        pauses = isinstance(error, ApprovalPending) and self._pauses(context)
        if isinstance(error, ApprovalPending) and pauses:
            context.request_confirmation(hint=error.reason, payload=shown(error))
            # Or else the model is asked again at once.
            context.actions.skip_summarization = True
        return {"error": refusal_or_raise(error, paused=pauses)}

    def _pauses(self, context: ToolContext) -> bool:
        within = outer() is not None
        return self._bridge.on_hold == "confirmation" and bool(context.function_call_id) and not within

    def _closed(self, context: ToolContext) -> Open | None:
        opened = self._open.pop(id(context), None)
        if opened is not None:
            # What held in another task ended with it.
            with suppress(ValueError):
                opened.around.close()
        return opened

    def _broken(self, context: ToolContext, task: asyncio.Task[Any]) -> None:
        """Record a call that ended without a callback: one behind the guard raised, or the tool what is no Exception."""
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        opened = None if error is None else self._closed(context)
        if error is not None and opened is not None and opened.begun is not None:
            opened.begun.not_run(recordable(error))

    def _call(self, tool: BaseTool, arguments: Mapping[str, Any], context: ToolContext) -> ToolCall:
        server, own_name = served_by(tool)
        function = getattr(tool, "func", None)
        around = outer()
        # A model that was told asks again by another id: bound to this one, its approval would be of no use to it.
        waits = self._bridge.on_hold == "wait" and not is_guarded(function)
        run_id = context.session.id if around is None else around.run_id
        call_id = context.function_call_id
        received = self._bridge.received.of(tool.name, arguments, schema_of(tool), run_id, call_id)
        return ToolCall(
            tool.name,
            received.values,
            call_id=call_id if waits or self._pauses(context) else None,
            run_id=run_id,
            received=received,
            agent=context.agent_name,
            function=function,
            server=server,
            own_name=own_name,
        )
