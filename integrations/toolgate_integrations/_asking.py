"""Who asks about a call, for which agent, and under which name; and what the gateway would answer."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, Final

from toolgate import (
    ConfigurationError,
    Decision,
    GatewayProtocolError,
    Guard,
    acting_as,
    default_guard,
    guarded_action,
    is_guarded,
    tool_call,
)
from toolgate._callables import hides_or_derives
from toolgate._telemetry import report_setup_error
from toolgate_integrations._arguments import ReceivedCalls
from toolgate_integrations._held import HeldCalls
from toolgate_integrations._naming import ToolActions, ToolCall, ToolNames, fitting
from toolgate_integrations._setup_errors import SETUP_ERRORS

__all__ = ["Asking"]

logger = logging.getLogger("toolgate")


class Asking:
    """As whom and under which names calls are asked about.

    Args:
        guard: The guard that asks; None is the environment's.
        tool_actions: Actions of tools by their names, in place of the default (decisions §13).
        agents: Agent ids by the names of the framework's agents; others act as the guard's own agent.
        on_hold: `wait` waits for the person; anything else raises `ApprovalPending`.
        hold_timeout: Seconds to wait; None waits as long as it takes.

    Attributes:
        on_hold: As it was given.

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
        if agents is not None and not isinstance(agents, Mapping):
            raise ConfigurationError(f"agents is {agents!r}; pass a mapping of agent names to agent ids")
        if hold_timeout is not None and not _is_time(hold_timeout):
            raise ConfigurationError(
                f"hold_timeout is {hold_timeout!r}; use seconds above 0, or None to wait without limit"
            )
        self._guard = guard
        self._names = ToolNames(tool_actions)
        self._held = HeldCalls()
        #: validated arguments of calls
        self.received = ReceivedCalls()
        self._agents = dict(agents or {})
        self.on_hold = on_hold
        self._hold_timeout = hold_timeout
        self._reported: set[str] = set()

    @property
    def guard(self) -> Guard:
        """The guard that asks; made from the environment when first needed."""
        return default_guard() if self._guard is None else self._guard

    def action_of(self, call: ToolCall) -> str:
        """The action of a call: the function's own, the one named for the tool, or the default.

        Raises:
            ConfigurationError: Two tools have the same default action, the server has a name it may not have, or the
                function wraps a guarded one whose arguments are asked about in another way.
        """
        if not is_guarded(call.function) and hides_or_derives(call.function):
            # Asked about by its arguments, it would show what is hidden there, and be compared without its amount.
            raise ConfigurationError(
                f"the tool {call.name!r} wraps a guarded function that hides or derives arguments, and a wrapper is asked "
                "about by itself; put @guarded around the wrapper, or give the tool the guarded function"
            )
        return self._names.action_of(call)

    def verify_tools(self, tools: Iterable[str], *, is_complete: bool = True) -> None:
        """Compare the keys of `tool_actions` with the names of the agent's tools.

        Args:
            tools: The names.
            is_complete: Whether there are no others.

        Raises:
            ConfigurationError: A key is misspelt.
        """
        self._names.verify(tools, is_complete=is_complete)

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

    def within(self, call: ToolCall) -> AbstractContextManager[None]:
        """What is guarded inside acts as the agent of a call, in its run, without its name."""
        return self._as(call, (), bears_name=False)

    def bearing(
        self, call: ToolCall, pauses: tuple[type[BaseException], ...]
    ) -> AbstractContextManager[None]:
        """The first guarded call inside is this one: for functions that ask by themselves."""
        return self._as(call, pauses)

    @staticmethod
    def _proof(call: ToolCall, act: Any) -> AbstractContextManager[None]:
        """Let the guarded function that a call's function wraps run by the decision about the call."""
        wraps = guarded_action(call.function) is not None and not is_guarded(call.function)
        return act.proof() if wraps else nullcontext()

    def _holding(self, *, waits: bool) -> dict[str, Any]:
        if waits or self.on_hold == "wait":
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
            stack.enter_context(tool_call(call_id, run_id=run_id, pauses=pauses))
            try:
                yield
            except SETUP_ERRORS as error:
                self.report(error)
                raise

    def report(self, error: ConfigurationError | GatewayProtocolError) -> None:
        """Log a setup error, each once, and pass it to the test plugin."""
        report_setup_error(error)
        text = str(error)
        if text not in self._reported and len(self._reported) < _MOST_REPORTED:
            self._reported.add(text)
            logger.error("tool calls are not carried out: %s", text)


# A message may contain details of one response: the set of those that were logged stays small.
_MOST_REPORTED: Final = 100


def _is_time(seconds: object) -> bool:
    real = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    return real and 0 < float(seconds) < math.inf  # type: ignore[arg-type]  # looked at just before
