"""Runs of Microsoft Agent Framework's agents: who runs, whether it can pause, and the no that it is gone on with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from agent_framework import AgentContext, AgentMiddleware, AgentSession, Content, FunctionTool

from toolgate_integrations._base import Bridge, ToolCall
from toolgate_integrations._during import during
from toolgate_integrations._telling import areject

__all__ = ["RUN", "Run", "RunMiddleware", "forget", "remember", "running", "served_by"]

#: under which the runtime arguments of a run's tools have the run; the hook takes it out before the tool
RUN: Final = "toolgate_run"
# In the session's state: the calls that wait, by the id of the framework's request.
_HELD: Final = "toolgate_held"
_WHY: Final = "rejected where the run is gone on with"
# The run whose tool is running. An agent that a tool runs cannot pause: its caller makes an error of it.
_outer: ContextVar[Run | None] = ContextVar("toolgate_agent_framework_outer", default=None)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of an agent.

    Attributes:
        agent: The agent.
        session_id: The session it is part of; of an agent that is a tool, its caller's: its own is made anew each time.
        pauses: Whether a call of it can be gone on with: its caller gave a session, and is no tool.
        tools: Those of the agent, and of this run only.
        paused: The requests it has paused for.
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
    """Tells the guard of calls which run they belong to, and takes the rejections a run is gone on with.

    Args:
        bridge: Takes them to the gateway.
    """

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    async def process(self, context: AgentContext, call_next: Callable[[], Awaitable[None]]) -> None:
        """Go on with the run."""
        given, outer, session = context.function_invocation_kwargs, _outer.get(), context.session
        callers = given.get("session")
        if outer is None and isinstance(callers, AgentSession):
            # The framework gives a tool its caller's: so this agent is one, of a caller that is not guarded.
            session = callers
        pauses = session is not None and session is context.session and outer is None
        session_id = None if session is None else session.session_id
        run = Run(context.agent, session_id if outer is None else outer.session_id, pauses, _tools(context))
        former = given.get(RUN)
        if isinstance(former, Run):
            # Middleware in front runs the agent once more.
            run.paused.update(former.paused)
        given[RUN] = run
        if context.session is not None:
            for message in context.messages:
                for content in message.contents:
                    # Anything but a plain True is a no to the framework.
                    if content.type == "function_approval_response" and content.approved is not True:
                        await self._rejected(content, run, context.session)
        await call_next()

    async def _rejected(self, answer: Content, run: Run, session: AgentSession) -> None:
        """What the run's caller brings back is compared with nothing but the session: only its request is looked up."""
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
        await areject(self._bridge, call, _WHY, held["approval_id"])


def running(run: Run | None) -> AbstractContextManager[None]:
    """While a tool of a run is running; agents that it runs cannot pause."""
    return during(_outer, run or _outer.get())


def remember(
    session: AgentSession, request_id: str, call: ToolCall, approval_id: str, arguments: Mapping[str, Any]
) -> None:
    """Keep in the session what a call that waits would be rejected as."""
    session.state.setdefault(_HELD, {})[request_id] = {
        "name": call.name,
        "arguments": dict(arguments),
        "server": call.server,
        "own_name": call.own_name,
        "approval_id": approval_id,
    }


def forget(session: AgentSession | None, request_id: str | None) -> dict[str, Any] | None:
    """Take out of the session what is kept of a call, if anything is."""
    held = None if session is None else session.state.get(_HELD)
    found = held.pop(request_id, None) if isinstance(held, dict) else None
    return found if isinstance(found, dict) else None


def served_by(tool: FunctionTool, run: Run | None) -> tuple[str | None, str | None]:
    """The server of a remote tool by the name it has here, and the tool's own name there.

    Returns:
        The server is None for a tool of this process, and empty for one that the run does not know.
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
