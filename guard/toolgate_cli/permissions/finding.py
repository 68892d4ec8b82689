"""Permissions, as the gateway tells of them."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, ConfigDict

from toolgate_cli.agents.finding import PATH as AGENTS
from toolgate_cli.agents.finding import Agent, is_id
from toolgate_cli.answers import ManagementError, read_as
from toolgate_cli.approvals.spans import span_text
from toolgate_cli.management import Management
from toolgate_cli.output import fail


class Permission(BaseModel):
    """That an agent may do an action, and within which limits."""

    model_config = ConfigDict(frozen=True)

    id: str
    action: str
    requires_approval: bool
    max_amount: Decimal | None = None
    amount_required: bool = False
    required_approvals: int = 1
    separation_of_duties: bool = False
    approval_ttl_seconds: int | None = None

    @property
    def amount_told(self) -> str:
        """The maximum, and whether a call must send an amount; empty without a maximum."""
        if self.max_amount is None:
            return ""
        return f"{self.max_amount:f} (required)" if self.amount_required else f"{self.max_amount:f}"

    @property
    def approval_told(self) -> str:
        """Who is asked before, and how."""
        if not self.requires_approval:
            return "no"
        told = "yes" if self.required_approvals == 1 else f"{self.required_approvals} people"
        if self.separation_of_duties:
            told += ", not by whoever made it"
        if self.approval_ttl_seconds is not None:
            told += f", within {span_text(self.approval_ttl_seconds)}"
        return told


def iter_permissions(
    management: Management, agent: Agent, environment: str
) -> Iterator[tuple[Permission, dict[str, Any]]]:
    """Yield an agent's permissions and what the gateway says of them, newest first.

    Raises:
        ManagementError: the gateway refused, did not answer, or answered with something else than permissions.
    """
    for page in management.pages(f"{AGENTS}/{agent.id}/permissions", {"environment": environment}):
        for raw in page:
            yield read_as(Permission, raw, "permission"), raw


def find_permission(management: Management, agent: Agent, wanted: str, environment: str) -> Permission:
    """Return an agent's permission by its action or its id.

    Raises:
        ManagementError: the gateway refused or did not answer.
        typer.Exit: there is none; one line says so.
    """
    found = [
        permission
        for permission, _ in iter_permissions(management, agent, environment)
        if wanted in {permission.action, permission.id}
    ]
    if not found:
        fail(f"{agent.told} has no permission for {wanted!r}; see: toolgate permissions list {agent.id}")
    if not is_id(found[0].id):
        raise ManagementError("the gateway answered with something that is no permission: its 'id' is wrong")
    return found[0]
