"""Options that commands of several groups share, amounts, and durations, such as ``30m`` in an option or ``2 h 5 min`` in output."""

import re
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated

import typer

from toolgate._capture.jsontext import read_decimal
from toolgate_cli.output import fail


class Environment(StrEnum):
    """Environment of an organization; each has its own agents, permissions, keys and log entries."""

    PRODUCTION = "production"
    TEST = "test"


EnvironmentOption = Annotated[
    Environment, typer.Option("--environment", help="The environment of the organization to use.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the gateway's response as JSON, in ASCII.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object per line, in ASCII.")]
Full = Annotated[bool, typer.Option("--full", help="Print long values completely.")]
GatewayUrl = Annotated[
    str | None,
    typer.Option(
        "--url", help="The gateway's address. Default: TOOLGATE_URL, else the address of your login."
    ),
]
PollInterval = Annotated[
    float, typer.Option("--interval", min=0.2, max=3600, help="Seconds between two requests to the gateway.")
]
PasswordStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input, for scripts.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


_UNITS = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86_400}
#: maximum time until an approval request expires
_MAX_TTL = 30 * 86_400
_DURATION = re.compile(r"([0-9]{1,8})(s|min|m|h|d)")


def parse_duration(text: str) -> int:
    """Return a duration such as ``90s``, ``30m``, ``1h`` or ``2d`` in seconds.

    Raises:
        ValueError: the text is not a whole number with a unit.
    """
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"invalid duration {text!r}; write it as 30m, 1h or 2d")
    return int(found.group(1)) * _UNITS[found.group(2)]


def parse_ttl(option: str, text: str) -> int:
    """Return the time until an approval request expires, in seconds, or end the command with an error."""
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        fail(f"{option}: {error}")
    if not 1 <= seconds <= _MAX_TTL:
        fail(f"invalid {option} {text!r}: use a duration from 1s to 30d, such as 1h")
    return seconds


def format_duration(seconds: float) -> str:
    """Return a number of seconds as text, rounded down: ``12 s``, ``5 min``, ``3 h 12 min`` or ``2 d 4 h``."""
    whole = max(0, int(seconds))
    if whole < _UNITS["min"]:
        return f"{whole} s"
    if whole < _UNITS["h"]:
        return f"{whole // 60} min"
    large, small, rest = ("h", "min", whole) if whole < _UNITS["d"] else ("d", "h", whole)
    over = rest % _UNITS[large] // _UNITS[small]
    return f"{rest // _UNITS[large]} {large}" + (f" {over} {small}" if over else "")


def format_age(moment: datetime) -> str:
    """Return the time since a moment, as text such as ``3 h 12 min``."""
    return format_duration((datetime.now(UTC) - moment).total_seconds())


def format_remaining(moment: datetime) -> str:
    """Return the time until a moment, as text such as ``3 h 12 min``; ``0 s`` if the moment has passed."""
    return format_duration((moment - datetime.now(UTC)).total_seconds())


def parse_amount(text: str, option: str) -> Decimal:
    """Return the exact value of an option that is a number and not negative.

    Raises:
        typer.Exit: the text is not such a number.
    """
    try:
        # Only the characters of JSON numbers are accepted: Decimal would also parse 1_000 and Infinity.
        number = read_decimal(text) if set(text) <= set("0123456789.eE+-") else None
    except (ArithmeticError, ValueError):
        number = None
    if number is None or number < 0:
        fail(f"invalid {option} {text[:40]!r}: write a number that is not negative, such as 250 or 99.50")
    return number
