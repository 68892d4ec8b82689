"""Going on with a paused run whose calls a plugin carries out itself, by the tools that the run had."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from toolgate import ConfigurationError
from toolgate_integrations._base import ToolCall
from toolgate_integrations._called import Called, CallsOfRun
from toolgate_integrations._gate import Gate
from toolgate_integrations._paused import Paused
from toolgate_integrations._rejecting import noes_of
from toolgate_integrations._setup_errors import setup_error_in
from toolgate_integrations._telling import areject, reject

__all__ = ["GuardedTool", "Resuming"]


class GuardedTool(Protocol):
    """A plugin's tool: it asks by itself, and finds the call it is carried out for by its input."""

    @property
    def name(self) -> str:
        """The tool's name."""

    @property
    def gate(self) -> Gate:
        """What its calls go through."""

    def asked(self, called: Called) -> ToolCall:
        """A call, as the gateway heard of it."""

    def call(self, input: Any) -> Any:  # noqa: A002 - so the frameworks call it
        """Ask, and run; an asynchronous tool returns what is to be awaited."""


class Resuming(ABC):
    """The calls that a run was paused for: those that are rejected now, and those that are asked about again.

    Args:
        paused: The run.
        calls: Its calls; none is held yet.
        tools: The guarded tools.
        rejected: Why calls are not to run, by their ids.

    Raises:
        ConfigurationError: A tool is missing, or a rejected call does not wait.
    """

    def __init__(
        self,
        paused: Paused,
        calls: CallsOfRun,
        tools: Iterable[GuardedTool],
        rejected: Mapping[str, str] | None,
    ) -> None:
        self.paused, self.calls = paused, calls
        self._noes = noes_of(rejected, [each.call_id for each in paused.held])
        self._tools = {each.name: each for each in tools}
        if missing := [each.name for each in paused.held if each.name not in self._tools]:
            raise ConfigurationError(
                f"a call of the tool {missing[0]!r} waits, and no guarded tool is called so; pass the guarded "
                "tools, of the kind of the run"
            )
        # Inputs of their own: by these calls are found, and the same state may be gone on with twice at once.
        self._held = [
            (Called(each.name, dict(each.input), each.call_id, calls), each.approval_id)
            for each in paused.held
        ]
        calls.made = lambda: [called for called, _ in self._held]

    def carry_out(self) -> None:
        """Take the rejections to the gateway, and ask about the other calls; those that may run then do."""
        for tool, no in self._rejected():
            reject(tool.gate.bridge, *no)
        for called in self._allowed():
            with self._telling(called):
                self.tell(called, self._tools[called.name].call(called.input))

    async def acarry_out(self) -> None:
        """As `carry_out`, by asynchronous tools."""
        for tool, no in self._rejected():
            await areject(tool.gate.bridge, *no)
        for called in self._allowed():
            with self._telling(called):
                self.tell(called, await self._tools[called.name].call(called.input))

    @abstractmethod
    def tell(self, called: Called, answer: Any, *, is_error: bool = False) -> None:
        """Keep what the model is to read of a call that is over.

        Args:
            called: The call.
            answer: The tool's answer, or why there is none.
            is_error: Whether there is none.
        """

    @abstractmethod
    def tell_error(self, called: Called, error: Exception) -> None:
        """As `tell`, of a call that raised."""

    def _rejected(self) -> Iterator[tuple[GuardedTool, tuple[ToolCall, str, str]]]:
        for called, approval_id in self._held:
            if (why := self._noes.get(called.call_id or "")) is not None:
                self.tell(called, why, is_error=True)
                tool = self._tools[called.name]
                yield tool, (tool.asked(called), why, approval_id)

    def _allowed(self) -> list[Called]:
        return [called for called, _ in self._held if called.call_id not in self._noes]

    @contextmanager
    def _telling(self, called: Called) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, the model reads of it, and the others run
            if (setup_error := setup_error_in(error)) is not None:
                raise setup_error from None
            # Nothing is told of a call that waits.
            if called.call_id not in self.calls.held:
                self.tell_error(called, error)
