"""The headers of answers, described once (spec §7, §8; decisions §2, §4, §6)."""

from typing import Any

_WHOLE = {"type": "integer", "minimum": 0}


def _header(description: str, schema: dict[str, Any], *, required: bool = True) -> dict[str, Any]:
    return {"description": description, "schema": schema, "required": required}


HEADERS: dict[str, dict[str, Any]] = {
    "X-Request-ID": _header(
        "The request's id: the caller's if it matches `[A-Za-z0-9._-]{1,128}`, otherwise a new one.",
        {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"},
    ),
    "X-API-Version": _header(
        "The version of this interface.", {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"}
    ),
    "X-RateLimit-Limit": _header("Requests a minute.", _WHOLE),
    "X-RateLimit-Remaining": _header("Requests left in this minute.", _WHOLE),
    "X-RateLimit-Reset": _header("When the minute ends, in seconds since 1970.", _WHOLE),
    "X-Toolgate-Organization": _header("The id of the organization whose key was used.", {"type": "string"}),
    "X-Toolgate-Environment": _header(
        "The environment of the key that was used.", {"type": "string", "enum": ["production", "test"]}
    ),
    "Retry-After": _header("Seconds after which it is worth trying again.", _WHOLE),
    "WWW-Authenticate": _header("The scheme to authenticate with.", {"const": "Bearer", "type": "string"}),
    "X-Decision-ID": _header("The decision's id, to be sent with the log entry.", {"type": "string"}),
    "X-Call-Let-Through": _header(
        "The call of this `call_id` is blocked because an approval has let it through before.",
        {"type": "string", "enum": ["true"]},
        required=False,
    ),
    "Idempotency-Replayed": _header(
        "The answer is the original one; nothing was written.",
        {"type": "string", "enum": ["true"]},
        required=False,
    ),
    "Idempotency-Mismatch": _header(
        "The body was another one when the key was first used.",
        {"type": "string", "enum": ["true"]},
        required=False,
    ),
    "Link": _header('`rel="next"`: the next page, where there is one.', {"type": "string"}, required=False),
    "X-Total-Count": _header(
        "How many there are in all, counted to 10,000 and then `10000+`.",
        {"type": "string", "pattern": r"^(\d{1,5}|10000\+)$"},
    ),
}

#: on every answer, whatever it says
EVERYWHERE = ("X-Request-ID", "X-API-Version")
#: on every page of a list
PAGED = ("Link", "X-Total-Count")


def references(*names: str) -> dict[str, Any]:
    """Return references to headers, for a response's `headers`."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
