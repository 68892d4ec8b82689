"""What stands between the console and other sites' pages: names, origins, tokens in forms, and what browsers are told."""

import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.requests import Request

from toolgate_service.errors import ApiError
from toolgate_service.gateway import Gateway
from toolgate_service.web.hosts import host_name, is_known

#: `same-origin` and not `no-referrer`: with that, browsers send forms from "Origin: null"
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


def refuse_strange_host(request: Request, gateway: Gateway) -> None:
    """Refuse a request by a name that is not this gateway's.

    Raises:
        ApiError: 421.
    """
    named = request.headers.getlist("host")
    # Of two names a proxy may have gone by the other.
    name = host_name(named[0]) if len(named) == 1 else None
    if name is None or not is_known(name, _names(gateway)):
        raise ApiError(
            421,
            "The console does not answer to this host name; its operator names it in TOOLGATE_PUBLIC_URL or "
            "TOOLGATE_CONSOLE_HOSTS",
        )


def refuse_foreign_page(request: Request, gateway: Gateway) -> None:
    """Refuse what another site's page sends: browsers say of every form and fetch whose page it comes from.

    Raises:
        ApiError: 403, it comes from elsewhere, or nobody says from where.
    """
    origin = request.headers.get("origin", "")
    if origin.lower() not in _own_origins(request, gateway):
        raise ApiError(
            403, "This form was not sent by a page of this console; open the console and try again"
        )


def form_token(gateway: Gateway, session_id: str) -> str:
    """Return the token that every form of a session carries: no other site's page knows it."""
    return _form_token(gateway.vault.form_keys[0], session_id)


def refuse_without_token(gateway: Gateway, session_id: str, sent: str) -> None:
    """Refuse a form without its session's token.

    Raises:
        ApiError: 403.
    """
    # Also the one of a page that was served under another of the secrets that hold just now.
    tokens = [_form_token(key, session_id) for key in gateway.vault.form_keys]
    if not any(hmac.compare_digest(token.encode(), sent.encode()) for token in tokens):
        raise ApiError(403, "This form is out of date; go back, reload the page and try again")


def _form_token(key: bytes, session_id: str) -> str:
    return hmac.digest(key, session_id.encode(), "sha256").hex()


def is_secure(request: Request, gateway: Gateway) -> bool:
    """Say whether people reach the console by https."""
    return request.url.scheme == "https" or (gateway.settings.public_url or "").startswith("https:")


def _names(gateway: Gateway) -> frozenset[str]:
    public = urlsplit(gateway.settings.public_url or "").hostname
    return frozenset((*gateway.settings.console_hosts, *((public,) if public else ())))


def _own_origins(request: Request, gateway: Gateway) -> frozenset[str]:
    # The scheme may be a proxy's before us.
    host = request.headers.get("host", "").lower()
    public = urlsplit(gateway.settings.public_url or "")
    own = {f"http://{host}", f"https://{host}"}
    return frozenset(own | ({f"{public.scheme}://{public.netloc}"} if public.netloc else set()))
