"""Period of the evidence, and times in the responses of the gateway."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from toolgate_cli.client import GatewayError
from toolgate_cli.log_entries import parse_moment
from toolgate_cli.output import fail


@dataclass(frozen=True, slots=True)
class Period:
    """Period from `begin`, inclusive, to `end`, exclusive; both in UTC."""

    begin: datetime
    end: datetime

    def contains(self, moment: datetime | None) -> bool:
        """Return whether a time is in the period; false for None."""
        return moment is not None and self.begin <= moment < self.end

    def to_json(self) -> dict[str, str]:
        """Return the period as values of JSON."""
        return {"from": format_time(self.begin), "to": format_time(self.end)}


def parse_period(begin: str, end: str | None, now: datetime) -> Period:
    """Return the period of the options `--from` and `--to`; without `--to`, it ends now.

    Raises:
        typer.Exit: a value is invalid, the period is empty, or it has not ended.
    """
    first, last = parse_moment(begin, "--from"), parse_moment(end, "--to") or now
    if first is None or last <= first:
        fail("--to must be later than --from")
    if last > now:
        fail(
            f"--to must not be in the future: the period ends at {format_time(last)}; leave --to out to end now"
        )
    return Period(first, last)


def read_time(raw: Any, name: str) -> datetime | None:
    """Return a time of a JSON object in UTC, or None if it is null.

    Raises:
        GatewayError: the object has no such member, or the member is not a time.
    """
    try:
        text = raw[name]
        if text is None:
            return None
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (KeyError, TypeError, ValueError):
        raise GatewayError(f"invalid response of the gateway: no time {name!r}") from None


def read_created(raw: Any) -> datetime:
    """Return the time at which a row was created.

    Raises:
        GatewayError: the row has no such time.
    """
    moment = read_time(raw, "created_at")
    if moment is None:
        raise GatewayError("invalid response of the gateway: no time 'created_at'")
    return moment


def format_time(moment: datetime | None) -> str:
    """Return a time in the format of the gateway, such as ``2026-11-28T12:00:00.000000Z``; an empty text for None."""
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
