"""``toolgate permissions grant``, ``change`` and ``revoke``: each asks for the password."""

from typing import Annotated, Any

import typer

from toolgate.action_name import exact_action
from toolgate.errors import ConfigurationError
from toolgate_cli.account import PasswordStdin
from toolgate_cli.agents.changing import Yes
from toolgate_cli.agents.finding import PATH as AGENTS
from toolgate_cli.agents.finding import Agent, AgentName, find_agent
from toolgate_cli.answers import read_as
from toolgate_cli.approvals.options import AsJson, Environment, InEnvironment
from toolgate_cli.approvals.pages import ascii_json
from toolgate_cli.ask import confirm
from toolgate_cli.conversation import own_login, stored_login
from toolgate_cli.output import fail
from toolgate_cli.permissions.finding import Permission, find_permission
from toolgate_cli.permissions.terms import (
    AmountRequired,
    MaxAmount,
    RequiredApprovals,
    RequiresApproval,
    SeparationOfDuties,
    Terms,
    Ttl,
)
from toolgate_cli.visible import visible

PATH = "/api/permissions"

Granted = Annotated[
    str, typer.Argument(metavar="ACTION", help="The action that it is for, or the permission's id.")
]


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
