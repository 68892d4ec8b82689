"""Microsoft Agent Framework: `Agent(…, middleware=[*GuardMiddleware()])`."""

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

#: Key of the `Run` in the runtime arguments of a run's tools; the guard removes it before a tool runs.
RUN: Final = "toolgate_run"
# Key in the session's state: the pending calls, by the id of the framework's approval request.
_HELD: Final = "toolgate_held"
_WHY: Final = "rejected when the run was resumed"
# The run whose tool is running. An agent that a tool runs cannot pause: the caller treats a pause as an error.
_outer: ContextVar[Run | None] = ContextVar("toolgate_agent_framework_outer", default=None)


@dataclass(frozen=True, slots=True)
class Run:
    """A run of an agent.

    Attributes:
        agent: The agent.
        session_id: Id of the session. An agent that runs as a tool has the session of its caller, because its own
            session is temporary.
        pauses: True if the run can pause and be resumed: it has a session, and does not run inside a tool.
        tools: Tools of the agent, and tools that were passed to this run only.
        paused: Ids of the approval requests that the run has paused for.
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
    """Middleware that passes the current run to the guard of tool calls, and cancels the requests of rejected calls.

    Args:
        bridge: The bridge that cancels the requests.
    """

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    async def process(self, context: AgentContext, call_next: Callable[[], Awaitable[None]]) -> None:
        """Add the run to the tools' runtime arguments, cancel the requests of rejected calls, and run the agent."""
        given, outer, session = context.function_invocation_kwargs, _outer.get(), context.session
        callers = given.get("session")
        if outer is None and isinstance(callers, AgentSession):
            # The framework passes the caller's session to tools, so this agent runs as a tool of an unguarded agent.
            session = callers
        pauses = session is not None and session is context.session and outer is None
        session_id = None if session is None else session.session_id
        run = Run(context.agent, session_id if outer is None else outer.session_id, pauses, _tools(context))
        former = given.get(RUN)
        if isinstance(former, Run):
            # An outer middleware runs the agent a second time.
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
        """Cancel the approval request of a rejected call; a response without a request in the session is ignored."""
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


def running(run: Run | None) -> AbstractContextManager[None]:
    """Mark that a tool of the run is running inside the block; agents that the tool runs cannot pause."""
    return set_context(_outer, run or _outer.get())


def remember(
    session: AgentSession, request_id: str, call: ToolCall, approval_id: str, arguments: Mapping[str, Any]
) -> None:
    """Store a pending call in the session, so that its request can be cancelled if the user rejects the call."""
    session.state.setdefault(_HELD, {})[request_id] = {
        "name": call.name,
        "arguments": dict(arguments),
        "server": call.server,
        "own_name": call.own_name,
        "approval_id": approval_id,
    }


def forget(session: AgentSession | None, request_id: str | None) -> dict[str, Any] | None:
    """Remove the stored pending call from the session and return it, or None if there is none."""
    held = None if session is None else session.state.get(_HELD)
    found = held.pop(request_id, None) if isinstance(held, dict) else None
    return found if isinstance(found, dict) else None


def served_by(tool: FunctionTool, run: Run | None) -> tuple[str | None, str | None]:
    """Return the name of a remote tool's server, and the tool's own name there.

    Returns:
        The server is None for a tool of this process, and empty if no server of the run has the tool.
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
    """An inner middleware or the tool requested approval from the framework's user.

    The tool has not run; the framework executes the call again after the response.

    Attributes:
        ended: Exception by which a middleware ended the run, or None.
    """

    def __init__(self, ended: MiddlewareTermination | None) -> None:
        super().__init__("the framework's user is asked for approval")
        self.ended = ended


#: Exceptions that end a call which the framework will execute again; they are not logged as failures.
PAUSES = (AskedBehindError, ApprovalPending, UserInputRequiredException)


async def run_inner(
    context: FunctionInvocationContext,
    run: Run | None,
    arguments: Mapping[str, Any],
    call_next: Callable[[], Awaitable[None]],
    approved: dict[str, Any],
) -> MiddlewareTermination | None:
    """Run the inner middleware and the tool with the approved arguments.

    Args:
        context: The framework's context of the call.
        run: The run of the call; None if it is unknown.
        arguments: The arguments that the gateway checked.
        call_next: Function that runs the inner middleware and the tool.
        approved: The approved arguments.

    Returns:
        The exception by which a middleware ended the run, or None.

    Raises:
        AskedBehindError: The framework's user must approve the call before the tool runs.
    """
    if any(value is not arguments.get(name) for name, value in approved.items()):
        # Otherwise the framework would request approval again, because the arguments changed after its request.
        context.metadata.pop("_approved_function_arguments", None)
        context.arguments = approved
    ended = None
    try:
        with running(run):
            await call_next()
    except MiddlewareTermination as termination:
        # This exception ends the run, but is not a failure of the tool.
        ended = termination
    if isinstance(context.result, Content) and context.result.type == "function_approval_request":
        raise AskedBehindError(ended)
    return ended


def request_id(context: FunctionInvocationContext) -> str:
    """Return the framework's id of the call; the provider's id may occur again in another turn."""
    found = context.metadata.get("function_call_occurrence_id") or context.metadata["call_id"]
    return str(found)


def arguments_of(context: FunctionInvocationContext) -> dict[str, Any]:
    """Return the arguments that the tool would receive, or the model's arguments if they are invalid."""
    given = context.arguments
    return dict(given) if isinstance(given, Mapping) else given.model_dump(exclude_unset=True)


def kept(arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return arguments in the form in which a session stores them, or None if a call with them cannot pause.

    A call cannot pause if its arguments cannot be converted to JSON, or contain types for which the framework accepts
    no approval: resuming such a call would end the run.
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


# Types besides those of JSON that the framework treats as immutable, and so accepts approvals for (not Enum or Path).
_IMMUTABLE: Final = frozenset({date, datetime, time, timedelta, Decimal, UUID})


class MisplacedGuardError(ConfigurationError, MiddlewareFailure):
    """The guard of tool calls needs the current run, but its run middleware is missing; the run ends."""

    def __init__(self, message: str) -> None:
        MiddlewareFailure.__init__(self, message)


class GuardSetupError(ConfigurationError, MiddlewareFailure):
    """A call was not carried out because of the settings or the API key. The run ends; `__cause__` is the setup error.

    The framework converts other exceptions of a middleware to text for the model, but raises a `MiddlewareFailure`.
    """

    def __init__(self, message: str) -> None:
        MiddlewareFailure.__init__(self, message)


class GuardMiddleware(FunctionMiddleware):
    """Guards every tool call of an agent.

    Pass it with a star, as in `middleware=[*GuardMiddleware()]`: it consists of two middlewares.

    Args:
        guard: The guard; None for the guard that is configured by the environment.
        tool_actions: Actions by tool name, a mapping or a function of the name. The default action is
            `tools.<name>`, and `<server>.<name>` for those of MCP servers.
        agents: Agent ids by the names given to `Agent(name=…)`.
        on_hold: Reaction to a call that requires an approval. `pause`: the run pauses with the framework's own
            approval request. `wait`: wait for the approver within the run. `raise`: end the run with
            `ApprovalPending`. `notify_model`: the model reads that the call is pending.
        hold_timeout: Seconds that `wait` waits, after which the model reads that the call is pending; None for no limit.

    Raises:
        ConfigurationError: An argument is wrong.
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
        """Check a call, run the tool, and log the outcome; if the call must not run, show the reason to the model.

        Raises:
            MisplacedGuardError: The run middleware is missing, and the settings need it.
        """
        run = self._told_run(context)
        try:
            await self._asked(context, run, call_next)
        finally:
            if run is not None:
                # An outer middleware may execute the call again.
                context.kwargs[RUN] = run

    async def _asked(
        self, context: FunctionInvocationContext, run: Run | None, call_next: Callable[[], Awaitable[None]]
    ) -> None:
        arguments = arguments_of(context)
        args = kept(arguments) if run is not None and run.pauses and self._bridge.on_hold == "pause" else None
        # The function's defaults apply to arguments that the framework omits.
        own = getattr(context.function, "_context_parameter_name", None)
        told = with_signature_defaults(arguments, context.function.func, () if own is None else (own,))
        call = self._call(context, run, told, pauses=args is not None)
        run_tool = partial(run_inner, context, run, told, call_next)
        # True if a rule of the framework responded to the approval request within the same run. Pausing again would
        # repeat that forever, so the call waits for the approver instead.
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
        # Removed from the runtime arguments, because an MCP server may request any of them by name.
        run = context.kwargs.pop(RUN, None)
        if run is None and self._needs_runs:
            raise MisplacedGuardError(
                f"the guard of the tool {context.function.name!r} is not told of runs, or is given twice; use "
                "middleware=[…, *GuardMiddleware()] once, or on_hold='wait' or 'notify_model' and no agents without an agent"
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
        """Return the framework's approval request, which pauses the run until the call is executed again."""
        name = request_id(context)
        if context.session is not None:
            remember(context.session, name, call, pending.approval_id, args)
        called = Content.from_function_call(
            call_id=context.metadata["call_id"], name=call.name, arguments=args, id=name
        )
        return Content.from_function_approval_request(
            id=name, function_call=called, additional_properties=describe_pending(pending)
        )
