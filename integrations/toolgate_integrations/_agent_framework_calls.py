"""One call of a tool of Microsoft Agent Framework: its name, its arguments, and what is behind the guard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from agent_framework import (
    Content,
    FunctionInvocationContext,
    MiddlewareTermination,
    UserInputRequiredException,
)
from pydantic_core import to_jsonable_python

from toolgate import ApprovalPending
from toolgate_integrations._agent_framework_runs import Run, running

__all__ = ["PAUSES", "AskedBehindError", "Behind", "arguments_of", "kept", "request_id"]


class AskedBehindError(Exception):
    """Something behind the guard asks for approval in the framework: the tool has not run, and comes again."""


#: what a call stops by only to be made again
PAUSES = (AskedBehindError, ApprovalPending, UserInputRequiredException)


class Behind:
    """Runs what is behind the guard with the arguments that were approved.

    Args:
        context: The framework's context of the call.
        run: The run it is part of, if that is known.
        arguments: What the gateway is asked about.
        call_next: Runs it.

    Attributes:
        ended: By what it ended the run, if it did.
    """

    def __init__(
        self,
        context: FunctionInvocationContext,
        run: Run | None,
        arguments: Mapping[str, Any],
        call_next: Callable[[], Awaitable[None]],
    ) -> None:
        self._context, self._run, self._arguments, self._call_next = context, run, arguments, call_next
        self.ended: MiddlewareTermination | None = None

    async def __call__(self, approved: dict[str, Any]) -> None:
        """Run it.

        Raises:
            AskedBehindError: It asked for approval instead.
        """
        context = self._context
        if any(value is not self._arguments.get(name) for name, value in approved.items()):
            # The framework would ask once more for what was changed after its own request.
            context.metadata.pop("_approved_function_arguments", None)
            context.arguments = approved
        try:
            with running(self._run):
                await self._call_next()
        except MiddlewareTermination as termination:
            # It ends the run, and is no failure of the tool.
            self.ended = termination
        if isinstance(context.result, Content) and context.result.type == "function_approval_request":
            raise AskedBehindError


def request_id(context: FunctionInvocationContext) -> str:
    """The framework's name of this one call; the provider's may come again in another turn."""
    found = context.metadata.get("function_call_occurrence_id") or context.metadata["call_id"]
    return str(found)


def arguments_of(context: FunctionInvocationContext) -> dict[str, Any]:
    """The arguments as the tool would be given them; as the model wrote them, if they do not fit."""
    given = context.arguments
    return dict(given) if isinstance(given, Mapping) else given.model_dump(exclude_unset=True)


def kept(arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Arguments as a session keeps them; None for those whose call cannot pause.

    These are what no session can keep, and what the framework takes no approval for: gone on with, it would end the run.
    """
    try:
        found: dict[str, Any] = to_jsonable_python(dict(arguments))
        return found if _takes_approval(dict(arguments)) else None
    except Exception:  # noqa: BLE001 - a value of any class may raise anything while it is written down
        return None


def _takes_approval(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_takes_approval(each) for item in value.items() for each in item)
    if isinstance(value, list | tuple | set | frozenset):
        return all(_takes_approval(each) for each in value)
    return value is None or isinstance(value, str | bytes | int | float) or type(value) in _IMMUTABLE


# Besides JSON's own, those that the framework knows to stay what they are: of an Enum or a Path it does not.
_IMMUTABLE: Final = frozenset({date, datetime, time, timedelta, Decimal, UUID})
