"""Kinds of text and numbers that several requests share (decisions §2)."""

import re
import unicodedata
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Literal

from fastapi import Query
from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from toolgate_service.web import field_schemas

MAX_NAME = 100
MAX_DESCRIPTION = 1_000
MAX_ACTION = 255
MAX_EMAIL = 254
WILDCARDS = "*?"

# The syntax that browsers check (WHATWG HTML, "valid email address"). Libraries refuse domains such as example.test,
# which are welcome here.
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_EMAIL = re.compile(rf"[a-z0-9.!#$%&'*+/=?^_`{{|}}~-]{{1,64}}@{_LABEL}(?:\.{_LABEL})*")


def is_action(text: str) -> bool:
    """Say whether a text is an action identifier: 1-255 visible ASCII characters."""
    return 1 <= len(text) <= MAX_ACTION and text.isascii() and text.isprintable() and " " not in text


def is_exact_action(text: str) -> bool:
    """Return whether a permission can name this action: permissions match exactly, so it contains no wildcard."""
    return is_action(text) and not any(char in text for char in WILDCARDS)


def is_reference(text: str) -> bool:
    """Say whether a text may be a caller's own reference: 1-255 printable characters."""
    return 1 <= len(text) <= MAX_ACTION and text.isprintable()


ACTION_RULE = f"must be 1-{MAX_ACTION} visible ASCII characters"
EXACT_ACTION_RULE = "must not contain the wildcards * and ?: permissions match actions exactly; create one permission for each action"
REFERENCE_RULE = f"must be 1-{MAX_ACTION} printable characters"


MOMENT_RULE = "must be an ISO 8601 timestamp, such as 2026-01-31T12:00:00Z"


def moment_of(text: str) -> datetime:
    """Read an ISO 8601 moment; without an offset it is UTC.

    Raises:
        ValueError: it is none, or outside the years 1-9999.
    """
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(MOMENT_RULE) from None


def is_description(text: str) -> bool:
    """Return whether a text is free text: at most 1,000 printable characters, line breaks and tabs."""
    return len(text) <= MAX_DESCRIPTION and all(_shows(char) or char in "\n\r\t" for char in text)


DESCRIPTION_RULE = f"must be at most {MAX_DESCRIPTION} printable characters"


def _shows(char: str) -> bool:
    # Python calls every space but the ASCII one, and the joiners of emoji and Indic scripts, not printable.
    return char.isprintable() or char in _JOINERS or unicodedata.category(char) == "Zs"


_JOINERS = "\u200c\u200d"


def is_email(text: str) -> bool:
    """Say whether a text is an e-mail address by its syntax."""
    return len(text) <= MAX_EMAIL and bool(_EMAIL.fullmatch(text.lower()))


def _name(text: str) -> str:
    text = text.strip().strip(_JOINERS)
    if not 1 <= len(text) <= MAX_NAME or not all(map(_shows, text)):
        raise ValueError(f"must be 1-{MAX_NAME} printable characters")
    return text


def _description(text: str) -> str:
    if not is_description(text):
        raise ValueError(DESCRIPTION_RULE)
    return text


def _action(text: str) -> str:
    if not is_action(text):
        raise ValueError(ACTION_RULE)
    return text


def _exact_action(text: str) -> str:
    if not is_exact_action(_action(text)):
        raise ValueError(EXACT_ACTION_RULE)
    return text


def _email(text: str) -> str:
    text = text.strip()
    # Before the letters are made small: the Kelvin sign would become a k.
    if not text.isascii():
        raise ValueError("is not an e-mail address")
    if not is_email(text):
        raise ValueError("is not an e-mail address")
    return text.lower()


def _amount(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise ValueError("must be a number")  # noqa: TRY004 - pydantic turns ValueError into the field's message
    number = Decimal(value)
    if number < 0:
        raise ValueError("must not be negative")
    return number


def _moment(value: object) -> object:
    return moment_of(value) if isinstance(value, str) else value


def _digits(value: object) -> object:
    # pydantic also reads 1_0, +5 and 10.0 as integers.
    if isinstance(value, str) and not (value.isascii() and value.isdecimal()):
        raise ValueError("must be a whole number")
    return value


def _whole(value: object) -> object:
    # 60, 60.0 and 6e1 are one number, here as in a context.
    return int(value) if isinstance(value, Decimal) and value == value.to_integral_value() else value


#: beside `int`, behind its bounds: whole numbers however they are written
WHOLE = BeforeValidator(_whole)
Name = Annotated[str, AfterValidator(_name), WithJsonSchema(field_schemas.NAME)]
Description = Annotated[str, AfterValidator(_description), WithJsonSchema(field_schemas.DESCRIPTION)]
Action = Annotated[str, AfterValidator(_action), WithJsonSchema(field_schemas.ACTION)]
ExactAction = Annotated[str, AfterValidator(_exact_action), WithJsonSchema(field_schemas.EXACT_ACTION)]
Email = Annotated[str, AfterValidator(_email), WithJsonSchema(field_schemas.EMAIL)]
Role = Literal["admin", "member", "viewer"]
#: of a link; what is longer is none of ours
LinkToken = Annotated[str, Field(max_length=1000)]
Password = Annotated[str, Field(min_length=8, max_length=128)]
Amount = Annotated[Decimal, BeforeValidator(_amount), WithJsonSchema(field_schemas.AMOUNT)]

#: which of the organization's two worlds a management request means (decisions §8)
EnvironmentName = Annotated[Literal["production", "test"], Query()]
#: the bounds stand before the reader of digits: behind it the OpenAPI document would not show them
PageSize = Annotated[int, Field(ge=1, le=100), BeforeValidator(_digits), Query()]
Offset = Annotated[int, Field(ge=0, le=2**63 - 1), BeforeValidator(_digits), Query()]
Moment = Annotated[datetime, BeforeValidator(_moment)]
#: seconds that a request may be held back
Wait = Annotated[int, Field(ge=0, le=60), BeforeValidator(_digits), Query()]
