"""What a permission may be limited by, as options of a command."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

import typer

from toolgate._capture.jsontext import read_decimal
from toolgate.permitted import is_amount_required
from toolgate_cli.approvals.spans import read_span
from toolgate_cli.output import fail

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
