"""Protection of the console against attacks by other web sites, such as cross-site request forgery (CSRF).

The functions check host names, origins and form tokens, and set the session cookie. `HEADERS` restricts what pages can
load and who can embed them.
"""

import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from toolgate_service.accounts.sessions import SESSION_LIFETIME
from toolgate_service.console.mount import PREFIX
from toolgate_service.core.addresses import host_name, is_allowed_host
from toolgate_service.core.errors import ApiError
from toolgate_service.gateway import Gateway

#: HTTP headers of every console page. The referrer policy is `same-origin`, because with `no-referrer` browsers submit
#: forms with "Origin: null", which `check_origin` rejects.
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types toolgate"
    ),
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}

#: Name of the session cookie over https. Because of the prefix `__Host-`, other hosts of the same domain cannot set it.
_SECURE_COOKIE = "__Host-toolgate"
_PLAIN_COOKIE = "toolgate-console"


def check_host(request: Request, gateway: Gateway) -> None:
    """Check that the Host header contains a host name of this gateway, as protection against DNS rebinding.

    Raises:
        ApiError: 421 if the Host header is missing, repeated, or contains another host name.
    """
    named = request.headers.getlist("host")
    # Reject a request with two Host headers: a proxy may have checked one of them, and the gateway would read the
    # other.
    name = host_name(named[0]) if len(named) == 1 else None
    if name is None or not is_allowed_host(name, _own_hosts(gateway)):
        raise ApiError(
            421,
            "The console does not accept this host name; the operator can add it to TOOLGATE_PUBLIC_URL or "
            "TOOLGATE_CONSOLE_HOSTS",
        )


def check_origin(request: Request, gateway: Gateway) -> None:
    """Check that a page of this console sent the request.

    Browsers add the Origin header to every submitted form and to every `fetch` request except GET requests.

    Raises:
        ApiError: 403 if the Origin header is missing or contains another site.
    """
    origin = request.headers.get("origin", "")
    if origin.lower() not in _own_origins(request, gateway):
        raise ApiError(
            403, "This form was not sent by a page of this console; open the console and try again"
        )


def form_token(gateway: Gateway, session_id: str) -> str:
    """Return the CSRF token of a session. Every form of the console contains it, and other web sites cannot read it."""
    return _form_token(gateway.vault.form_keys[0], session_id)


def check_form_token(gateway: Gateway, session_id: str, sent: str) -> None:
    """Check that a submitted form contains the CSRF token of the user's session.

    Raises:
        ApiError: 403 if `sent`, the token in the form, is empty or wrong.
    """
    # Also accept tokens that were created with a former secret of the gateway or with its next one: while the operator
    # replaces the secret, open pages still contain such tokens.
    tokens = [_form_token(key, session_id) for key in gateway.vault.form_keys]
    if not any(hmac.compare_digest(token.encode(), sent.encode()) for token in tokens):
        raise ApiError(403, "This form is out of date; go back, reload the page and try again")


def is_secure(request: Request, gateway: Gateway) -> bool:
    """Return True if browsers use https to access the console."""
    return request.url.scheme == "https" or (gateway.settings.public_url or "").startswith("https:")


def read_session_cookie(request: Request, gateway: Gateway) -> str:
    """Return the session token in the request's cookie; an empty string if the cookie is missing."""
    return request.cookies.get(_SECURE_COOKIE if is_secure(request, gateway) else _PLAIN_COOKIE, "")


def set_session_cookie(response: Response, request: Request, gateway: Gateway, token: str) -> None:
    """Add the session cookie to the response. Only the console reads this cookie; the API ignores it."""
    _set_cookie(response, request, gateway, token, int(SESSION_LIFETIME.total_seconds()))


def clear_session_cookie(response: Response, request: Request, gateway: Gateway) -> None:
    """Add a header to the response that makes the browser delete the session cookie."""
    _set_cookie(response, request, gateway, "", 0)


def _set_cookie(response: Response, request: Request, gateway: Gateway, token: str, seconds: int) -> None:
    secure = is_secure(request, gateway)
    response.set_cookie(
        _SECURE_COOKIE if secure else _PLAIN_COOKIE,
        token,
        max_age=seconds,
        path="/" if secure else PREFIX,
        secure=secure,
        httponly=True,
        # With `lax`, links in e-mails open the console with the user's session. They are GET requests, which change no
        # data.
        samesite="lax",
    )


def _form_token(key: bytes, session_id: str) -> str:
    return hmac.digest(key, session_id.encode(), "sha256").hex()


def _own_hosts(gateway: Gateway) -> frozenset[str]:
    public = urlsplit(gateway.settings.public_url or "").hostname
    return frozenset((*gateway.settings.console_hosts, *((public,) if public else ())))


def _own_origins(request: Request, gateway: Gateway) -> frozenset[str]:
    # Accept http and https, because behind a proxy that terminates TLS the gateway does not know which scheme the
    # browser used.
    host = request.headers.get("host", "").lower()
    public = urlsplit(gateway.settings.public_url or "")
    own = {f"http://{host}", f"https://{host}"}
    return frozenset(own | ({f"{public.scheme}://{public.netloc}"} if public.netloc else set()))
