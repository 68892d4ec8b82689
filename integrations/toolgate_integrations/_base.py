"""What every plugin shares: the frameworks there are, names of actions, who acts, and one way to carry out a call.

Translation only: what may happen is decided by the gateway, and asked for by `toolgate`.
"""

from __future__ import annotations

import hashlib
import logging
import math
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import quote

from toolgate import (
    Approval,
    ApprovalPending,
    ConfigurationError,
    Decision,
    GatewayProtocolError,
    GatewayUnavailable,
    Guard,
    GuardError,
    acting_as,
    calling,
    default_guard,
    guarded_action,
)
from toolgate_integrations._frameworks import INTEGRATIONS, Integration, MissingFrameworkError, require

__all__ = [
    "INTEGRATIONS",
    "Bridge",
    "Integration",
    "MissingFrameworkError",
    "ToolActions",
    "ToolCall",
    "fitting",
    "require",
    "valid_on_hold",
]

T = TypeVar("T")
logger = logging.getLogger("toolgate")

#: actions by tool name, or a function that is given the name; None, or no entry, leaves the default
ToolActions: TypeAlias = Mapping[str, str] | Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool, as a framework makes it.

    Attributes:
        name: The tool's name.
        arguments: What the model gave it, by name.
        call_id: The framework's name of this call; the same when it is carried out again.
        run_id: The framework's name of what the call is part of, the same after a pause.
        agent: The framework agent's name.
        function: The Python function of the tool, if it is defined in this process.
        server: The name under which the tool's server is configured here, if the tool is a remote one; empty
            if nobody named it.
        own_name: The tool's name on its server, where the framework shows it by another.
    """

    name: str
    arguments: Mapping[str, Any] = field(repr=False)
    call_id: str | None = None
    run_id: str | None = None
    agent: str | None = None
    function: object = None
    server: str | None = None
    own_name: str | None = None


def valid_on_hold(on_hold: str, pauses: str) -> None:
    """Look whether `on_hold` can be one of a plugin that calls its way to pause `pauses`.

    Raises:
        ConfigurationError: It cannot.
    """
    if on_hold not in (pauses, "wait", "tell"):
        raise ConfigurationError(f"on_hold is {on_hold!r}; use {pauses!r}, 'wait' or 'tell'")


class Bridge:
    """Carries out a framework's tool calls as guarded actions.

    Args:
        guard: The guard that asks; None is the environment's.
        tool_actions: Actions of tools by their names, in place of the default (decisions §13).
        agents: Agent ids by the names of the framework's agents; others act as the guard's own agent.
        on_hold: `wait` waits for the person; anything else raises `ApprovalPending`.
        hold_timeout: Seconds to wait; None waits as long as it takes.

    Raises:
        ConfigurationError: An argument is of the wrong kind.
    """

    def __init__(
        self,
        guard: Guard | None,
        *,
        tool_actions: ToolActions | None = None,
        agents: Mapping[str, str] | None = None,
        on_hold: str = "raise",
        hold_timeout: float | None = None,
    ) -> None:
        if guard is not None and not isinstance(guard, Guard):
            raise ConfigurationError(
                f"guard is {guard!r}; pass a toolgate.Guard, or None for the environment's"
            )
        if tool_actions is not None and not callable(tool_actions) and not isinstance(tool_actions, Mapping):
            raise ConfigurationError(
                f"tool_actions is {tool_actions!r}; pass a mapping, or a function of the name"
            )
        if agents is not None and not isinstance(agents, Mapping):
            raise ConfigurationError(f"agents is {agents!r}; pass a mapping of agent names to agent ids")
        if hold_timeout is not None and not _is_time(hold_timeout):
            raise ConfigurationError(
                f"hold_timeout is {hold_timeout!r}; use seconds above 0, or None to wait without limit"
            )
        self._guard = guard
        self._tool_actions = tool_actions
        self._agents = dict(agents or {})
        self._waits = on_hold == "wait"
        self._hold_timeout = hold_timeout
        self._defaults: dict[str, tuple[str | None, str]] = {}
        self._lock = threading.Lock()

    @property
    def guard(self) -> Guard:
        """The guard that asks; made from the environment when first needed."""
        return default_guard() if self._guard is None else self._guard

    def action_of(self, call: ToolCall) -> str:
        """The action of a call: the function's own, the one named for the tool, or the default.

        Raises:
            ConfigurationError: Two tools have the same default action, or the server has a name it may not have.
        """
        return guarded_action(call.function) or self._named(call.name) or self._default(call)

    def run(
        self,
        call: ToolCall,
        tool: Callable[[dict[str, Any]], T],
        failed: Callable[[T], str | None] = lambda _: None,
        pauses: tuple[type[BaseException], ...] = (),
    ) -> T:
        """Ask, let the framework run the tool, record; a function that is guarded itself asks by itself.

        Args:
            call: The call.
            tool: Runs the tool, with the arguments as they were approved.
            failed: What the framework's answer says went wrong, where it says so instead of raising.
            pauses: What the framework raises to come back later.

        Raises:
            GuardError: The tool did not run.
        """
        with self._as(call, pauses):
            if guarded_action(call.function) is not None:
                return tool(dict(call.arguments))
            try:
                with self.guard.action(
                    self.action_of(call), call.arguments, **self._holding(waits=False), edits=True
                ) as act:
                    return _judged(tool(dict(act.context)), failed)
            except _FailedError as failure:
                answer: T = failure.answer
                return answer

    async def arun(
        self,
        call: ToolCall,
        tool: Callable[[dict[str, Any]], Awaitable[T]],
        failed: Callable[[T], str | None] = lambda _: None,
        pauses: tuple[type[BaseException], ...] = (),
        *,
        waits: bool = False,
    ) -> T:
        """As `run`.

        Args:
            call: The call.
            tool: Runs the tool, with the arguments as they were approved.
            failed: What the framework's answer says went wrong, where it says so instead of raising.
            pauses: What the framework raises to come back later.
            waits: Wait for the person this time, whatever `on_hold` says.
        """
        with self._as(call, pauses):
            if guarded_action(call.function) is not None:
                return await tool(dict(call.arguments))
            try:
                async with self.guard.action(
                    self.action_of(call), call.arguments, **self._holding(waits=waits), edits=True
                ) as act:
                    return _judged(await tool(dict(act.context)), failed)
            except _FailedError as failure:
                answer: T = failure.answer
                return answer

    def look(self, call: ToolCall) -> Decision:
        """What the gateway would answer now: nobody is asked for it, and nothing recorded."""
        with self._as(call, (), bears_name=False):
            call_id = fitting(call.call_id)
            return self.guard.check(self.action_of(call), call.arguments, call_id=call_id, dry_run=True)

    async def alook(self, call: ToolCall) -> Decision:
        """As `look`."""
        with self._as(call, (), bears_name=False):
            call_id = fitting(call.call_id)
            return await self.guard.acheck(
                self.action_of(call), call.arguments, call_id=call_id, dry_run=True
            )

    def waiting(self, call: ToolCall) -> ApprovalPending | None:
        """Look whether a call waits for a person, and carry nothing out; its request is made if there is none.

        A function that is guarded itself is not looked at: what it would ask only its own call knows.

        Raises:
            GatewayUnavailable: Nobody can say.
        """
        if guarded_action(call.function) is not None:
            return None
        try:
            asked = self.look(call)
            if not asked.held:
                return None
            if asked.approval_id is not None:
                newest = self.guard.approval(asked.approval_id, newest=True)
                return self._still(call, asked, newest)
            self.run(call, _not_yet, pauses=(_NotYetError,))
        except ApprovalPending as pending:
            return pending
        except GatewayUnavailable:
            raise
        except (GuardError, _NotYetError):
            # Decided one way or the other: its own check says how.
            return None
        return None

    async def awaiting(self, call: ToolCall) -> ApprovalPending | None:
        """As `waiting`."""
        if guarded_action(call.function) is not None:
            return None
        try:
            asked = await self.alook(call)
            if not asked.held:
                return None
            if asked.approval_id is not None:
                newest = await self.guard.aapproval(asked.approval_id, newest=True)
                return self._still(call, asked, newest)
            await self.arun(call, _anot_yet, pauses=(_NotYetError,))
        except ApprovalPending as pending:
            return pending
        except GatewayUnavailable:
            raise
        except (GuardError, _NotYetError):
            # Decided one way or the other: its own check says how.
            return None
        return None

    def passed(self, call: ToolCall) -> bool:
        """Whether an approval has let a call through, now or before; True also where nobody can say."""
        try:
            return self.look(call).blocked
        except GuardError:
            return True

    async def apassed(self, call: ToolCall) -> bool:
        """As `passed`."""
        try:
            return (await self.alook(call)).blocked
        except GuardError:
            return True

    def reject(self, call: ToolCall, why: str, approval_id: str | None = None) -> None:
        """Take a no that the framework was given: the call's request is withdrawn, and the log says so.

        Never raises for a gateway that is away: the call does not run either way. The request of a function that is
        guarded itself is found only by its id: otherwise it stays, and lets nothing through but this very call.

        Args:
            call: The call.
            why: What was said.
            approval_id: Its request, where that is known.
        """
        with self._as(call, (), bears_name=False):
            guard, action, call_id = self.guard, self.action_of(call), fitting(call.call_id)
            told = _tellable(call)
            try:
                if approval_id is None and told is not None:
                    approval_id = self.look(call).approval_id
                if approval_id is not None:
                    guard.cancel(approval_id)
            except (GatewayUnavailable, GatewayProtocolError) as error:
                logger.warning("the request of a rejected call of %r was not withdrawn: %s", action, error)
            # Without the approval: rejected again, when that is gone, it is the same log entry.
            guard.record(action, "denied", told, call_id=call_id, reason=why)

    async def areject(self, call: ToolCall, why: str, approval_id: str | None = None) -> None:
        """As `reject`."""
        with self._as(call, (), bears_name=False):
            guard, action, call_id = self.guard, self.action_of(call), fitting(call.call_id)
            told = _tellable(call)
            try:
                if approval_id is None and told is not None:
                    approval_id = (await self.alook(call)).approval_id
                if approval_id is not None:
                    await guard.acancel(approval_id)
            except (GatewayUnavailable, GatewayProtocolError) as error:
                logger.warning("the request of a rejected call of %r was not withdrawn: %s", action, error)
            # Without the approval: rejected again, when that is gone, it is the same log entry.
            guard.record(action, "denied", told, call_id=call_id, reason=why)

    def _still(self, call: ToolCall, asked: Decision, newest: Approval) -> ApprovalPending | None:
        if newest.status != "pending":
            return None
        return ApprovalPending(
            action=self.action_of(call),
            agent_id=newest.agent_id or "",
            approval_id=asked.approval_id or "",
            reason=asked.reason,
        )

    def _holding(self, *, waits: bool) -> dict[str, Any]:
        if waits or self._waits:
            return {"on_hold": "wait", "hold_timeout": self._hold_timeout}
        return {"on_hold": "raise"}

    @contextmanager
    def _as(
        self, call: ToolCall, pauses: tuple[type[BaseException], ...], *, bears_name: bool = True
    ) -> Iterator[None]:
        call_id = fitting(call.call_id) if bears_name else None
        run_id = fitting(call.run_id)
        agent_id = None if call.agent is None else self._agents.get(call.agent)
        with ExitStack() as stack:
            if agent_id is not None:
                stack.enter_context(acting_as(agent_id))
            stack.enter_context(calling(call_id, run_id=run_id, pauses=pauses))
            yield

    def _named(self, name: str) -> str | None:
        if self._tool_actions is None:
            return None
        return self._tool_actions(name) if callable(self._tool_actions) else self._tool_actions.get(name)

    def _default(self, call: ToolCall) -> str:
        own_name = call.own_name or call.name
        name = _visible(own_name)
        if call.server is not None:
            if not call.server:
                raise ConfigurationError(
                    f"the server of the tool {call.name!r} has no name here; give it one, or name the tool in "
                    "tool_actions"
                )
            if call.server == "tools":
                raise ConfigurationError(
                    "a server may not be called 'tools'; configure it under another name"
                )
            action = f"{_visible(call.server)}.{name}"
        elif call.function is not None and "." in name.strip("."):
            action = name
        else:
            action = f"tools.{name}"
        with self._lock:
            first = self._defaults.setdefault(action, (call.server, own_name))
        if first != (call.server, own_name):
            raise ConfigurationError(
                f"the tools {first[1]!r} and {own_name!r} would both be the action {action!r}; "
                "name one of them in tool_actions"
            )
        return action


def fitting(name: str | None) -> str | None:
    """A framework's id as the gateway takes it: one that is too long or odd is a digest of itself."""
    if not name or not name.strip():
        return None
    if len(name) <= _LONGEST and name.isprintable():
        return name
    return "sha256:" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


class _FailedError(Exception):
    """What a framework's answer says went wrong: recorded as a failure, and given to the model all the same."""

    def __init__(self, why: str, answer: Any) -> None:
        super().__init__(why)
        self.answer = answer


class _NotYetError(Exception):
    """A call that would have run where it was only looked at."""


def _not_yet(_: dict[str, Any]) -> None:
    raise _NotYetError


async def _anot_yet(_: dict[str, Any]) -> None:
    raise _NotYetError


def _tellable(call: ToolCall) -> Mapping[str, Any] | None:
    """What may be told of a call; of a function that is guarded itself only that one knows."""
    return None if guarded_action(call.function) is not None else call.arguments


def _judged(answer: T, failed: Callable[[T], str | None]) -> T:
    why = failed(answer)
    if why is not None:
        raise _FailedError(why, answer)
    return answer


def _is_time(seconds: object) -> bool:
    real = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    return real and 0 < float(seconds) < math.inf  # type: ignore[arg-type]  # looked at just before


def _visible(name: str) -> str:
    """A name as part of an action identifier; no two names become the same one."""
    found = quote(name, safe=_KEPT)
    if len(found) <= _LONGEST // 2:
        return found
    return f"{found[:40]}~{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"


_LONGEST: Final = 255
# Every visible character but the one that escapes, and the one that marks what was cut.
_KEPT: Final = "!\"#$&'()*+,-./:;<=>?@[\\]^_`{|}"
