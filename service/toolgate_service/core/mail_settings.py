"""Settings of the mail server and their validation when the gateway starts."""

from dataclasses import dataclass
from email.utils import parseaddr
from typing import Annotated
from urllib.parse import parse_qs, unquote, urlsplit

from pydantic import AfterValidator, SecretStr

from toolgate_service.core.addresses import is_loopback
from toolgate_service.core.schemas import is_email

#: example values for error messages
SENDER = "Toolgate <toolgate@example.com>"
PUBLIC_URL = "https://toolgate.example.com"

#: default port of each URL scheme
SCHEMES = {"smtp": 587, "smtps": 465}


@dataclass(frozen=True, slots=True)
class SmtpServer:
    """Address and login of an SMTP server, parsed from the URL in the settings.

    Attributes:
        host: Name of the server. The server's certificate must be valid for this name.
        implicit_tls: True if the connection starts with TLS (``smtps``), so that STARTTLS is not used.
        require_tls: True if the gateway rejects a server without TLS. False for a server on the same machine, and if
            the URL contains ``?tls=off``.
        user: Login name; None if the server needs no login.
    """

    host: str
    port: int
    implicit_tls: bool = False
    require_tls: bool = True
    user: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        """Return the host and the port without the login, so that logs never contain the password."""
        return f"SmtpServer({self.host!r}, {self.port})"

    @classmethod
    def from_url(cls, url: str) -> "SmtpServer":
        """Parse a URL such as ``smtp://USER:PASSWORD@HOST:PORT`` or ``smtps://…``.

        Raises:
            ValueError: The URL is invalid. The message does not contain the URL, because it may include a password.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = parts = None
        if parts is None or host is None or parts.scheme not in SCHEMES or parts.path not in {"", "/"}:
            raise ValueError(
                "is not the URL of a mail server; write smtp://USER:PASSWORD@HOST:PORT or smtps://…"
            )
        options = parse_qs(parts.query, keep_blank_values=True)
        if parts.fragment or options not in ({}, {"tls": ["off"]}):
            raise ValueError(
                "must not contain a query other than ?tls=off; write '?' and '#' in a password as %3F and %23"
            )
        tls_off = options != {}
        if tls_off and (parts.scheme == "smtps" or parts.password is not None):
            raise ValueError("contains tls=off, which cannot be combined with smtps:// or a password")
        if (parts.username is None) != (parts.password is None):
            raise ValueError("has a user or a password, but not both; write smtp://USER:PASSWORD@HOST:PORT")
        return cls(
            host=host,
            port=port or SCHEMES[parts.scheme],
            implicit_tls=parts.scheme == "smtps",
            require_tls=not tls_off and not is_loopback(host),
            user=None if parts.username is None else unquote(parts.username),
            password=None if parts.password is None else unquote(parts.password),
        )


def _check_server(value: SecretStr) -> SecretStr:
    SmtpServer.from_url(value.get_secret_value())
    return value


def _check_sender(value: str) -> str:
    if not value.isprintable() or not is_email(parseaddr(value)[1]):
        raise ValueError(f"{value!r} is not a sender address; write for example {SENDER}")
    return value


MailServer = Annotated[SecretStr, AfterValidator(_check_server)]
Sender = Annotated[str, AfterValidator(_check_sender)]


def require_all(smtp_url: SecretStr | None, mail_from: str | None, public_url: str | None) -> None:
    """Raise an error if a mail server is set without a sender address or without a public URL for links.

    Raises:
        ValueError: The sender address or the public URL is missing.
    """
    if smtp_url is None:
        return
    for name, value, example in (
        ("TOOLGATE_MAIL_FROM", mail_from, SENDER),
        ("TOOLGATE_PUBLIC_URL", public_url, PUBLIC_URL),
    ):
        if value is None:
            raise ValueError(
                f"{name}: is required with TOOLGATE_SMTP_URL; set it, for example to {example!r}"
            )
