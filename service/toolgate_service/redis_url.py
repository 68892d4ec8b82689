"""What an operator says about Redis, checked before the gateway starts."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, SecretStr

EXAMPLE = "redis://:PASSWORD@HOST:6379/0"


def _server(value: SecretStr) -> SecretStr:
    try:
        from toolgate_service.hotpath.redis.server import made
    except ModuleNotFoundError as error:
        raise ValueError(
            f"needs the extra 'redis' ({error.name!r} is missing); install it with: pip install 'toolgate[redis]'"
        ) from None
    url = value.get_secret_value()
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"redis", "rediss"} and bool(parts.hostname) and _is_number(parts.path[1:])
        if usable:
            made(url)
    except Exception:  # noqa: BLE001 - whatever the library says of it may quote it
        usable = False
    if not usable:
        # Without the value: it may have a password in it.
        raise ValueError(f"is no URL of a Redis server; write for instance {EXAMPLE}, or rediss://… for TLS")
    return value


def _is_number(text: str) -> bool:
    return not text or (text.isascii() and text.isdecimal())


RedisServer = Annotated[SecretStr, AfterValidator(_server)]
