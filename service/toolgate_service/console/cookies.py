"""The session's cookie: the token that login answers, where no script can read it.

It opens nothing but the console. Over https its name begins with ``__Host-``: then browsers demand that it is the whole
host's, and no other place under the same domain can set it.
"""

from starlette.requests import Request
from starlette.responses import Response

from toolgate_service.accounts.tokens import LIFETIME
from toolgate_service.console.door import PREFIX
from toolgate_service.console.safety import is_secure
from toolgate_service.gateway import Gateway

_SECURE = "__Host-toolgate"
_PLAIN = "toolgate-console"


def token_in(request: Request, gateway: Gateway) -> str:
    """Return the token that a browser brings; empty when it brings none."""
    return request.cookies.get(_SECURE if is_secure(request, gateway) else _PLAIN, "")


def give(response: Response, request: Request, gateway: Gateway, token: str) -> None:
    """Have the browser keep a token."""
    _set(response, request, gateway, token, int(LIFETIME.total_seconds()))


def take(response: Response, request: Request, gateway: Gateway) -> None:
    """Have the browser forget the token."""
    _set(response, request, gateway, "", 0)


def _set(response: Response, request: Request, gateway: Gateway, token: str, seconds: int) -> None:
    secure = is_secure(request, gateway)
    response.set_cookie(
        _SECURE if secure else _PLAIN,
        token,
        max_age=seconds,
        path="/" if secure else PREFIX,
        secure=secure,
        httponly=True,
        # A link in a mail leads into the console; nothing is decided by following one.
        samesite="lax",
    )
