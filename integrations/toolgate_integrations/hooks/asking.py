"""Asking about a call in one process, and recording it in another."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from toolgate import ConfigurationError, Guard, acting_as
from toolgate._action import Action
from toolgate._models import AuthorizedCall
from toolgate_integrations._asking import Asking
from toolgate_integrations._naming import fitting
from toolgate_integrations.hooks.events import After, Before, Ended
from toolgate_integrations.hooks.journal import Journal, Running, digest_of

__all__ = ["HookAsking", "ToolFailed"]


class ToolFailed(Exception):
    """The agent told that its tool went wrong."""


class HookAsking(Asking):
    """Asks about calls that another program carries out.

    Args:
        guard: The guard that asks.
        process: By whose end calls end that nothing more is heard of; None is the agent's.
        **given: What else an `Asking` is given.
    """

    def __init__(self, guard: Guard, *, process: int | None = None, **given: Any) -> None:
        super().__init__(guard, **given)
        self._process = process

    @cached_property
    def _journal(self) -> Journal:
        return Journal()

    def before(self, event: Before) -> dict[str, Any] | None:
        """Ask about a call; returns the arguments it may run with where an approver changed them.

        Raises:
            GuardError: The tool must not run.
        """
        with self._about(event) as block:
            permitted = block.authorize()
        return self._let_through(event, permitted)

    async def abefore(self, event: Before) -> dict[str, Any] | None:
        """As `before`; cancelled, it withdraws what waits for a person."""
        with self._about(event) as block:
            permitted = await block.aauthorize()
        return self._let_through(event, permitted)

    def after(self, event: After | Ended) -> None:
        """Record what became of a call, or that nothing is known of those of a session that is over.

        Raises:
            ConfigurationError: A setting is wrong.
        """
        if isinstance(event, Ended):
            self.sweep(event.session)
            return
        call, given = event.call, dict(event.call.arguments)
        asked = None if call.call_id is None else self._journal.take(call.run_id or "", call.call_id)
        facts: dict[str, Any] = {} if event.duration_ms is None else {"duration_ms": event.duration_ms}
        if asked is None:
            facts["asked_about"] = "not known"
        elif asked.arguments != digest_of(given):
            # Another hook, or the user: the entry tells what ran.
            facts["changed_after_asking"] = True
        # A command may have changed the folder; what was asked about counts.
        beside = event.beside if asked is None else asked.beside
        with self._as(call, (), bears_name=False):
            self.guard.record(
                self.action_of(call),
                "success" if event.error is None else "failed",
                {**given, **beside},
                approval_id=None if asked is None else asked.approval_id,
                decision_id=None if asked is None else asked.decision_id,
                call_id=fitting(call.call_id),
                error=None if event.error is None else ToolFailed(event.error),
                facts=facts,
            )
        self.sweep()

    def sweep(self, session: str | None = None) -> None:
        """Record the calls of agents that were gone, and of a session that is over, before they told what became of them."""
        for call in self._journal.left(session):
            with acting_as(call.agent_id, run_id=fitting(call.session)):
                self.guard.record(
                    call.action,
                    "pending",
                    call.asked,
                    approval_id=call.approval_id,
                    call_id=fitting(call.call_id),
                    facts={"outcome": "unknown"},
                )

    @contextmanager
    def _about(self, event: Before) -> Iterator[Action]:
        # Without its name: the model makes the call again under another, once it is approved.
        with self._as(event.call, (), bears_name=False):
            context = {**event.call.arguments, **event.beside}
            holding = self._holding(waits=False)
            yield self.guard.action(self.action_of(event.call), context, **holding, edits=True)

    def _let_through(self, event: Before, permitted: AuthorizedCall) -> dict[str, Any] | None:
        call = event.call
        arguments = json.loads(json.dumps(permitted.context, default=_number))
        for name, value in event.beside.items():
            if arguments.pop(name, None) != value:
                raise ConfigurationError(
                    f"the approver changed {name!r}, which is no argument of {call.name!r}; the call cannot be "
                    "carried out like that"
                )
        if call.call_id is not None:
            running = Running(
                session=call.run_id or "",
                call_id=call.call_id,
                process=self._process or event.process or os.getppid(),
                agent_id=permitted.agent_id,
                action=self.action_of(call),
                asked=permitted.asked,
                beside=dict(event.beside),
                arguments=digest_of(arguments),
                approval_id=permitted.approval_id,
                decision_id=permitted.decision_id,
            )
            self._journal.write(running)
        return None if digest_of(arguments) == digest_of(dict(call.arguments)) else arguments


def _number(value: object) -> float | int | str:
    """What an approver wrote, as JSON; numbers come with their digits."""
    try:
        number = float(str(value))
    except ValueError:
        return str(value)
    return int(number) if number.is_integer() else number
