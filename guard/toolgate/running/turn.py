"""One call of a guarded tool, from where it was written to where its tool begins."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any

from toolgate._capture.arguments import CallArguments
from toolgate.calls import Flow
from toolgate.options import Options
from toolgate.performers import AsyncPerformer, Performer
from toolgate.resuming import resumed_by
from toolgate.runtime import Runtime

__all__ = ["Turn"]


class Turn:
    """A call whose arguments are bound and whose caller is known; the arguments count as they are when it begins.

    Args:
        options: The options of its action.
        runtime: The guard's shared parts.
        arguments: What it passes.
        tool: What it calls; given the instance or class already, if it has one.
    """

    def __init__(
        self, options: Options, runtime: Runtime, arguments: CallArguments, tool: Callable[..., Any]
    ) -> None:
        self._options = options
        self._runtime = runtime
        self._arguments = arguments
        self._tool = tool
        # The caller acts, not whoever awaits or iterates.
        self._caller = contextvars.copy_context()
        self._resumes = resumed_by(runtime)

    def flow(self) -> Flow:
        """The road of this call, beginning now."""
        captured = self._arguments.capture()
        return self._caller.run(
            self._options.flow,
            self._runtime,
            captured,
            self._resumes,
            verifies=self._arguments.is_changeable,
        )

    def performer(self) -> Performer:
        """Performs the road on this thread."""
        return Performer(
            self._runtime.client(),
            self._runtime.recorder,
            self._arguments,
            on_hold=self._options.on_hold,
            waiters=self._runtime.waiters,
            hold_timeout=self._options.hold_timeout,
        )

    def async_performer(self) -> AsyncPerformer:
        """Performs the road in this task."""
        return AsyncPerformer(
            self._runtime.async_client(),
            self._runtime.recorder,
            self._arguments,
            on_hold=self._options.on_hold,
            waiters=self._runtime.waiters,
            hold_timeout=self._options.hold_timeout,
        )

    def start(self) -> Any:
        """Call the tool with the caller's arguments, or with a person's edit of them."""
        passed, named = self._arguments.passed()
        return self._tool(*passed, **named)
