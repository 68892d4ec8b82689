"""Options of a guarded function or action block; they are validated when the decorator or block is created."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from toolgate._identity import identify_call, pausing_exceptions, valid_id
from toolgate.errors import ConfigurationError

if TYPE_CHECKING:
    from toolgate._call import Arguments, OnHold, OnHoldWord
    from toolgate._capture.context import Captured
    from toolgate._capture.rules import Rules
    from toolgate._effects import Flow
    from toolgate._state import GuardState

__all__ = ["Options", "exact_action", "make_options", "valid_action", "valid_answer"]

_MAX_ACTION_LENGTH: Final = 255
_WILDCARDS: Final = "*?"
_WORDS: Final = ("pause", "wait", "raise")
_ANSWERS: Final = {"pause": "raise", "raise": "raise", "wait": "wait", "check": "check"}


@dataclass(frozen=True, slots=True)
class Options:
    """Validated options of one guarded function or action block.

    Attributes:
        action: Action of the call, such as `stripe.refund`.
        rules: Rules that decide which arguments are shown, hidden or omitted, and which values are computed.
        on_hold: Reaction to a required approval: raise `ApprovalPending`, wait, or call a function that decides.
        hold_timeout: Seconds to wait for an approver, or None for no limit.
        agent_id: Id of the agent that these options set, or None.
        fail_open: True if a tool may run when the gateway cannot be reached.
        at_call: True for an action block, whose `agent_id` takes precedence over `acting_as`. False for a decorated
            function, for which `acting_as` takes precedence over `agent_id`.
        tool: Name of the decorated function; None for an action block.
    """

    action: str
    rules: Rules
    on_hold: OnHold
    hold_timeout: float | None
    agent_id: str | None
    fail_open: bool = False
    at_call: bool = False
    tool: str | None = None

    def begin(
        self,
        state: GuardState,
        arguments: Arguments,
        captured: Captured,
        resumes: str | None = None,
        *,
        runs_elsewhere: bool = False,
        verifies: bool = False,
    ) -> Flow:
        """Return the flow of a call that begins now: the generator that checks and logs the call.

        Args:
            state: State of the guard.
            arguments: The arguments of the call.
            captured: The redacted JSON copy of the arguments.
            resumes: Id of the approval request that the call continues; None for a new call.
            runs_elsewhere: True if another process runs the tool.
            verifies: True if the arguments must be compared with `captured` again before the tool runs.

        Raises:
            ConfigurationError: If no agent is set.
            OutboxFull: If the outbox cannot store the call's log entries.
        """
        from toolgate._call import Call
        from toolgate._flow import authorized_call, guarded_call
        from toolgate._process_state import PendingApproval, denied_actions_at
        from toolgate._resume import take_authorization
        from toolgate._telemetry import observe

        explicit, default = (self.agent_id, None) if self.at_call else (None, self.agent_id)
        who = identify_call(explicit, default, state.settings.agent_id)
        if resumes is None and take_authorization(state, self.action, who.agent_id, captured.context):
            return authorized_call(arguments if verifies else None)
        if not self.fail_open:
            # A full outbox raises an error here, before the check. Otherwise the check could consume an approval for a
            # call that cannot run.
            state.recorder.ready(self.action)
        call = Call(
            self.action,
            who,
            arguments,
            captured,
            PendingApproval(state.pending_approvals),
            state.clock,
            self.on_hold,
            self.hold_timeout,
            resumes,
            fail_open=self.fail_open,
            denied_actions=denied_actions_at(state.settings.url) if self.fail_open else None,
            pauses=pausing_exceptions(),
            verifies=verifies,
            runs_elsewhere=runs_elsewhere,
        )
        return observe(guarded_call(call), call, self.tool)


def make_options(
    action: str,
    rules: Rules,
    *,
    on_hold: OnHold = "raise",
    hold_timeout: float | None = None,
    agent_id: str | None = None,
    fail_open: bool = False,
    at_call: bool = False,
) -> Options:
    """Validate the options and return them.

    Raises:
        ConfigurationError: An option is wrong; the message names it, its value and the fix.
    """
    if not isinstance(fail_open, bool):
        raise ConfigurationError(f"fail_open is {fail_open!r}; use True or False")
    return Options(
        action=valid_action(action),
        rules=rules,
        on_hold=_valid_on_hold(on_hold),
        hold_timeout=_valid_hold_timeout(hold_timeout, on_hold),
        agent_id=None if agent_id is None else valid_id(agent_id, "agent_id"),
        fail_open=fail_open,
        at_call=at_call,
    )


def valid_action(action: object) -> str:
    """Return `action` if it is valid: 1 to 255 visible ASCII characters.

    Raises:
        ConfigurationError: The action is not valid; the message contains it and the fix.
    """
    if not isinstance(action, str):
        raise ConfigurationError(
            f"the action is {action!r} and not a name; write the action in parentheses: @guarded('service.operation')"
        )
    if not 0 < len(action) <= _MAX_ACTION_LENGTH or not all("!" <= char <= "~" for char in action):
        raise ConfigurationError(
            f"invalid action {action[:40]!r}: use 1 to {_MAX_ACTION_LENGTH} visible ASCII characters, "
            "like 'service.operation'"
        )
    return action


def exact_action(action: object) -> str:
    """Return `action` if a permission can contain it: it is valid and has no wildcards.

    Raises:
        ConfigurationError: The action is not valid or has a wildcard; the message contains it and the fix.
    """
    name = valid_action(action)
    found = next((char for char in name if char in _WILDCARDS), None)
    if found is not None:
        raise ConfigurationError(
            f"action {name[:40]!r} contains the wildcard {found!r}, and permissions match actions exactly; "
            "create one permission for each action"
        )
    return name


def valid_answer(on_hold: OnHold, answer: object) -> OnHoldWord:
    """Return `raise`, `wait` or `check` for the value that an `on_hold` function returned.

    Raises:
        ConfigurationError: The value is not one of those that the function may return.
    """
    if answer is None:
        return "raise"
    # Only a `str` is accepted, and it is converted to a plain `str`, because another class may define `==` so that its
    # instances equal any word.
    if isinstance(answer, str) and (word := _ANSWERS.get(str.__str__(answer))):
        return cast("OnHoldWord", word)
    raise ConfigurationError(
        f"on_hold {on_hold!r} returned {_described(answer)}; return 'pause', 'wait', 'check' or None. "
        "No return value lets the tool run: only the gateway does"
    )


def _valid_on_hold(on_hold: object) -> OnHold:
    if isinstance(on_hold, str) and on_hold in _WORDS:
        return cast("OnHold", on_hold)
    if callable(on_hold) and not isinstance(on_hold, type):
        return cast("OnHold", on_hold)
    raise ConfigurationError(
        f"on_hold is {on_hold!r}; use 'pause', 'wait', 'raise' or a function of the ApprovalPending"
    )


def _valid_hold_timeout(seconds: object, on_hold: OnHold) -> float | None:
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
        raise ConfigurationError(
            f"hold_timeout is {seconds!r}; use seconds above 0, or None to wait without limit"
        )
    if isinstance(on_hold, str) and on_hold != "wait":
        raise ConfigurationError(f"hold_timeout is {seconds!r} but nothing waits; add on_hold='wait'")
    return float(seconds)


def _described(answer: object) -> str:
    try:
        from toolgate._capture.facts import clip

        return clip(repr(answer)[:200])
    except Exception:  # noqa: BLE001 - the `__repr__` of an application's object may raise anything
        return f"an object of {type(answer).__name__!r}"
