"""``toolgate budgets``: list, show, create, change and delete the budgets of an environment.

Reading uses the stored login; every change asks for the password.
"""

from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Final

import typer
from pydantic import BaseModel

from toolgate_cli.client import (
    GatewayClient,
    Resource,
    match_id,
    parse_model,
    pick_one,
    print_list,
    print_page,
)
from toolgate_cli.credentials import password_session, stored_session
from toolgate_cli.options import AsJson, Environment, EnvironmentOption, PasswordStdin, Yes, parse_amount
from toolgate_cli.output import Column, confirm, fail, print_json, print_table, sanitize, truncate

BUDGETS_PATH: Final = "/api/budgets"

_COLUMNS: Final = (
    Column("name"),
    Column("limit", right=True),
    Column("measure", no_wrap=True),
    Column("window", no_wrap=True),
    Column("scope", no_wrap=True),
    Column("actions"),
    Column("at limit", no_wrap=True),
    Column("state", no_wrap=True),
    Column("id", no_wrap=True),
)
_USAGE_COLUMNS: Final = (
    Column("total"),
    Column("used", right=True),
    Column("reserved", right=True),
    Column("left", right=True),
)

budgets = typer.Typer(
    name="budgets",
    help="List, create, change and delete budgets, which limit the number or the amount of calls in a time window. "
    "Changes ask for your password.",
    no_args_is_help=True,
)


class Scope(StrEnum):
    """Kind of subject that has a separate total."""

    ORGANIZATION = "organization"
    AGENT = "agent"
    RUN = "run"


class AtLimit(StrEnum):
    """Effect on a call that would exceed the limit."""

    DENY = "deny"
    REQUIRE_APPROVAL = "require_approval"


BudgetName = Annotated[
    str,
    typer.Argument(
        metavar="BUDGET",
        help="The budget's name, its id, or the first characters of its id, if no other id begins with them.",
    ),
]
LimitOption = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBER",
        help="The maximum number or sum in one window, such as 500 or 99.50.",
        show_default=False,
    ),
]
ActionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--action",
        metavar="ACTION",
        help="An action whose calls the budget counts, such as stripe.refund or 'stripe.*'. Repeatable.",
        show_default=False,
    ),
]
AgentOption = Annotated[
    list[str] | None,
    typer.Option(
        "--agent",
        metavar="AGENT",
        help="The name or id of an agent whose calls the budget counts, or '*' for all agents. Repeatable.",
        show_default=False,
    ),
]
AtLimitOption = Annotated[
    AtLimit | None,
    typer.Option(help="What happens to a call that would exceed the limit.", show_default=False),
]


class Budget(Resource):
    """A budget of an environment, as the gateway's API returns it."""

    name: str
    scope: str
    agents: list[str]
    actions: list[str]
    measure: str
    currency_arg: str | None
    window: str
    limit: Decimal
    at_limit: str
    enabled: bool

    @property
    def label(self) -> str:
        """Return the budget's name, safe to print on a terminal."""
        return sanitize(self.name)

    @property
    def state(self) -> str:
        """Return whether the budget is enabled, as text."""
        return "enabled" if self.enabled else "disabled"

    @property
    def actions_text(self) -> str:
        """Return the actions whose calls count as text."""
        return ", ".join(map(sanitize, self.actions))


class Usage(BaseModel):
    """Total of a budget in its current window."""

    subject: str | None
    currency: str | None
    used: Decimal
    reserved: Decimal
    left: Decimal

    @property
    def label(self) -> str:
        """Return the agent or run and the currency that have the total, as text."""
        return " ".join(sanitize(one) for one in (self.subject, self.currency) if one) or "all"


@budgets.command("list")
def list_(environment: EnvironmentOption = Environment.PRODUCTION, as_json: AsJson = False) -> None:
    """List budgets, newest first."""
    with stored_session() as client:
        found = _list_budgets(client, environment)
    print_list(
        found,
        _COLUMNS,
        _row,
        empty=f"no budgets in the {environment} environment at {client.url}",
        as_json=as_json,
    )


@budgets.command()
def show(
    budget: BudgetName, environment: EnvironmentOption = Environment.PRODUCTION, as_json: AsJson = False
) -> None:
    """Show one budget and its remaining amount in the current window."""
    with stored_session() as client:
        found, raw = _find(client, budget, environment)
        pages = client.pages(f"{BUDGETS_PATH}/{found.id}/usage", {"environment": environment})
        totals = [total for page in pages for total in page]
    if as_json:
        print_json(raw | {"usage": totals})
        return
    print_page(
        f"Budget {found.id} · {found.state}",
        {
            "name": found.label,
            "limit": f"{found.limit:f}",
            "measure": sanitize(found.measure),
            "currency": sanitize(found.currency_arg or ""),
            "window": sanitize(found.window),
            "scope": sanitize(found.scope),
            "agents": ", ".join(map(sanitize, found.agents)),
            "actions": found.actions_text,
            "at limit": sanitize(found.at_limit),
        },
    )
    usage = [parse_model(Usage, total, "total") for total in totals]
    if usage:
        rows = [(one.label, f"{one.used:f}", f"{one.reserved:f}", f"{one.left:f}") for one in usage]
        print_table(_USAGE_COLUMNS, rows)
    else:
        typer.echo("no call used the budget in the current window")


@budgets.command()
def create(
    name: Annotated[
        str,
        typer.Argument(
            help=("The budget's name. The gateway sends it to agents whose calls the budget denies.")
        ),
    ],
    limit: LimitOption = None,
    window: Annotated[
        str | None,
        typer.Option(
            metavar="WINDOW",
            help="The time window: hour, day, month, 'day(Europe/Berlin)' or 'rolling(SECONDS)'.",
            show_default=False,
        ),
    ] = None,
    action: ActionOption = None,
    agent: AgentOption = None,
    measure: Annotated[
        str,
        typer.Option(
            metavar="MEASURE",
            help=(
                "The limited quantity: 'count' for the number of calls, or the sum of an argument, such as "
                "'sum(args.amount)'."
            ),
        ),
    ] = "count",
    currency_arg: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=(
                "The argument that contains the currency. The budget then keeps one total for each currency, and "
                "the limit applies to each total."
            ),
            show_default=False,
        ),
    ] = None,
    scope: Annotated[
        Scope, typer.Option(help="Keep one total for the organization, for each agent or for each run.")
    ] = Scope.ORGANIZATION,
    at_limit: AtLimitOption = None,
    environment: EnvironmentOption = Environment.PRODUCTION,
    as_json: AsJson = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Create a budget, which applies from the next call on. Asks for your password."""
    if limit is None or window is None or not action:
        fail("a new budget needs the options --limit, --window and --action; add all three")
    body = {"name": name, "window": window, "measure": measure, "scope": scope.value}
    body |= _fields(limit, action, agent, at_limit)
    if currency_arg is not None:
        body["currency_arg"] = currency_arg
    with password_session("create a budget", password_stdin=password_stdin) as client:
        raw = client.post(f"{BUDGETS_PATH}?environment={environment}", body)
    _print("created", raw, as_json=as_json)


@budgets.command()
def update(
    budget: BudgetName,
    name: Annotated[str | None, typer.Option(help="The new name.", show_default=False)] = None,
    limit: LimitOption = None,
    action: ActionOption = None,
    agent: AgentOption = None,
    at_limit: AtLimitOption = None,
    enabled: Annotated[
        bool | None,
        typer.Option(
            "--enable/--disable",
            help=("Enable or disable the budget. A disabled budget limits no calls."),
            show_default=False,
        ),
    ] = None,
    environment: EnvironmentOption = Environment.PRODUCTION,
    as_json: AsJson = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Change the given parts of a budget; its totals stay the same. Asks for your password.

    The options --agent and --action replace all agents and actions of the budget.
    """
    body = _fields(limit, action, agent, at_limit)
    body |= {key: value for key, value in (("name", name), ("enabled", enabled)) if value is not None}
    if not body:
        fail("no change is given; for the options, see: toolgate budgets update --help")
    with stored_session() as client:
        found, _ = _find(client, budget, environment)
    with password_session(f"change the budget {found.label}", password_stdin=password_stdin) as client:
        raw = client.put(f"{BUDGETS_PATH}/{found.id}?environment={environment}", body)
    _print("updated", raw, as_json=as_json)


@budgets.command()
def delete(
    budget: BudgetName,
    environment: EnvironmentOption = Environment.PRODUCTION,
    yes: Yes = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Delete a budget with its totals; from the next call on, it limits no calls. Asks for your password."""
    with stored_session() as client:
        found, _ = _find(client, budget, environment)
    confirm(f"Delete the budget {found.label}?", yes=yes)
    with password_session(f"delete the budget {found.label}", password_stdin=password_stdin) as client:
        client.delete(f"{BUDGETS_PATH}/{found.id}?environment={environment}")
    typer.echo(f"deleted {found.label}, budget {found.id}")


def _fields(
    limit: str | None, action: list[str] | None, agent: list[str] | None, at_limit: AtLimit | None
) -> dict[str, Any]:
    """Return the fields of a request for those options that are given."""
    given = {
        "limit": None if limit is None else parse_amount(limit, "--limit"),
        "actions": action or None,
        "agents": agent or None,
        "at_limit": None if at_limit is None else at_limit.value,
    }
    return {name: value for name, value in given.items() if value is not None}


def _list_budgets(client: GatewayClient, environment: str) -> list[tuple[Budget, dict[str, Any]]]:
    pages = client.pages(BUDGETS_PATH, {"environment": environment})
    return [(parse_model(Budget, raw, "budget"), raw) for page in pages for raw in page]


def _find(client: GatewayClient, wanted: str, environment: str) -> tuple[Budget, dict[str, Any]]:
    """Return the budget whose name is `wanted`, or else the one whose id begins with `wanted`, and its JSON."""
    everything = _list_budgets(client, environment)
    found = [one for one in everything if one[0].name == wanted] or match_id(everything, wanted)
    missing = f"the {environment} environment has no budget {wanted!r}; see: toolgate budgets list"
    return pick_one(found, wanted, plural="budgets", missing=missing)


def _print(done: str, raw: Any, *, as_json: bool) -> None:
    budget = parse_model(Budget, raw, "budget")
    if as_json:
        print_json(raw)
    else:
        typer.echo(f"{done} {budget.label}, budget {budget.id}")


def _row(budget: Budget) -> tuple[str, ...]:
    return (
        budget.label,
        f"{budget.limit:f}",
        sanitize(budget.measure),
        sanitize(budget.window),
        sanitize(budget.scope),
        truncate(budget.actions_text),
        sanitize(budget.at_limit),
        budget.state,
        budget.id,
    )
