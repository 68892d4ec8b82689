"""``toolgate permissions``: list, create, change and delete the permissions of an agent."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

import typer
from pydantic import BaseModel, ConfigDict

from toolgate._capture.jsontext import read_decimal
from toolgate.action_name import exact_action
from toolgate.errors import ConfigurationError
from toolgate.permitted import is_amount_required
from toolgate_cli.agents import PATH as AGENTS
from toolgate_cli.agents import Agent, AgentName, find_agent, is_id
from toolgate_cli.client import Management, ManagementError, read_as
from toolgate_cli.credentials import own_login, stored_login
from toolgate_cli.durations import read_span, span_text
from toolgate_cli.options import AsJson, Environment, InEnvironment, PasswordStdin, Yes
from toolgate_cli.output import Column, ascii_json, fail, print_table, visible
from toolgate_cli.prompts import confirm


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


permissions = typer.Typer(
    name="permissions",
    help="See what agents may do, and decide it. Reading uses your login; a change asks for your password.",
    no_args_is_help=True,
)


#: what the gateway takes
_LONGEST_TTL = 30 * 86_400

MaxAmount = Annotated[
    str | None, typer.Option(metavar="NUMBER", help="The most that it may be about.", show_default=False)
]
AmountRequired = Annotated[
    bool | None,
    typer.Option(
        "--amount-required/--no-amount-required",
        help="Block calls without an amount; the default with a maximum.",
        show_default=False,
    ),
]
RequiresApproval = Annotated[
    bool | None,
    typer.Option(
        "--requires-approval/--no-requires-approval", help="A person is asked each time.", show_default=False
    ),
]
RequiredApprovals = Annotated[
    int | None, typer.Option(min=1, max=10, help="How many people must approve.", show_default=False)
]
SeparationOfDuties = Annotated[
    bool | None,
    typer.Option(
        "--separation-of-duties/--no-separation-of-duties",
        help="Whoever made the agent or the permission may not approve.",
        show_default=False,
    ),
]
Ttl = Annotated[
    str | None,
    typer.Option(metavar="SPAN", help="How long a request waits, such as 30m, 1h, 2d.", show_default=False),
]


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms that were written; None for those that were not."""

    max_amount: str | None = None
    amount_required: bool | None = None
    requires_approval: bool | None = None
    required_approvals: int | None = None
    separation_of_duties: bool | None = None
    ttl: str | None = None

    def body(self, *, had_maximum: bool = False, drops_maximum: bool = False) -> dict[str, Any]:
        """Return the terms in the form of the API.

        Args:
            had_maximum: Whether the permission has a maximum before the change.
            drops_maximum: Whether the change removes the maximum.

        Raises:
            typer.Exit: A term is invalid; one line on standard error says which.
        """
        said = {
            "max_amount": None if self.max_amount is None else _amount(self.max_amount),
            "amount_required": self._amount_required(had_maximum, drops_maximum),
            "requires_approval": self.requires_approval,
            "required_approvals": self.required_approvals,
            "separation_of_duties": self.separation_of_duties,
            "approval_ttl_seconds": None if self.ttl is None else _seconds(self.ttl),
        }
        return {name: value for name, value in said.items() if value is not None}

    def _amount_required(self, had_maximum: bool, drops_maximum: bool) -> bool | None:
        has_maximum = self.max_amount is not None or (had_maximum and not drops_maximum)
        if self.amount_required and not has_maximum:
            fail("--amount-required needs a maximum; add --max-amount")
        if self.amount_required is None and had_maximum == has_maximum:
            return None
        return is_amount_required(has_maximum=has_maximum, wanted=self.amount_required)


def _amount(text: str) -> Decimal:
    try:
        # What is no JSON number, such as 1_000 or Infinity, is none here either.
        number = read_decimal(text) if set(text) <= set("0123456789.eE+-") else None
    except (ArithmeticError, ValueError):
        number = None
    if number is None or number < 0:
        fail(f"--max-amount: {text[:40]!r} is no amount; write a number from 0, such as 250 or 99.50")
    return number


def _seconds(text: str) -> int:
    try:
        seconds = read_span(text)
    except ValueError as error:
        fail(f"--ttl: {error}")
    if not 1 <= seconds <= _LONGEST_TTL:
        fail("--ttl must be from 1 second to 30 days")
    return seconds


_COLUMNS = (Column("action"), Column("max amount", right=True), Column("approval"), Column("id", whole=True))


@permissions.command("list")
def list_(
    agent: AgentName, environment: InEnvironment = Environment.PRODUCTION, as_json: AsJson = False
) -> None:
    """List what an agent may do, newest first."""
    with stored_login() as management:
        whose = find_agent(management, agent, environment)
        found = list(iter_permissions(management, whose, environment))
    if as_json:
        typer.echo(ascii_json([raw for _, raw in found]))
    elif not found:
        typer.echo(f"{whose.told} may do nothing")
    else:
        print_table(_COLUMNS, (_row(permission) for permission, _ in found))


def _row(permission: Permission) -> tuple[str, ...]:
    return (
        visible(permission.action),
        permission.amount_told,
        permission.approval_told,
        visible(permission.id),
    )


PATH = "/api/permissions"

Granted = Annotated[
    str, typer.Argument(metavar="ACTION", help="The action that it is for, or the permission's id.")
]


@permissions.command("create", hidden=True)
@permissions.command()
def grant(
    agent: AgentName,
    action: Annotated[str, typer.Argument(metavar="ACTION", help="The action, such as stripe.refund.")],
    max_amount: MaxAmount = None,
    amount_required: AmountRequired = None,
    requires_approval: RequiresApproval = None,
    required_approvals: RequiredApprovals = None,
    separation_of_duties: SeparationOfDuties = None,
    ttl: Ttl = None,
    environment: InEnvironment = Environment.PRODUCTION,
    as_json: AsJson = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Let an agent do an action, from its very next call on. It asks for your password."""
    terms = Terms(
        max_amount, amount_required, requires_approval, required_approvals, separation_of_duties, ttl
    )
    body = {"action": _action(action), **terms.body()}
    with stored_login() as management:
        found = find_agent(management, agent, environment)
    purpose = f"let {found.told} do {visible(action)}"
    with own_login(purpose, password_stdin=password_stdin) as management:
        raw = management.post(f"{AGENTS}/{found.id}/permissions?environment={environment}", body)
        permission = read_as(Permission, raw, "permission")
    _tell(found, permission, raw, as_json=as_json)


@permissions.command("update", hidden=True)
@permissions.command()
def change(
    agent: AgentName,
    permission: Granted,
    max_amount: MaxAmount = None,
    no_max_amount: Annotated[
        bool, typer.Option("--no-max-amount", help="It may be about any amount.")
    ] = False,
    amount_required: AmountRequired = None,
    requires_approval: RequiresApproval = None,
    required_approvals: RequiredApprovals = None,
    separation_of_duties: SeparationOfDuties = None,
    ttl: Ttl = None,
    no_ttl: Annotated[
        bool, typer.Option("--no-ttl", help="A request waits as long as the gateway's setting says.")
    ] = False,
    environment: InEnvironment = Environment.PRODUCTION,
    as_json: AsJson = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Change the terms of a permission; what is not written stays. It asks for your password."""
    if max_amount is not None and no_max_amount:
        fail("write either --max-amount or --no-max-amount")
    if ttl is not None and no_ttl:
        fail("write either --ttl or --no-ttl")
    terms = Terms(
        max_amount, amount_required, requires_approval, required_approvals, separation_of_duties, ttl
    )
    lifted = {"max_amount": no_max_amount, "approval_ttl_seconds": no_ttl}
    if terms == Terms() and not any(lifted.values()):
        fail("there is nothing to change; see: toolgate permissions change --help")
    # Invalid terms are reported before the gateway is asked.
    terms.body(had_maximum=not no_max_amount)
    whose, found = _found(agent, permission, environment)
    body: dict[str, Any] = terms.body(had_maximum=found.max_amount is not None, drops_maximum=no_max_amount)
    body |= {name: None for name, is_lifted in lifted.items() if is_lifted}
    purpose = f"change what {whose.told} may do"
    with own_login(purpose, password_stdin=password_stdin) as management:
        raw = management.put(f"{PATH}/{found.id}", body)
        changed = read_as(Permission, raw, "permission")
    _tell(whose, changed, raw, as_json=as_json)


@permissions.command("delete", hidden=True)
@permissions.command()
def revoke(
    agent: AgentName,
    permission: Granted,
    environment: InEnvironment = Environment.PRODUCTION,
    yes: Yes = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Take an action from an agent; its very next check is blocked. It asks for your password."""
    whose, found = _found(agent, permission, environment)
    action = visible(found.action)
    confirm(f"Take {action} from {whose.told}?", yes=yes)
    with own_login(f"take {action} from {whose.told}", password_stdin=password_stdin) as management:
        management.delete(f"{PATH}/{found.id}")
    typer.echo(f"revoked: {whose.told} may no longer do {action}")


def _found(agent: str, permission: str, environment: Environment) -> tuple[Agent, Permission]:
    with stored_login() as management:
        whose = find_agent(management, agent, environment)
        return whose, find_permission(management, whose, permission, environment)


def _action(text: str) -> str:
    try:
        return exact_action(text)
    except ConfigurationError as error:
        fail(str(error))


def _tell(agent: Agent, permission: Permission, raw: Any, *, as_json: bool) -> None:
    if as_json:
        typer.echo(ascii_json(raw))
        return
    most = permission.amount_told
    terms = f"amount at most {most}" if most else "any amount"
    typer.echo(
        f"{agent.told} may do {visible(permission.action)}: {terms}, approval {permission.approval_told}"
    )
