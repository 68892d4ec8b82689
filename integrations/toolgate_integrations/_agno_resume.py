"""A paused run of Agno: which of its calls still wait, and what was said of them in the framework."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from agno.models.response import ToolExecution
from agno.run.agent import RunOutput
from agno.run.requirement import RunRequirement

from toolgate import ApprovalPending, GatewayUnavailable
from toolgate_integrations._agno_tools import NAMES, schema_of
from toolgate_integrations._arguments import receive_or_keep
from toolgate_integrations._base import Bridge, ToolCall
from toolgate_integrations._during import during

__all__ = ["Waking"]


@dataclass
class Waking:
    """One attempt to go on with a paused run.

    The framework takes what is undecided when a run is gone on with for a no, and tells nobody: so it goes on only
    when every call is decided, and those are decided together.

    Attributes:
        bridge: The agent's.
        agent: The agent's name.
        run: The run.
        names: Names of the calls, by the framework's ids.
    """

    bridge: Bridge
    agent: str | None
    run: RunOutput
    names: dict[str, str] = field(default_factory=dict)

    def settle(self) -> bool:
        """Look at each call that the run is paused for; whether none of them waits any longer."""
        for execution, call in self._calls():
            if self._rejected(execution):
                self.bridge.reject(call, execution.confirmation_note or "", self._approval_id(execution))
                continue
            try:
                self._note(execution, self.bridge.waiting(call))
            except GatewayUnavailable:
                # Its own check says so to the model.
                self._note(execution, None)
        return self._decided()

    async def asettle(self) -> bool:
        """As `settle`."""
        for execution, call in self._calls():
            if self._rejected(execution):
                await self.bridge.areject(
                    call, execution.confirmation_note or "", self._approval_id(execution)
                )
                continue
            try:
                self._note(execution, await self.bridge.awaiting(call))
            except GatewayUnavailable:
                self._note(execution, None)
        return self._decided()

    def named(self) -> AbstractContextManager[None]:
        """While the run is gone on with: its calls bear the names they were looked at by."""
        return during(NAMES, self.names)

    def _calls(self) -> Iterator[tuple[ToolExecution, ToolCall]]:
        # Ids of calls come from the model's provider: some count from 0 again in each turn. Turns cannot be counted:
        # which messages and calls of earlier ones a run has differs when it was stored.
        for each in self._paused():
            requirement = self._requirement(each)
            name = f"{self.run.run_id}:{each.tool_call_id if requirement is None else requirement.id}"
            self.names[each.tool_call_id or ""] = name
            tool = each.tool_name or ""
            call = ToolCall(
                tool,
                receive_or_keep(each.tool_args or {}, schema_of(self.bridge, tool)).values,
                call_id=name,
                run_id=self.run.session_id,
                agent=self.agent,
            )
            yield each, call

    def _paused(self) -> list[ToolExecution]:
        return [each for each in self.run.tools or () if each.requires_confirmation and each.result is None]

    def _requirement(self, execution: ToolExecution) -> RunRequirement | None:
        """The framework's requirement for a call: once a run was stored, it has a copy of the call."""
        for each in reversed(self.run.requirements or []):
            if each.tool_execution is not None and each.tool_execution.tool_call_id == execution.tool_call_id:
                return each
        return None

    def _approval_id(self, execution: ToolExecution) -> str | None:
        requirement = self._requirement(execution)
        copied = None if requirement is None else requirement.tool_execution
        return execution.approval_id or (None if copied is None else copied.approval_id)

    def _rejected(self, execution: ToolExecution) -> bool:
        requirement = self._requirement(execution)
        if requirement is not None and requirement.confirmation is False:
            execution.confirmed = False
            execution.confirmation_note = requirement.confirmation_note
        return execution.confirmed is False

    def _note(self, execution: ToolExecution, pending: ApprovalPending | None) -> None:
        requirement = self._requirement(execution)
        copies = [execution]
        if requirement is not None:
            requirement.confirmation = True if pending is None else None
            copies += [] if requirement.tool_execution is None else [requirement.tool_execution]
        for each in copies:
            each.confirmed = True if pending is None else None
            each.approval_id = None if pending is None else pending.approval_id

    def _decided(self) -> bool:
        others = self.run.active_requirements
        undecided = [each for each in self._paused() if each.confirmed is None]
        if undecided or others:
            for each in self._paused():
                if each.confirmed:
                    # Allowed, and not carried out yet: it is looked at again.
                    self._undecide(each)
            return False
        return True

    def _undecide(self, execution: ToolExecution) -> None:
        requirement = self._requirement(execution)
        execution.confirmed = None
        if requirement is not None:
            requirement.confirmation = None
            if requirement.tool_execution is not None:
                requirement.tool_execution.confirmed = None
