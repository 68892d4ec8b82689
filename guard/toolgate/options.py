"""What a decoration or an action block may say, checked where it is said."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolgate.action_name import valid_action
from toolgate.errors import ConfigurationError
from toolgate.holding import valid_on_hold
from toolgate.identity import identify, valid_id

if TYPE_CHECKING:
    from toolgate._capture.context import Captured
    from toolgate._capture.rules import Rules
    from toolgate.calls import Flow, OnHold
    from toolgate.runtime import Runtime

__all__ = ["Options", "make_options"]


@dataclass(frozen=True, slots=True)
class Options:
    """The checked options of one guarded action.

    Attributes:
        action: The action identifier.
        rules: What of the arguments is shown.
        on_hold: Raise or wait when the action is held, or who is asked which.
        hold_timeout: Seconds to wait, or None for as long as it takes.
        agent_id: The agent named here.
        fail_open: Whether a call may run where no gateway answers.
        at_call: Whether it is named at the very call, where it wins over `acting_as`.
        tool: The name of the function; None for a block.
    """

    action: str
    rules: Rules
    on_hold: OnHold
    hold_timeout: float | None
    agent_id: str | None
    fail_open: bool = False
    at_call: bool = False
    tool: str | None = None

    def flow(
        self,
        runtime: Runtime,
        captured: Captured,
        resumes: str | None = None,
        *,
        elsewhere: bool = False,
        verifies: bool = False,
    ) -> Flow:
        """The road of one call with the captured arguments, beginning with the approval it `resumes`.

        Its tool is run by this process, or `elsewhere`; with `verifies` the arguments are compared before.

        Raises:
            ConfigurationError: If nothing names an agent.
            OutboxFull: If the call could not be recorded.
        """
        from toolgate.calls import Call
        from toolgate.failing import refusals_at
        from toolgate.flow import guarded_call, proved_call
        from toolgate.naming import named, pauses_now
        from toolgate.observing import observed
        from toolgate.proof import take_proof

        explicit, default = (self.agent_id, None) if self.at_call else (None, self.agent_id)
        who = named(identify(explicit, default, runtime.settings.agent_id))
        if resumes is None and take_proof(runtime, self.action, who.agent_id, captured.context):
            return proved_call(verifies=verifies)
        if not self.fail_open:
            # Before the gateway is asked: an approval would be used up for nothing.
            runtime.recorder.ready(self.action)
        refusals = refusals_at(runtime.settings.url) if self.fail_open else None
        call = Call(
            self.action,
            who,
            captured,
            self.on_hold,
            resumes,
            fail_open=self.fail_open,
            refusals=refusals,
            pauses=pauses_now(),
            elsewhere=elsewhere,
            verifies=verifies,
        )
        return observed(guarded_call(call), call, self.tool)


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
    """Check the options.

    Raises:
        ConfigurationError: Naming what is wrong and the cure.
    """
    return Options(
        action=valid_action(action),
        rules=rules,
        on_hold=valid_on_hold(on_hold),
        hold_timeout=_hold_timeout(hold_timeout, on_hold),
        agent_id=None if agent_id is None else valid_id(agent_id, "agent_id"),
        fail_open=_fail_open(fail_open),
        at_call=at_call,
    )


def _fail_open(fail_open: object) -> bool:
    if fail_open is False:
        return False
    from toolgate.failing import valid_fail_open

    return valid_fail_open(fail_open)


def _hold_timeout(seconds: object, on_hold: OnHold) -> float | None:
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
        raise ConfigurationError(
            f"hold_timeout is {seconds!r}; use seconds above 0, or None to wait without limit"
        )
    if isinstance(on_hold, str) and on_hold != "wait":
        raise ConfigurationError(f"hold_timeout is {seconds!r} but nothing waits; add on_hold='wait'")
    return float(seconds)
