r"""What `fields` and `sdk_fields` accept, as JSON Schema for the OpenAPI document.

The patterns say what the readers do; `\p{…}` are Unicode categories, as ECMA-262 writes them. Lengths stand beside the
patterns: counted in them, the categories would make automata too large for some validators.
"""

from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]

#: letters, marks, numbers, punctuation, symbols: what Python's `str.isprintable` accepts beside the space
_SHOWN = r"\p{L}\p{M}\p{N}\p{P}\p{S}"
_JOINERS = r"\u200c\u200d"

TEXT: Schema = {"type": "string", "minLength": 1}
ACTION: Schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]{1,255}$"}
#: an action that a permission can name: without the wildcards * and ?
EXACT_ACTION: Schema = ACTION | {"pattern": "^[!-)+->@-~]{1,255}$"}
REFERENCE: Schema = {
    "type": "string",
    "format": "reference",
    "minLength": 1,
    "maxLength": 255,
    "pattern": rf"^[{_SHOWN} ]*$",
}
#: the same in a header, which holds Latin-1 and loses the spaces around it
HEADER_REFERENCE: Schema = {"type": "string", "pattern": "^[!-~¡-¬®-ÿ]([ -~¡-¬®-ÿ]{0,253}[!-~¡-¬®-ÿ])?$"}
CONTEXT: Schema = {"type": "object", "additionalProperties": True}
NAME: Schema = {
    "type": "string",
    "format": "name",
    "minLength": 1,
    "maxLength": 100,
    "description": "1-100 printable characters; spaces around it are cut off.",
    "pattern": rf"^\s*[{_SHOWN}]([{_SHOWN}\p{{Zs}}{_JOINERS}]*[{_SHOWN}])?\s*$",
}
DESCRIPTION: Schema = {
    "type": "string",
    "format": "description",
    "maxLength": 1000,
    "pattern": rf"^[{_SHOWN}\p{{Zs}}{_JOINERS}\n\r\t]*$",
}
_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
EMAIL: Schema = {
    "type": "string",
    "maxLength": 254,
    "pattern": rf"^[A-Za-z0-9.!#$%&'*+/=?^_`{{|}}~-]{{1,64}}@{_LABEL}(\.{_LABEL})*$",
    "examples": ["ada@example.com"],
}
NETWORK: Schema = {
    "type": "string",
    "format": "network",
    "minLength": 2,
    "maxLength": 64,
    "description": "An IPv4 or IPv6 address, or a network with its length.",
    "pattern": r"^\s*[0-9A-Fa-f:.]+(/[0-9.]+)?\s*$",
    "examples": ["203.0.113.7", "10.0.0.0/8", "2001:db8::/32"],
}
NETWORKS: Schema = {"type": "array", "items": NETWORK, "maxItems": 100}
AMOUNT: Schema = {"type": "number", "minimum": 0}


def nullable(schema: Mapping[str, Any]) -> Schema:
    """Return a schema that also takes null."""
    return {"anyOf": [dict(schema), {"type": "null"}]}
