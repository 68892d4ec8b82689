"""What the calls of an agent's tools go through, as the user of a plugin sets it up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from toolgate import ApprovalPending, Guard, GuardError
from toolgate_integrations._arguments import ArgumentSchema, receive_or_keep
from toolgate_integrations._base import Bridge, ToolActions, ToolCall, text_or_none, valid_on_hold

__all__ = ["Gate"]


class Gate:
    """A guard with what its user says of held calls.

    Args:
        guard: The guard that asks; None is the environment's.
        on_hold: What a held call does: `wait`, `tell` or the plugin's word for pausing.
        pauses: That word.
        tool_actions: Actions of tools by their names, in place of the default (decisions §13).
        agents: Agent ids by the names of the framework's agents; others act as the guard's own agent.
        agent: The name of the agent whose tools these are, where the framework has none.

    Raises:
        ConfigurationError: An argument is wrong.
    """

    def __init__(
        self,
        guard: Guard | None,
        *,
        on_hold: str,
        pauses: str,
        tool_actions: ToolActions | None = None,
        agents: Mapping[str, str] | None = None,
        agent: str | None = None,
    ) -> None:
        valid_on_hold(on_hold, pauses)
        self.bridge = Bridge(guard, tool_actions=tool_actions, agents=agents, on_hold=on_hold)
        self.agent = text_or_none(agent, "agent")
        self.tells = on_hold == "tell"
        self._pauses = on_hold == pauses

    def call(self, name: str, arguments: Mapping[str, Any], call_id: str | None, **more: Any) -> ToolCall:
        """A call, as the gateway is to hear of it.

        Args:
            name: The tool's name.
            arguments: What the model gave it, by name.
            call_id: The framework's name of this call.
            **more: What else a `ToolCall` has; the agent is this gate's, unless it is named. With a `schema` the
                arguments are those that the tool's function receives.
        """
        # Told that it waits, a model calls again by another id: an approval of this one would be of no use to it.
        more.setdefault("agent", self.agent)
        schema: ArgumentSchema | None = more.pop("schema", None)
        if schema is not None:
            more["received"] = received = receive_or_keep(arguments, schema)
            arguments = received.values
        return ToolCall(name, arguments, None if self.tells else call_id, **more)

    def pauses_for(self, error: GuardError | None) -> TypeGuard[ApprovalPending]:
        """Whether the run is to pause for what a call raised in place of running."""
        return self._pauses and isinstance(error, ApprovalPending)
