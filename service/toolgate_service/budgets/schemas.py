"""Request and response bodies of the routes of budgets."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field, WithJsonSchema

from toolgate_service.budgets.evaluation import COUNT, measured_argument
from toolgate_service.budgets.windows import parse_window
from toolgate_service.core.schemas import (
    AMOUNT,
    EXAMPLE_AGENT_ID,
    EXAMPLE_ID,
    EXAMPLE_TIME,
    EXAMPLE_USER_ID,
    AgentId,
    Amount,
    Body,
    Change,
    CreatedAt,
    Name,
    ResourceId,
    example,
    omit_default,
)
from toolgate_service.rules.schemas import Actions, Agents

Scope = Literal["organization", "agent", "run"]
AtLimit = Literal["deny", "require_approval"]
State = Literal["unsettled", "settled", "released"]

_NAME = "Name of the budget, unique in its environment. The gateway sends it to agents whose calls the budget denies."
_SCOPE = (
    "Calls that share one total: `organization` (all calls of the environment), `agent` (calls of one "
    "agent) or `run` "
    "(calls with one `run_id`; all calls without a `run_id` share a total)."
)
_AGENTS = 'Agents whose calls count: ids or names, or `["*"]` for all agents, including agents created later.'
_ACTIONS = "Actions whose calls count: exact names, prefixes followed by `*`, such as `stripe.*`, or `*`."
_MEASURE = "`count` for the number of calls, or `sum(args.NAME)` for the sum of an argument, such as `sum(args.amount)`."
_CURRENCY = (
    "Name of the argument that contains the currency. Each currency then has its own total and the whole limit. Null if "
    "all amounts have one total."
)
_WINDOW = (
    "Time window: `hour`, `day` or `month` (UTC), `day(Europe/Berlin)` or `month(Europe/Berlin)` in a time zone, or "
    "`rolling(3600)` for the last 3,600 seconds, at most 2,678,400 (31 days)."
)
_LIMIT = "Maximum number of calls, or maximum sum, in one window; an exact decimal number."
_AT_LIMIT = "Effect on a call that would exceed the limit: `deny`, or `require_approval` to ask a person."
_ENABLED = "False if the budget is ignored. Its totals are kept."


def _valid_measure(text: str) -> str:
    measured_argument(text)
    return text


def _valid_window(text: str) -> str:
    parse_window(text)
    return text


Measure = Annotated[
    str,
    AfterValidator(_valid_measure),
    WithJsonSchema({"type": "string", "pattern": r"^(count|sum\(args\.[A-Za-z_][A-Za-z0-9_]{0,63}\))$"}),
]
#: the pattern does not list the time zones, because those that are accepted depend on the gateway's time zone database
WindowText = Annotated[
    str,
    AfterValidator(_valid_window),
    WithJsonSchema(
        {
            "type": "string",
            "format": "budget-window",
            "pattern": r"^(hour|day|month|(day|month)\([A-Za-z0-9_+/-]{1,64}\)|rolling\([1-9][0-9]{0,6}\))$",
            "examples": ["hour", "day(Europe/Berlin)", "month", "rolling(3600)"],
        }
    ),
]
ArgumentName = Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
Number = Annotated[Decimal, WithJsonSchema(AMOUNT)]
SignedNumber = Annotated[Decimal, WithJsonSchema({"type": "number"})]


def measure_text(argument: str | None) -> str:
    """Return a budget's measure as the API's text: `sum(args.<argument>)`, or `count` if `argument` is None."""
    return COUNT if argument is None else f"sum(args.{argument})"


class NewBudget(Body):
    """Request body of POST /api/budgets."""

    model_config = example(
        name="Refunds per day",
        scope="organization",
        actions=["stripe.refund"],
        measure="sum(args.amount)",
        window="day(Europe/Berlin)",
        limit=500,
        at_limit="require_approval",
    )

    name: Name = Field(description=_NAME)
    scope: Scope = Field(default="organization", description=_SCOPE)
    agents: Agents = Field(default=["*"], description=_AGENTS, json_schema_extra=omit_default)
    actions: Actions = Field(description=_ACTIONS)
    measure: Measure = Field(default=COUNT, description=_MEASURE)
    currency_arg: ArgumentName | None = Field(default=None, description=_CURRENCY)
    window: WindowText = Field(description=_WINDOW)
    limit: Amount = Field(description=_LIMIT)
    at_limit: AtLimit = Field(default="deny", description=_AT_LIMIT)
    enabled: bool = Field(default=True, description=_ENABLED)


class BudgetChange(Change):
    """Request body of PUT /api/budgets/{budget_id}. Fields that are missing in the request stay unchanged.

    Scope, measure, currency and window cannot change, because the stored totals would no longer match them: create a
    new budget instead.
    """

    model_config = example(limit=750)

    name: Name | None = Field(default=None, description=_NAME)
    agents: Agents | None = Field(default=None, description=_AGENTS)
    actions: Actions | None = Field(default=None, description=_ACTIONS)
    limit: Amount | None = Field(default=None, description=_LIMIT)
    at_limit: AtLimit | None = Field(default=None, description=_AT_LIMIT)
    enabled: bool | None = Field(default=None, description=_ENABLED)


class BudgetView(BaseModel):
    """Budget, in responses of the API and in events."""

    model_config = example(
        id=EXAMPLE_ID,
        name="Refunds per day",
        scope="organization",
        agents=["*"],
        actions=["stripe.refund"],
        measure="sum(args.amount)",
        currency_arg=None,
        window="day(Europe/Berlin)",
        limit=500,
        at_limit="require_approval",
        enabled=True,
        created_by=EXAMPLE_USER_ID,
        created_at=EXAMPLE_TIME,
        updated_at=None,
    )

    id: ResourceId
    name: str = Field(description=_NAME)
    scope: Scope = Field(description=_SCOPE)
    agents: Sequence[str] = Field(
        description='Ids of the agents whose calls count, or `["*"]` for all agents.'
    )
    actions: Sequence[str] = Field(description=_ACTIONS)
    measure: str = Field(description=_MEASURE)
    currency_arg: str | None = Field(description=_CURRENCY)
    window: str = Field(description=_WINDOW)
    limit: Number = Field(description=_LIMIT)
    at_limit: AtLimit = Field(description=_AT_LIMIT)
    enabled: bool = Field(description=_ENABLED)
    created_by: str = Field(description="Id of the user who created the budget, a UUID.")
    created_at: CreatedAt
    updated_at: datetime | None = Field(
        description="Time of the last change; null if the budget was not changed."
    )


_SUBJECT = (
    "Id of the agent or run that has this total, depending on the scope; null for the scope `organization`, and for "
    "calls without `run_id`."
)
_OF_CURRENCY = "Currency of the total in upper case; null if the budget has no `currency_arg`."
_LEFT = "Limit minus the settled and the reserved amounts; negative if the limit is exceeded."


class BudgetUsage(BaseModel):
    """Total of a budget in its current window."""

    model_config = example(
        subject=None,
        currency=None,
        limit=500,
        used=120.5,
        reserved=40,
        left=339.5,
        window_start=EXAMPLE_TIME,
        window_end=EXAMPLE_TIME,
    )

    subject: str | None = Field(description=_SUBJECT)
    currency: str | None = Field(description=_OF_CURRENCY)
    limit: Number = Field(description=_LIMIT)
    used: Number = Field(description="Sum of the settled amounts, from the log entries of successful calls.")
    reserved: Number = Field(
        description="Sum of the amounts of allowed calls whose outcome no log entry has reported yet."
    )
    left: SignedNumber = Field(description=_LEFT)
    window_start: datetime = Field(description="Start of the window.")
    window_end: datetime = Field(description="End of the window; for a rolling window, the current time.")


class ReservationView(BaseModel):
    """Reservation of an allowed call."""

    model_config = example(
        id=EXAMPLE_ID,
        budget_id=EXAMPLE_ID,
        budget_name="Refunds per day",
        decision_id=EXAMPLE_ID,
        agent_id=EXAMPLE_AGENT_ID,
        action="stripe.refund",
        run_id="run-7",
        subject=None,
        currency=None,
        amount=40,
        settled_amount=None,
        state="unsettled",
        over_limit=False,
        approval_id=None,
        created_at=EXAMPLE_TIME,
        settled_at=None,
        age_seconds=90,
    )

    id: ResourceId
    budget_id: str = Field(description="Id of the budget, a UUID.")
    budget_name: str = Field(description="Current name of the budget.")
    decision_id: str = Field(description="Id of the decision that allowed the call.")
    agent_id: AgentId
    action: str = Field(description="Action of the call, such as `stripe.refund`.")
    run_id: str | None = Field(description="Identifier of the agent run, chosen by the client.")
    subject: str | None = Field(description=_SUBJECT)
    currency: str | None = Field(description=_OF_CURRENCY)
    amount: Number = Field(description="Amount that the gateway read from the arguments of the check.")
    settled_amount: Number | None = Field(
        description=(
            "Amount that the gateway read from the arguments in the log entry; null if no log entry has "
            "reported the outcome."
        )
    )
    state: State = Field(
        description=(
            "`unsettled` (the outcome of the call is unknown), `settled` (the call succeeded) or `released` (the call "
            "failed or did not run)."
        )
    )
    over_limit: bool = Field(description="True if the call exceeded the limit and an approval allowed it.")
    approval_id: str | None = Field(description="Id of the approval request that allowed the call, or null.")
    created_at: CreatedAt
    settled_at: datetime | None = Field(
        description="Time at which a log entry last changed the state of the reservation, or null."
    )
    age_seconds: int = Field(description="Whole seconds since the check.")


class BudgetExceeded(BaseModel):
    """First call in a window that did not fit into a budget, in the event `budget.exceeded`."""

    id: ResourceId
    name: str = Field(description=_NAME)
    scope: str = Field(description=_SCOPE)
    subject: str | None = Field(description=_SUBJECT)
    currency: str | None = Field(description=_OF_CURRENCY)
    measure: str = Field(description=_MEASURE)
    limit: Number = Field(description=_LIMIT)
    left: SignedNumber = Field(description=_LEFT)
    amount: Number = Field(description="Amount of the call.")
    at_limit: str = Field(description=_AT_LIMIT)
    agent_id: AgentId
    action: str = Field(description="Action of the call.")
