"""Checking and logging of the tool calls that a coding agent makes.

One hook process checks a call, and another process logs its outcome. The first one therefore stores the call in a
journal on disk, from which the second one reads it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from platformdirs import user_state_path

from toolgate import ConfigurationError, Guard, acting_as
from toolgate._action import Action
from toolgate._files import Hint, PrivateFileError, read_private, remove_private, write_private
from toolgate._models import AuthorizedCall
from toolgate_integrations._bridge import Bridge
from toolgate_integrations._naming import normalize_id
from toolgate_integrations.coding_agents.agents import After, Before, Ended

__all__ = ["HookAsking", "ToolFailed"]

_HINT: Final = Hint("try again", "remove it")
# Maximum size of a journal file in bytes; the gateway's limit for a call's arguments is far smaller.
_LONGEST: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Running:
    """Journal entry for a call that was allowed to run, and whose outcome has not been logged yet.

    Attributes:
        session: Id of the coding agent's session.
        call_id: The coding agent's id of the call.
        process: Id of the process that runs the tools; when it has ended, the outcome is logged as unknown.
        agent_id: Toolgate agent id of the agent that makes the call.
        action: Action of the call.
        asked: All values that the check contained; hidden values are replaced by digests.
        beside: The values that the check contained in addition to the call's arguments.
        arguments: Digest of the arguments with which the call may run.
        approval_id: Id of the approval; None if the call required none.
        decision_id: Id of the gateway's decision.
    """

    session: str
    call_id: str
    process: int
    agent_id: str
    action: str
    asked: dict[str, Any]
    beside: dict[str, str]
    arguments: str
    approval_id: str | None
    decision_id: str | None


class Journal:
    """Journal of running calls: one file per call in the user's state folder, which only the user can read."""

    def __init__(self) -> None:
        self._folder = user_state_path("toolgate", appauthor=False) / "hooks"

    def write(self, call: Running) -> None:
        """Store a running call.

        Raises:
            ConfigurationError: The journal file cannot be written, so the tool must not run.
        """
        content = json.dumps(asdict(call)).encode()
        try:
            write_private(self._path(call.session, call.call_id), content, hint=_HINT)
        except PrivateFileError as error:
            raise ConfigurationError(
                f"{error}; set the environment variable XDG_STATE_HOME to a folder that belongs to you"
            ) from error

    def take(self, session: str, call_id: str) -> Running | None:
        """Remove a running call from the journal, and return it; None if it is not stored, or its file cannot be read."""
        path = self._path(session, call_id)
        if (call := self._read(path)) is not None:
            remove_private(path)
        return call

    def find_unfinished(self, session: str | None = None) -> Iterator[Running]:
        """Yield the stored calls whose process has ended, and all stored calls of `session`.

        A call is removed from the journal only when the caller requests the next one, so a crash does not lose the
        call.
        """
        for path in sorted(self._folder.glob("*.json")):
            call = self._read(path)
            if call is not None and (call.session == session or not _lives(call.process)):
                yield call
                remove_private(path)

    def _path(self, session: str, call_id: str) -> Path:
        return self._folder / f"{digest_of([session, call_id])}.json"

    def _read(self, path: Path) -> Running | None:
        try:
            found = read_private(path, max_bytes=_LONGEST, hint=_HINT)
            return None if found is None else Running(**json.loads(found))
        except (PrivateFileError, ValueError, TypeError):
            return None


def digest_of(arguments: Any) -> str:
    """Return a digest of arguments or names; unlike a comparison in Python, it distinguishes True from 1."""
    return hashlib.sha256(json.dumps(arguments, sort_keys=True, default=str).encode()).hexdigest()


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


class ToolFailed(Exception):
    """Error for the log entry of a tool that failed; it contains the coding agent's message."""


class HookAsking:
    """Checks and logs the tool calls that a coding agent carries out.

    Args:
        guard: The guard that sends the checks.
        process: Id of the process that runs the tools: when it has ended, a call without a reported outcome is logged
            as unknown. None for the coding agent's process.
        **options: Further options of `Bridge`.
    """

    def __init__(self, guard: Guard, *, process: int | None = None, **options: Any) -> None:
        self._bridge = Bridge(guard, **options)
        self._process = process

    @property
    def guard(self) -> Guard:
        """The guard that sends the checks."""
        return self._bridge.guard

    @cached_property
    def _journal(self) -> Journal:
        return Journal()

    def before(self, event: Before) -> dict[str, Any] | None:
        """Check a call before it runs; return the new arguments if an approver edited them, else None.

        Raises:
            GuardError: The tool must not run.
        """
        with self._about(event) as block:
            permitted = block.authorize()
        return self._let_through(event, permitted)

    async def abefore(self, event: Before) -> dict[str, Any] | None:
        """Asynchronous form of `before`; if the task is cancelled, the approval request is cancelled too."""
        with self._about(event) as block:
            permitted = await block.aauthorize()
        return self._let_through(event, permitted)

    def after(self, event: After | Ended) -> None:
        """Log the outcome of a call; at the end of a session, log an unknown outcome for its running calls.

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
            # Another hook or the user changed the arguments after the check. The log entry contains the arguments
            # with which the tool ran.
            facts["changed_after_asking"] = True
        # The values `beside` are logged as they were at the check, because the command may have changed its working
        # folder since then.
        beside = event.beside if asked is None else asked.beside
        with self._bridge.acting(call):
            self.guard.record(
                self._bridge.action_of(call),
                "success" if event.error is None else "failed",
                {**given, **beside},
                approval_id=None if asked is None else asked.approval_id,
                decision_id=None if asked is None else asked.decision_id,
                call_id=normalize_id(call.call_id),
                error=None if event.error is None else ToolFailed(event.error),
                facts=facts,
            )
        self.sweep()

    def sweep(self, session: str | None = None) -> None:
        """Log an unknown outcome for running calls whose process has ended, and for all running calls of `session`."""
        for call in self._journal.find_unfinished(session):
            with acting_as(call.agent_id, run_id=normalize_id(call.session)):
                self.guard.record(
                    call.action,
                    "pending",
                    call.asked,
                    approval_id=call.approval_id,
                    call_id=normalize_id(call.call_id),
                    facts={"outcome": "unknown"},
                )

    @contextmanager
    def _about(self, event: Before) -> Iterator[Action]:
        # The check contains no call id: after an approval, the model makes the call again with a new id, which the
        # approval would not cover.
        with self._bridge.acting(event.call):
            context = {**event.call.arguments, **event.beside}
            yield self._bridge.block(event.call, context)

    def _let_through(self, event: Before, permitted: AuthorizedCall) -> dict[str, Any] | None:
        call = event.call
        arguments = json.loads(json.dumps(permitted.context, default=_number))
        for name, value in event.beside.items():
            if arguments.pop(name, None) != value:
                raise ConfigurationError(
                    f"the approver changed {name!r}, which is not an argument of {call.name!r}; the call "
                    "cannot run with this change"
                )
        if call.call_id is not None:
            running = Running(
                session=call.run_id or "",
                call_id=call.call_id,
                process=self._process or event.process or os.getppid(),
                agent_id=permitted.agent_id,
                action=self._bridge.action_of(call),
                asked=permitted.asked,
                beside=dict(event.beside),
                arguments=digest_of(arguments),
                approval_id=permitted.approval_id,
                decision_id=permitted.decision_id,
            )
            self._journal.write(running)
        return None if digest_of(arguments) == digest_of(dict(call.arguments)) else arguments


def _number(value: object) -> float | int | str:
    """Convert a value that JSON cannot represent, such as a decimal in an approver's edit, to a number or else to text."""
    try:
        number = float(str(value))
    except ValueError:
        return str(value)
    return int(number) if number.is_integer() else number
