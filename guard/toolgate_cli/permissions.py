"""``toolgate permissions``: list, create, change and delete the permissions of an agent.

Reading uses the stored login; every change asks for the password.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

import typer

from toolgate._options import exact_action, is_amount_required
from toolgate.errors import ConfigurationError
from toolgate_cli.agents import AGENTS_PATH, Agent, AgentName, find_agent
from toolgate_cli.client import GatewayClient, Resource, parse_model, print_list
from toolgate_cli.credentials import password_session, stored_session
from toolgate_cli.options import (
    AsJson,
    Environment,
    EnvironmentOption,
    PasswordStdin,
    Yes,
    format_duration,
    parse_amount,
    parse_ttl,
)
from toolgate_cli.output import Column, confirm, fail, print_json, sanitize
from toolgate_cli.renamed import RenamingGroup

_PATH = "/api/permissions"
#: the gateway's limit: maximum seconds until an approval request expires
_COLUMNS = (
    Column("action"),
    Column("max amount", right=True),
    Column("approval"),
    Column("id", no_wrap=True),
)

permissions = typer.Typer(
    name="permissions",
    cls=RenamingGroup,
    help="List, create, change and delete the permissions of agents. Changes ask for your password.",
    no_args_is_help=True,
)

PermissionName = Annotated[
    str,
    typer.Argument(
        metavar="ACTION", help="The action of the permission, such as stripe.refund, or the permission's id."
    ),
]
MaxAmount = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBER", help="The maximum amount per call, such as 250 or 99.50.", show_default=False
    ),
]
AmountRequired = Annotated[
    bool | None,
    typer.Option(
        "--amount-required/--no-amount-required",
        help="Deny calls without an amount; this is the default if there is a maximum.",
        show_default=False,
    ),
]
RequiresApproval = Annotated[
    bool | None,
    typer.Option(
        "--requires-approval/--no-requires-approval",
        help="Require approval for each call.",
        show_default=False,
    ),
]
RequiredApprovals = Annotated[
    int | None,
    typer.Option(min=1, max=10, help="The number of people who must approve each call.", show_default=False),
]
SeparationOfDuties = Annotated[
    bool | None,
    typer.Option(
        "--separation-of-duties/--no-separation-of-duties",
        help="People who created the agent or the permission may not approve.",
        show_default=False,
    ),
]
ApprovalTtl = Annotated[
    str | None,
    typer.Option(
        "--approval-ttl",
        "--ttl",
        metavar="DURATION",
        help="Time until an approval request expires, such as 30m, 1h, 2d.",
        show_default=False,
    ),
]


class Permission(Resource):
    """Permission of an agent for one action, with limits such as a maximum amount, as the gateway's API returns it."""

    action: str
    requires_approval: bool
    max_amount: Decimal | None = None
    amount_required: bool = False
    required_approvals: int = 1
    separation_of_duties: bool = False
    approval_ttl_seconds: int | None = None

    @property
    def amount_text(self) -> str:
        """Return the maximum amount, with "(required)" if calls without one are denied; without a maximum, ""."""
        if self.max_amount is None:
            return ""
        return f"{self.max_amount:f} (required)" if self.amount_required else f"{self.max_amount:f}"

    @property
    def approval_text(self) -> str:
        """Return "no" if calls need no approval, else a text with the number of approvers and the time limit."""
        if not self.requires_approval:
            return "no"
        text = "yes" if self.required_approvals == 1 else f"{self.required_approvals} people"
        if self.separation_of_duties:
            text += ", but not the creators of the agent or permission"
        if self.approval_ttl_seconds is not None:
            text += f", within {format_duration(self.approval_ttl_seconds)}"
        return text


@dataclass(frozen=True, slots=True)
class _Terms:
    """Values of the command-line options that limit a permission; an option that is not given has the value None."""

    max_amount: str | None = None
    amount_required: bool | None = None
    requires_approval: bool | None = None
    required_approvals: int | None = None
    separation_of_duties: bool | None = None
    approval_ttl: str | None = None

    def body(self, *, had_maximum: bool = False, drops_maximum: bool = False) -> dict[str, Any]:
        """Return the fields of the API request that creates or changes a permission.

        Args:
            had_maximum: whether the permission had a maximum amount before the change.
            drops_maximum: whether the change removes the maximum amount.

        Raises:
            typer.Exit: an option is invalid.
        """
        fields = {
            "max_amount": None if self.max_amount is None else parse_amount(self.max_amount, "--max-amount"),
            "amount_required": self._amount_required(had_maximum, drops_maximum),
            "requires_approval": self.requires_approval,
            "required_approvals": self.required_approvals,
            "separation_of_duties": self.separation_of_duties,
            "approval_ttl_seconds": None
            if self.approval_ttl is None
            else parse_ttl("--approval-ttl", self.approval_ttl),
        }
        return {name: value for name, value in fields.items() if value is not None}

    def _amount_required(self, had_maximum: bool, drops_maximum: bool) -> bool | None:
        has_maximum = self.max_amount is not None or (had_maximum and not drops_maximum)
        if self.amount_required and not has_maximum:
            fail("--amount-required needs a maximum; add --max-amount")
        if self.amount_required is None and had_maximum == has_maximum:
            return None
        return is_amount_required(has_maximum=has_maximum, wanted=self.amount_required)


def iter_permissions(
    client: GatewayClient, agent: Agent, environment: str
) -> Iterator[tuple[Permission, dict[str, Any]]]:
    """Yield an agent's permissions, newest first, each with the JSON that the gateway returned."""
    for page in client.pages(f"{AGENTS_PATH}/{agent.id}/permissions", {"environment": environment}):
        for raw in page:
            yield parse_model(Permission, raw, "permission"), raw


def create_permission(
    client: GatewayClient, agent: Agent, environment: str, body: dict[str, Any]
) -> tuple[Permission, Any]:
    """Create a permission; return it as a model, and the JSON that the gateway returned for it."""
    raw = client.post(f"{AGENTS_PATH}/{agent.id}/permissions?environment={environment}", body)
    return parse_model(Permission, raw, "permission"), raw


@permissions.command("list")
def list_(
    agent: AgentName, environment: EnvironmentOption = Environment.PRODUCTION, as_json: AsJson = False
) -> None:
    """List the permissions of an agent, newest first."""
    with stored_session() as client:
        owner = find_agent(client, agent, environment)
        found = list(iter_permissions(client, owner, environment))
    print_list(found, _COLUMNS, _row, empty=f"{owner.label} has no permissions", as_json=as_json)


@permissions.command()
def show(
    agent: AgentName,
    permission: PermissionName,
    environment: EnvironmentOption = Environment.PRODUCTION,
    as_json: AsJson = False,
) -> None:
    """Show one permission of an agent."""
    owner, found, raw = _find(agent, permission, environment)
    _print(owner, found, raw, as_json=as_json)


@permissions.command("grant", hidden=True)
@permissions.command()
def create(
    agent: AgentName,
    action: Annotated[str, typer.Argument(metavar="ACTION", help="The action, such as stripe.refund.")],
    max_amount: MaxAmount = None,
    amount_required: AmountRequired = None,
    requires_approval: RequiresApproval = None,
    required_approvals: RequiredApprovals = None,
    separation_of_duties: SeparationOfDuties = None,
    approval_ttl: ApprovalTtl = None,
    environment: EnvironmentOption = Environment.PRODUCTION,
    as_json: AsJson = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Allow an agent to do an action, from its next call on. Asks for your password."""
    terms = _Terms(
        max_amount, amount_required, requires_approval, required_approvals, separation_of_duties, approval_ttl
    )
    try:
        body = {"action": exact_action(action), **terms.body()}
    except ConfigurationError as error:
        fail(str(error))
    with stored_session() as client:
        owner = find_agent(client, agent, environment)
    purpose = f"let {owner.label} do {sanitize(action)}"
    with password_session(purpose, password_stdin=password_stdin) as client:
        permission, raw = create_permission(client, owner, environment, body)
    _print(owner, permission, raw, as_json=as_json)


@permissions.command("change", hidden=True)
@permissions.command()
def update(
    agent: AgentName,
    permission: PermissionName,
    max_amount: MaxAmount = None,
    no_max_amount: Annotated[
        bool, typer.Option("--no-max-amount", help="Remove the maximum amount.")
    ] = False,
    amount_required: AmountRequired = None,
    requires_approval: RequiresApproval = None,
    required_approvals: RequiredApprovals = None,
    separation_of_duties: SeparationOfDuties = None,
    approval_ttl: ApprovalTtl = None,
    no_approval_ttl: Annotated[
        bool,
        typer.Option(
            "--no-approval-ttl",
            "--no-ttl",
            help="Let approval requests expire after the gateway's default time.",
        ),
    ] = False,
    environment: EnvironmentOption = Environment.PRODUCTION,
    as_json: AsJson = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Change the given limits of a permission; its other limits stay the same. Asks for your password."""
    if max_amount is not None and no_max_amount:
        fail("--max-amount and --no-max-amount exclude each other; use only one of them")
    if approval_ttl is not None and no_approval_ttl:
        fail("--approval-ttl and --no-approval-ttl exclude each other; use only one of them")
    terms = _Terms(
        max_amount, amount_required, requires_approval, required_approvals, separation_of_duties, approval_ttl
    )
    removed = {"max_amount": no_max_amount, "approval_ttl_seconds": no_approval_ttl}
    if terms == _Terms() and not any(removed.values()):
        fail("no change is given; for the options, see: toolgate permissions update --help")
    # This call only validates the options, so that an invalid option is reported before the first request.
    terms.body(had_maximum=not no_max_amount)
    owner, found, _ = _find(agent, permission, environment)
    body: dict[str, Any] = terms.body(had_maximum=found.max_amount is not None, drops_maximum=no_max_amount)
    body |= {name: None for name, is_removed in removed.items() if is_removed}
    purpose = f"change a permission of {owner.label}"
    with password_session(purpose, password_stdin=password_stdin) as client:
        raw = client.put(f"{_PATH}/{found.id}", body)
        changed = parse_model(Permission, raw, "permission")
    _print(owner, changed, raw, as_json=as_json)


@permissions.command("revoke", hidden=True)
@permissions.command()
def delete(
    agent: AgentName,
    permission: PermissionName,
    environment: EnvironmentOption = Environment.PRODUCTION,
    yes: Yes = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Delete a permission; the agent's next check of this action is denied unless a rule allows it. Asks for your password."""
    owner, found, _ = _find(agent, permission, environment)
    action = sanitize(found.action)
    confirm(f"Delete the permission of {owner.label} for {action}?", yes=yes)
    purpose = f"delete the permission of {owner.label} for {action}"
    with password_session(purpose, password_stdin=password_stdin) as client:
        client.delete(f"{_PATH}/{found.id}")
    typer.echo(f"deleted: the permission of {owner.label} for {action}")


def _find(agent: str, wanted: str, environment: Environment) -> tuple[Agent, Permission, dict[str, Any]]:
    """Return the agent that `agent` names, its permission whose action or id is `wanted`, and the permission's JSON."""
    with stored_session() as client:
        owner = find_agent(client, agent, environment)
        everything = list(iter_permissions(client, owner, environment))
    found = [one for one in everything if wanted in {one[0].action, one[0].id}]
    if not found:
        fail(f"{owner.label} has no permission for {wanted!r}; see: toolgate permissions list {owner.id}")
    return owner, *found[0]


def _print(agent: Agent, permission: Permission, raw: Any, *, as_json: bool) -> None:
    if as_json:
        print_json(raw)
        return
    maximum = permission.amount_text
    amount = f"amount at most {maximum}" if maximum else "any amount"
    typer.echo(
        f"{agent.label} may do {sanitize(permission.action)}: {amount}, approval {permission.approval_text}"
    )


def _row(permission: Permission) -> tuple[str, ...]:
    return (
        sanitize(permission.action),
        permission.amount_text,
        permission.approval_text,
        permission.id,
    )
