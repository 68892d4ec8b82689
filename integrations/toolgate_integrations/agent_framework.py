"""Plugin for Microsoft Agent Framework: `Agent(…, middleware=[*GuardMiddleware()])`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final
from uuid import UUID

from toolgate import ApprovalPending, ConfigurationError, Guard, GuardError
from toolgate_integrations._arguments import with_signature_defaults
from toolgate_integrations._options import OnHold, set_context
from toolgate_integrations.base import (
    Bridge,
    ToolActions,
    ToolCall,
    describe_pending,
    refusal_text,
    require,
)

require("agent_framework")

from agent_framework import (
    AgentContext,
    AgentMiddleware,
    AgentSession,
    Content,
    FunctionInvocationContext,
    FunctionMiddleware,
    FunctionTool,
    MiddlewareFailure,
    MiddlewareTermination,
    UserInputRequiredException,
)
from pydantic_core import to_jsonable_python

__all__ = ["GuardMiddleware", "GuardSetupError", "MisplacedGuardError"]

#: Key under which the runtime arguments of a tool contain its `Run`; the guard removes the key before the tool runs.
RUN: Final = "toolgate_run"
# Key under which the session's state contains the pending calls, by the id of the framework's approval request.
_HELD: Final = "toolgate_held"
_WHY: Final = "rejected when the run was resumed"
# The run whose tool is running. An agent that is run by a tool cannot pause, because the tool's caller would treat
# the pause as an error.
_outer: ContextVar[Run | None] = ContextVar("toolgate_agent_framework_outer", default=None)


@dataclass(frozen=True, slots=True)
class Run:
    """Data about one run of an agent, which the guard needs when it checks the tool calls that the run makes.

    Attributes:
        agent: The framework's agent.
        session_id: Id of the session. An agent that runs as a tool has the session id of its caller, because its own
            session is temporary.
        pauses: True if the run can pause and be resumed: it has a session, and does not run inside a tool.
        tools: Tools of the agent, and tools that were passed to this run only.
        paused: Ids of the framework's approval requests for which this run has already paused.
    """

    agent: object
    session_id: str | None
    pauses: bool
    tools: tuple[object, ...]
    paused: set[str] = field(default_factory=set)

    @property
    def name(self) -> str | None:
        """The agent's name."""
        return getattr(self.agent, "name", None)


class RunMiddleware(AgentMiddleware):
    """Middleware for runs: it passes the current run to `GuardMiddleware`, and processes the user's rejections.

    Args:
        bridge: The bridge that cancels the approval requests of rejected calls.
    """

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    async def process(self, context: AgentContext, call_next: Callable[[], Awaitable[None]]) -> None:
        """Run the agent; first, cancel the approval requests of the calls that the user rejected.

        The data about the run is stored in the runtime arguments of the tools, from which `GuardMiddleware` reads it.
        """
        given, outer, session = context.function_invocation_kwargs, _outer.get(), context.session
        callers = given.get("session")
        if outer is None and isinstance(callers, AgentSession):
            # The framework passes the caller's session to its tools. A session in the runtime arguments therefore
            # means that this agent runs as a tool of an agent without a guard.
            session = callers
        pauses = session is not None and session is context.session and outer is None
        session_id = None if session is None else session.session_id
        run = Run(context.agent, session_id if outer is None else outer.session_id, pauses, _tools(context))
        former = given.get(RUN)
        if isinstance(former, Run):
            # An outer middleware runs the agent a second time. The ids of the approval requests for which the first run
            # has paused are copied to the second run.
            run.paused.update(former.paused)
        given[RUN] = run
        if context.session is not None:
            for message in context.messages:
                for content in message.contents:
                    # The framework treats any value except True as a rejection.
                    if content.type == "function_approval_response" and content.approved is not True:
                        await self._rejected(content, run, context.session)
        await call_next()

    async def _rejected(self, answer: Content, run: Run, session: AgentSession) -> None:
        """Cancel the approval request of a call that the user rejected.

        A response is ignored if the session contains no pending call for it.
        """
        held = forget(session, answer.id)
        if held is None:
            return
        tool = next((each for each in run.tools if getattr(each, "name", None) == held["name"]), None)
        call = ToolCall(
            held["name"],
            held["arguments"],
            call_id=answer.id,
            run_id=session.session_id,
            agent=run.name,
            function=getattr(tool, "func", None),
            server=held["server"],
            own_name=held["own_name"],
        )
        await self._bridge.areject(call, _WHY, held["approval_id"])


def mark_running(run: Run | None) -> AbstractContextManager[None]:
    """Mark that a tool of `run` is running inside the `with` block, so that agents that the tool runs do not pause."""
    return set_context(_outer, run or _outer.get())


def remember(
    session: AgentSession, request_id: str, call: ToolCall, approval_id: str, arguments: Mapping[str, Any]
) -> None:
    """Store a pending call in the session, so that its approval request can be cancelled if the user rejects the call."""
    session.state.setdefault(_HELD, {})[request_id] = {
        "name": call.name,
        "arguments": dict(arguments),
        "server": call.server,
        "own_name": call.own_name,
        "approval_id": approval_id,
    }


def forget(session: AgentSession | None, request_id: str | None) -> dict[str, Any] | None:
    """Remove a pending call from the session, and return its stored data, or None if it is not stored."""
    held = None if session is None else session.state.get(_HELD)
    found = held.pop(request_id, None) if isinstance(held, dict) else None
    return found if isinstance(found, dict) else None


def served_by(tool: FunctionTool, run: Run | None) -> tuple[str | None, str | None]:
    """Return the server name of a remote tool, and the tool's name on that server; (None, None) for a local tool.

    The server name is empty if no server of the run has the tool.
    """
    own_name = (tool.additional_properties or {}).get("_mcp_remote_name")
    if not isinstance(own_name, str):
        return None, None
    for each in () if run is None else run.tools:
        functions = getattr(each, "functions", ())
        if any(one.name == tool.name for one in functions):
            return str(getattr(each, "name", "")), own_name
    return "", own_name


def _tools(context: AgentContext) -> tuple[object, ...]:
    options: Any = getattr(context.agent, "default_options", None) or {}
    given: list[object] = [options.get("tools"), getattr(context.agent, "mcp_tools", None), context.tools]
    given.append((context.options or {}).get("tools"))
    listed: list[object] = []
    for each in given:
        listed += each if isinstance(each, list | tuple) else [each]
    return tuple(each for each in listed if each is not None)


class AskedBehindError(Exception):
    """Raised if a middleware after the guard, or the tool itself, requested an approval from the framework's user.

    The tool has not run. The framework executes the call again after the user's response.

    Attributes:
        ended: The `MiddlewareTermination` with which the middleware ended the run, or None.
    """

    def __init__(self, ended: MiddlewareTermination | None) -> None:
        super().__init__("the framework's user is asked for approval")
        self.ended = ended


#: Exceptions after which the framework executes the call again later, so the call is not logged as failed.
PAUSES = (AskedBehindError, ApprovalPending, UserInputRequiredException)


async def run_inner(
    context: FunctionInvocationContext,
    run: Run | None,
    arguments: Mapping[str, Any],
    call_next: Callable[[], Awaitable[None]],
    approved: dict[str, Any],
) -> MiddlewareTermination | None:
    """Run the tool with the approved arguments, and the middleware between the guard and the tool.

    Args:
        context: The framework's context of the call.
        run: The agent run that made the call; None if it is unknown.
        arguments: The arguments that the gateway checked.
        call_next: Function that runs the remaining middleware and the tool.
        approved: The approved arguments; they differ from `arguments` if the approver edited the call.

    Returns:
        The `MiddlewareTermination` with which a middleware ended the run, or None if no middleware ended it.

    Raises:
        AskedBehindError: A middleware or the tool requested an approval from the framework's user, so the tool has not
            run.
    """
    if any(value is not arguments.get(name) for name, value in approved.items()):
        # The record of the user's approval is removed. With it, the framework would compare the edited arguments with
        # those that the user saw, and request an approval again.
        context.metadata.pop("_approved_function_arguments", None)
        context.arguments = approved
    ended = None
    try:
        with mark_running(run):
            await call_next()
    except MiddlewareTermination as termination:
        # The exception ends the run, but the tool has not failed, so it is returned and not raised.
        ended = termination
    if isinstance(context.result, Content) and context.result.type == "function_approval_request":
        raise AskedBehindError(ended)
    return ended


def request_id(context: FunctionInvocationContext) -> str:
    """Return the framework's id of a call, which is unique in the session.

    The framework's own id is preferred, because the ids of model providers may occur again in the same session.
    """
    found = context.metadata.get("function_call_occurrence_id") or context.metadata["call_id"]
    return str(found)


def arguments_of(context: FunctionInvocationContext) -> dict[str, Any]:
    """Return the arguments that the tool would receive, by name."""
    given = context.arguments
    return dict(given) if isinstance(given, Mapping) else given.model_dump(exclude_unset=True)


def to_stored_arguments(arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return arguments as JSON for storage in a session, or None if a call with these arguments cannot pause.

    A call cannot pause if its arguments cannot be converted to JSON, or contain types for which the framework accepts
    no approval. Resuming such a call would end the run.
    """
    try:
        found: dict[str, Any] = to_jsonable_python(dict(arguments))
        return found if _takes_approval(dict(arguments)) else None
    except Exception:  # noqa: BLE001 - converting an object of any class may raise anything
        return None


def _takes_approval(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_takes_approval(each) for item in value.items() for each in item)
    if isinstance(value, list | tuple | set | frozenset):
        return all(_takes_approval(each) for each in value)
    return value is None or isinstance(value, str | bytes | int | float) or type(value) in _IMMUTABLE


# Types besides the JSON types for which the framework accepts approvals, because it treats them as immutable. `Enum`
# and `Path` are not among them.
_IMMUTABLE: Final = frozenset({date, datetime, time, timedelta, Decimal, UUID})


class MisplacedGuardError(ConfigurationError, MiddlewareFailure):
    """The guard needs to know the current run, but the middleware for runs is missing; the exception ends the run.

    Pass both middlewares: `middleware=[*GuardMiddleware()]`.
    """

    def __init__(self, message: str) -> None:
        MiddlewareFailure.__init__(self, message)


class GuardSetupError(ConfigurationError, MiddlewareFailure):
    """A call was not carried out because a setting or the API key is wrong; the exception ends the run.

    `__cause__` is the setup error. The class is a `MiddlewareFailure`, because the framework shows all other
    exceptions of a middleware to the model instead of ending the run.
    """

    def __init__(self, message: str) -> None:
        MiddlewareFailure.__init__(self, message)


class GuardMiddleware(FunctionMiddleware):
    """Middleware that checks and logs every tool call of an agent.

    It consists of two middlewares, so it is passed with a star: `middleware=[*GuardMiddleware()]`.

    Args:
        guard: The guard that sends the checks; None for the default guard, which `toolgate.configure` can set.
        tool_actions: Actions by tool name, as a mapping or a function of the name. The default action is
            `tools.<name>`, or `<server>.<name>` for a tool of an MCP server.
        agents: Toolgate agent ids by the names given to `Agent(name=…)`. All other agents use the guard's agent id.
        on_hold: Reaction to a call that requires an approval. `pause`: the run pauses with an approval request of the
            framework. `wait`: wait for the approver within the run. `raise`: end the run with `ApprovalPending`.
            `notify_model`: the model reads that the call is pending.
        hold_timeout: Seconds to wait for the approver with `on_hold="wait"`; afterwards, the model reads that the call
            is pending. None for no limit.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    def __init__(
        self,
        guard: Guard | None = None,
        *,
        tool_actions: ToolActions | None = None,
        agents: Mapping[str, str] | None = None,
        on_hold: OnHold = "pause",
        hold_timeout: float | None = None,
    ) -> None:
        self._bridge = Bridge(guard, tool_actions, agents, on_hold, hold_timeout, can_pause=True)
        self._needs_runs = self._bridge.on_hold == "pause" or bool(agents)
        self._runs = RunMiddleware(self._bridge)

    def __iter__(self) -> Iterator[AgentMiddleware | FunctionMiddleware]:
        """Yield the middleware for runs and the middleware for tool calls; an agent needs both."""
        yield self._runs
        yield self

    async def process(
        self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]
    ) -> None:
        """Check a call, run the tool, and log the outcome; if the call must not run, the model reads the reason.

        Raises:
            MisplacedGuardError: The middleware for runs is missing, and the settings need it.
        """
        run = self._told_run(context)
        try:
            await self._asked(context, run, call_next)
        finally:
            if run is not None:
                # The run is stored again, because an outer middleware may execute the call again.
                context.kwargs[RUN] = run

    async def _asked(
        self, context: FunctionInvocationContext, run: Run | None, call_next: Callable[[], Awaitable[None]]
    ) -> None:
        arguments = arguments_of(context)
        args = (
            to_stored_arguments(arguments)
            if run is not None and run.pauses and self._bridge.on_hold == "pause"
            else None
        )
        # The defaults of the function's parameters are added before the check, because the tool receives them for
        # arguments that the model omits.
        own = getattr(context.function, "_context_parameter_name", None)
        told = with_signature_defaults(arguments, context.function.func, () if own is None else (own,))
        call = self._call(context, run, told, pauses=args is not None)
        run_tool = partial(run_inner, context, run, told, call_next)
        # True if an automatic rule of the framework answered the earlier approval request of this call within the same
        # run. It would answer another request in the same way, without end, so the call waits for the approver instead.
        again = run is not None and request_id(context) in run.paused
        ended = None
        try:
            ended = await self._bridge.arun(call, run_tool, pauses=PAUSES, waits=again)
        except AskedBehindError as asked:
            ended = asked.ended
        except MiddlewareFailure:
            raise
        except self._bridge.fatal as error:
            raise GuardSetupError(str(error)) from error
        except ApprovalPending as pending:
            if run is not None and args is not None and not again:
                run.paused.add(request_id(context))
                context.result = self._request(context, call, args, pending)
                return
            context.result = refusal_text(pending)
        except GuardError as error:
            context.result = refusal_text(error)
        forget(context.session, request_id(context))
        if ended is not None:
            raise ended

    def _told_run(self, context: FunctionInvocationContext) -> Run | None:
        # The run is removed from the runtime arguments, because an MCP server may request any of them by name.
        run = context.kwargs.pop(RUN, None)
        if run is None and self._needs_runs:
            raise MisplacedGuardError(
                f"the guard of the tool {context.function.name!r} does not receive the current run; add it "
                "exactly once, as middleware=[…, *GuardMiddleware()] (to use it without an agent, set "
                "on_hold='wait' or 'notify_model', and no agents=)"
            )
        return run if isinstance(run, Run) else None

    def _call(
        self,
        context: FunctionInvocationContext,
        run: Run | None,
        arguments: Mapping[str, Any],
        *,
        pauses: bool,
    ) -> ToolCall:
        server, own_name = served_by(context.function, run)
        function = context.function.func
        session_id = None if run is None else run.session_id
        is_named = bool(session_id) and self._bridge.sends_id(function, can_pause=pauses)
        return ToolCall(
            context.function.name,
            arguments,
            call_id=request_id(context) if is_named else None,
            run_id=session_id,
            agent=None if run is None else run.name,
            function=function,
            server=server,
            own_name=own_name,
        )

    def _request(
        self,
        context: FunctionInvocationContext,
        call: ToolCall,
        args: Mapping[str, Any],
        pending: ApprovalPending,
    ) -> Content:
        """Return an approval request of the framework, which pauses the run until the user responds.

        The framework then executes the call again, and the guard checks it again.
        """
        name = request_id(context)
        if context.session is not None:
            remember(context.session, name, call, pending.approval_id, args)
        called = Content.from_function_call(
            call_id=context.metadata["call_id"], name=call.name, arguments=args, id=name
        )
        return Content.from_function_approval_request(
            id=name, function_call=called, additional_properties=describe_pending(pending)
        )
