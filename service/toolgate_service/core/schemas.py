r"""Base classes and field types of request bodies, with their JSON Schemas for the OpenAPI document.

The patterns in the schemas match exactly the texts that the validators accept. `\p{…}` stands for a Unicode category,
as in ECMA-262. Limits of the length are separate keywords of the schema, such as `maxLength`, and not part of the
pattern, because a counted repetition of a Unicode category is too large for the regular expressions of some JSON Schema
validators.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    JsonValue,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from toolgate_service.core.errors import REQUIRED
from toolgate_service.core.ids import is_id

Schema = dict[str, Any]

#: Unicode categories of the characters that `str.isprintable` accepts, except the space: letters, marks, numbers,
#: punctuation and symbols
_SHOWN = r"\p{L}\p{M}\p{N}\p{P}\p{S}"
_JOINER_ESCAPES = r"\u200c\u200d"

TEXT: Schema = {"type": "string", "minLength": 1}
ACTION: Schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]{1,255}$"}
#: action in a permission; unlike other actions, it must not contain the wildcards * and ?
EXACT_ACTION: Schema = ACTION | {"pattern": "^[!-)+->@-~]{1,255}$"}
REFERENCE: Schema = {
    "type": "string",
    "format": "reference",
    "minLength": 1,
    "maxLength": 255,
    "pattern": rf"^[{_SHOWN} ]*$",
}
#: reference in an HTTP header: printable Latin-1 characters without spaces at the beginning or end
HEADER_REFERENCE: Schema = {"type": "string", "pattern": "^[!-~¡-¬®-ÿ]([ -~¡-¬®-ÿ]{0,253}[!-~¡-¬®-ÿ])?$"}
CONTEXT: Schema = {"type": "object", "additionalProperties": True}
NAME_RULE = "1-100 printable characters; surrounding spaces are removed"
AGENT_NAME_RULE = (
    "must be neither * nor a UUID, which rules and budgets would not read as the name of an agent"
)
NAME: Schema = {
    "type": "string",
    "format": "name",
    "minLength": 1,
    "maxLength": 100,
    "description": f"{NAME_RULE}.",
    "pattern": rf"^\s*[{_SHOWN}]([{_SHOWN}\p{{Zs}}{_JOINER_ESCAPES}]*[{_SHOWN}])?\s*$",
}
DESCRIPTION: Schema = {
    "type": "string",
    "format": "description",
    "maxLength": 1000,
    "pattern": rf"^[{_SHOWN}\p{{Zs}}{_JOINER_ESCAPES}\n\r\t]*$",
}
_DOMAIN_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
EMAIL: Schema = {
    "type": "string",
    "maxLength": 254,
    "pattern": rf"^[A-Za-z0-9.!#$%&'*+/=?^_`{{|}}~-]{{1,64}}@{_DOMAIN_LABEL}(\.{_DOMAIN_LABEL})*$",
    "examples": ["ada@example.com"],
}
NETWORK: Schema = {
    "type": "string",
    "format": "network",
    "minLength": 2,
    "maxLength": 64,
    "description": "An IPv4 or IPv6 address, or a network with its prefix length.",
    "pattern": r"^\s*[0-9A-Fa-f:.]+(/[0-9.]+)?\s*$",
    "examples": ["203.0.113.7", "10.0.0.0/8", "2001:db8::/32"],
}
NETWORKS: Schema = {"type": "array", "items": NETWORK, "maxItems": 100}
AMOUNT: Schema = {"type": "number", "minimum": 0}


#: example values in the OpenAPI document, which are the same in all examples
EXAMPLE_ID = "019c6d1e-1c11-7d52-8a40-5b2a90d1e7f4"
EXAMPLE_AGENT_ID = "019c6d1e-2f07-7c3e-b6a8-64e1f0c2d935"
EXAMPLE_USER_ID = "019c6d1e-1c15-7aa0-9c71-2d8e4f6b0a53"
EXAMPLE_APPROVAL_ID = "019c6d20-77c3-7e11-8f5d-90b6a2c4d1e8"
EXAMPLE_TIME = "2026-11-21T14:30:02.118204Z"
EXAMPLE_EXPIRY = "2026-11-22T14:30:02.118204Z"


def nullable(schema: Mapping[str, Any]) -> Schema:
    """Return a JSON Schema that accepts the same values as `schema`, and also null."""
    return {"anyOf": [dict(schema), {"type": "null"}]}


def schema_reference(name: str) -> dict[str, Any]:
    """Return a JSON schema that refers to the schema with this name in the document."""
    return {"$ref": f"#/components/schemas/{name}"}


MAX_NAME = 100
MAX_DESCRIPTION = 1_000
MAX_ACTION = 255
MAX_EMAIL = 254
WILDCARDS = "*?"

# Syntax of e-mail addresses that browsers check (WHATWG HTML, "valid email address"). Libraries are not used, because
# they reject reserved domains such as example.test, which the gateway accepts.
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_EMAIL = re.compile(rf"[a-z0-9.!#$%&'*+/=?^_`{{|}}~-]{{1,64}}@{_LABEL}(?:\.{_LABEL})*")


def is_action(text: str) -> bool:
    """Return whether a text is a valid action: 1-255 visible ASCII characters."""
    return 1 <= len(text) <= MAX_ACTION and text.isascii() and text.isprintable() and " " not in text


def is_exact_action(text: str) -> bool:
    """Return whether a text is a valid action without wildcards. Permissions accept only such actions."""
    return is_action(text) and not any(char in text for char in WILDCARDS)


def is_reference(text: str) -> bool:
    """Return whether a text is a valid reference, such as a call id: 1-255 printable characters."""
    return 1 <= len(text) <= MAX_ACTION and text.isprintable()


ACTION_RULE = f"must be 1-{MAX_ACTION} visible ASCII characters"
EXACT_ACTION_RULE = "must not contain the wildcards * and ?: permissions match actions exactly; create one permission for each action"
REFERENCE_RULE = f"must be 1-{MAX_ACTION} printable characters"


MOMENT_RULE = "must be an ISO 8601 timestamp, such as 2026-01-31T12:00:00Z"


def moment_of(text: str) -> datetime:
    """Parse an ISO 8601 timestamp. A timestamp without an offset is interpreted as UTC.

    Raises:
        ValueError: The text is not a timestamp, or it is outside the years 1-9999.
    """
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(MOMENT_RULE) from None


def is_description(text: str) -> bool:
    """Return whether a text is a valid description: at most 1,000 printable characters, line breaks and tabs."""
    return len(text) <= MAX_DESCRIPTION and all(_shows(char) or char in "\n\r\t" for char in text)


DESCRIPTION_RULE = f"must be at most {MAX_DESCRIPTION} printable characters"


def _shows(char: str) -> bool:
    # Also accept spaces other than the ASCII space, and the joiners that emoji and Indic scripts need, because
    # `str.isprintable` rejects both.
    return char.isprintable() or char in _JOINERS or unicodedata.category(char) == "Zs"


_JOINERS = "\u200c\u200d"


def is_email(text: str) -> bool:
    """Return whether a text has the syntax of an e-mail address."""
    return len(text) <= MAX_EMAIL and bool(_EMAIL.fullmatch(text.lower()))


def _name(text: str) -> str:
    text = text.strip().strip(_JOINERS)
    if not 1 <= len(text) <= MAX_NAME or not all(map(_shows, text)):
        raise ValueError(f"must be 1-{MAX_NAME} printable characters")
    return text


def _agent_name(text: str) -> str:
    text = _name(text)
    if is_reserved(text):
        raise ValueError(AGENT_NAME_RULE)
    return text


def is_reserved(name: str) -> bool:
    """Return whether rules and budgets would not understand a name as that of an agent: `*` or the form of an id."""
    return name == "*" or is_id(name.lower())


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
    # Check for ASCII before `lower` is called, because `lower` turns the Kelvin sign (U+212A) into an ASCII k.
    if not text.isascii():
        raise ValueError("is not an e-mail address")
    if not is_email(text):
        raise ValueError("is not an e-mail address")
    return text.lower()


def _amount(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise ValueError("must be a number")  # noqa: TRY004 - pydantic turns a ValueError into the error message of the field
    number = Decimal(value)
    if number < 0:
        raise ValueError("must not be negative")
    return number


def _moment(value: object) -> object:
    return moment_of(value) if isinstance(value, str) else value


def normalize_whole(value: object) -> object:
    """Return a whole number such as 60.0 or 6e1 as an int, and any other value unchanged."""
    # The gateway must treat 60, 60.0 and 6e1 alike, because they have the same text in canonical JSON.
    return int(value) if isinstance(value, Decimal) and value == value.to_integral_value() else value


#: Validator with which an `int` field also accepts whole numbers written as 60.0 or 6e1. In `Annotated`, list it after
#: bounds such as `Field(ge=1)`.
WHOLE = BeforeValidator(normalize_whole)
Name = Annotated[str, AfterValidator(_name), WithJsonSchema(NAME)]
AgentName = Annotated[str, AfterValidator(_agent_name), WithJsonSchema(NAME)]
Description = Annotated[str, AfterValidator(_description), WithJsonSchema(DESCRIPTION)]
Action = Annotated[str, AfterValidator(_action), WithJsonSchema(ACTION)]
ExactAction = Annotated[str, AfterValidator(_exact_action), WithJsonSchema(EXACT_ACTION)]
Email = Annotated[str, AfterValidator(_email), WithJsonSchema(EMAIL)]
Role = Literal["admin", "member", "viewer"]
#: type of the token in an e-mail link; the tokens that the gateway creates are shorter than this limit
LinkToken = Annotated[str, Field(max_length=1000)]
Password = Annotated[str, Field(min_length=8, max_length=128)]
Amount = Annotated[Decimal, BeforeValidator(_amount), WithJsonSchema(AMOUNT)]

Moment = Annotated[datetime, BeforeValidator(_moment)]

# Fields that several response bodies have in common.
ResourceId = Annotated[str, Field(description="Unique id of this resource, a UUID.")]
AgentId = Annotated[str, Field(description="Id of the agent, a UUID.")]
OrganizationId = Annotated[str, Field(description="Id of the organization, a UUID.")]
CreatedAt = Annotated[datetime, Field(description="Time of creation (UTC, ISO 8601 with microseconds).")]


_MESSAGES = {"missing": REQUIRED, "extra_forbidden": "Unknown field; remove it"}


def field_messages(problems: Iterable[Mapping[str, Any]], *, outer: int = 0) -> dict[str, list[str]]:
    """Return the errors of pydantic as messages by the path of the field, such as ``rules.0.name``.

    Args:
        problems: Result of the method `errors` of a validation error.
        outer: Number of parts to remove from the beginning of each path. A path without further parts is not shortened.
    """
    fields: dict[str, list[str]] = {}
    for problem in problems:
        where = [str(part) for part in problem["loc"]]
        name = ".".join(where[outer:]) or ".".join(where)
        message = _MESSAGES.get(problem["type"]) or str(problem["msg"]).removeprefix("Value error, ")
        fields.setdefault(name, []).append(message)
    return fields


class Body(BaseModel):
    """Base class of request bodies of the management API. Unknown fields are rejected."""

    model_config = ConfigDict(extra="forbid", strict=True)


def example(**fields: JsonValue) -> ConfigDict:
    """Return a `model_config` that contains an example of a body for the OpenAPI document.

    A test sends each example of a request body to the gateway, after it has replaced placeholders such as `{agent_id}`.
    """
    return ConfigDict(json_schema_extra={"examples": [dict(fields)]})


def added_field(default: Any, description: str) -> Any:
    """Return a field that was added to a response body in a later version of the gateway.

    The field has a default, so that the OpenAPI document does not require it: during a rolling update, gateways of an
    earlier version send responses without it. Gateways of this version always set the field.
    """
    return Field(default=default, description=description)


def omit_default(schema: Schema) -> None:
    """Remove the default from the schema of a field.

    Validators of OpenAPI documents match the default against the pattern of the field, and many validators do not
    support the Unicode categories in the patterns.
    """
    schema.pop("default", None)


class Change(Body):
    """Base class of request bodies that update a resource. All fields are optional.

    Attributes:
        nullable: Names of the fields that a request may set to null.
    """

    nullable: ClassVar[frozenset[str]] = frozenset()

    @field_validator("*", mode="before")
    @classmethod
    def _no_null(cls, value: object, info: ValidationInfo) -> object:
        # Pydantic does not validate default values, so None means that the request contains null.
        if value is None and info.field_name not in cls.nullable:
            raise ValueError("must not be null; omit the field to keep its value")
        return value

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core_schema))
        for name, member in schema.get("properties", {}).items():
            some = [one for one in member.get("anyOf", ()) if one != {"type": "null"}]
            if name not in cls.nullable and len(some) == 1:
                del member["anyOf"]
                # The description of the field takes precedence over that of its type.
                member.update(some[0] | member)
        return schema
