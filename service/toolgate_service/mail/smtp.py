"""Sending mail by an SMTP server."""

import smtplib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate, make_msgid, parseaddr
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from toolgate_service.mail.letters import Letter
from toolgate_service.web.hosts import is_loopback

#: seconds that the server may take for one answer, and for a whole mail
PATIENCE = 10
IN_ALL = 30

SCHEMES = {"smtp": 587, "smtps": 465}
#: answers from here on are final: the same mail would be refused again
FINAL = 500


class NotSent(Exception):
    """A mail did not go; the message says why, without secrets.

    Attributes:
        final: whether trying again is of no use.
    """

    def __init__(self, why: str, *, final: bool) -> None:
        super().__init__(why)
        self.final = final


class Mailer(Protocol):
    """A way to send mail."""

    def send(self, letter: Letter) -> None:
        """Send one letter; blocks.

        Raises:
            NotSent: it did not go.
        """


class _Connection(smtplib.SMTP):
    # The time-out of the socket is for one read: a server that sends a letter a second never meets it.
    _timer: threading.Timer | None = None

    def connect(self, *args: Any, **kwargs: Any) -> tuple[int, bytes]:
        self._timer = threading.Timer(IN_ALL, self._hang_up)
        self._timer.daemon = True
        self._timer.start()
        try:
            return super().connect(*args, **kwargs)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().close()

    def _hang_up(self) -> None:
        with suppress(OSError):
            if self.sock is not None:
                self.sock.shutdown(socket.SHUT_RDWR)


class _TlsConnection(_Connection, smtplib.SMTP_SSL):
    pass


@dataclass(frozen=True, slots=True)
class SmtpMailer:
    """An SMTP server, by TLS from the start (``smtps``) or by STARTTLS (``smtp``), certificates verified.

    STARTTLS is demanded, but for a server on this machine and where the URL says ``?tls=off``.

    Attributes:
        host: the server's name, against which its certificate is checked.
        port: its port.
        sender: the ``From`` of every mail.
        implicit_tls: whether TLS begins with the connection.
        demand_tls: whether a server without STARTTLS is refused.
        user: the login, if the server wants one.
        password: its password.
    """

    host: str
    port: int
    sender: str
    implicit_tls: bool = False
    demand_tls: bool = True
    user: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        """Name the server, not the password."""
        return f"SmtpMailer({self.host!r}, {self.port})"

    @classmethod
    def from_url(cls, url: str, sender: str) -> "SmtpMailer":
        """Read ``smtp://USER:PASSWORD@HOST:PORT`` or ``smtps://…``.

        Raises:
            ValueError: it is neither; the message does not repeat it.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = parts = None
        if parts is None or host is None or parts.scheme not in SCHEMES or parts.path not in {"", "/"}:
            raise ValueError("is no mail server; write smtp://USER:PASSWORD@HOST:PORT or smtps://…")
        options = parse_qs(parts.query, keep_blank_values=True)
        if parts.fragment or options not in ({}, {"tls": ["off"]}):
            raise ValueError("may end in ?tls=off and nothing else; percent-encode '?' and '#' in a password")
        plain = options != {}
        if plain and (parts.scheme == "smtps" or parts.password is not None):
            raise ValueError("says tls=off, which fits neither smtps:// nor a password")
        if (parts.username is None) != (parts.password is None):
            raise ValueError("has a user or a password, but not both; write smtp://USER:PASSWORD@HOST:PORT")
        return cls(
            host=host,
            port=port or SCHEMES[parts.scheme],
            sender=sender,
            implicit_tls=parts.scheme == "smtps",
            demand_tls=not plain and not is_loopback(host),
            user=None if parts.username is None else unquote(parts.username),
            password=None if parts.password is None else unquote(parts.password),
        )

    def send(self, letter: Letter) -> None:
        """Send one letter; blocks.

        Raises:
            NotSent: it did not go.
        """
        message = compose(letter, self.sender)
        with self._let_in() as server:
            server.send_message(message)

    def knock(self) -> None:
        """See whether the server would take a letter of ours; blocks, and sends none.

        Raises:
            NotSent: it would not.
        """
        with self._let_in() as server:
            server.noop()

    @contextmanager
    def _let_in(self) -> Iterator[smtplib.SMTP]:
        try:
            with self._connected() as server:
                self._secure(server)
                if self.user is not None and self.password is not None:
                    server.login(self.user, self.password)
                yield server
        except (OSError, smtplib.SMTPException) as error:
            # Without the chain: a server's own words may repeat what it was sent.
            raise _told(error) from None

    @contextmanager
    def _connected(self) -> Iterator[smtplib.SMTP]:
        server: smtplib.SMTP
        if self.implicit_tls:
            context = ssl.create_default_context()
            server = _TlsConnection(self.host, self.port, timeout=PATIENCE, context=context)
        else:
            server = _Connection(self.host, self.port, timeout=PATIENCE)
        try:
            yield server
            # The mail is the server's by now: a farewell that fails is no reason to send it again.
            with suppress(OSError, smtplib.SMTPException):
                server.quit()
        finally:
            server.close()

    def _secure(self, server: smtplib.SMTP) -> None:
        if self.implicit_tls:
            return
        server.ehlo()
        if server.has_extn("starttls"):
            server.starttls(context=ssl.create_default_context())
        elif self.demand_tls:
            raise NotSent("the server offers no TLS; append ?tls=off to send in the clear", final=True)


def compose(letter: Letter, sender: str) -> EmailMessage:
    """Return a letter as a message.

    Raises:
        ValueError: a header would hold a line break.
    """
    message = EmailMessage(policy=SMTP)
    message["From"] = sender
    message["To"] = letter.to
    message["Subject"] = letter.subject
    message["Date"] = formatdate()
    message["Message-ID"] = make_msgid(domain=parseaddr(sender)[1].rpartition("@")[2])
    # No holiday notes in return.
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(letter.text)
    return message


def _told(error: OSError | smtplib.SMTPException) -> NotSent:
    match error:
        case smtplib.SMTPAuthenticationError():
            return NotSent(
                f"the server refused the login ({error.smtp_code})", final=error.smtp_code >= FINAL
            )
        case smtplib.SMTPRecipientsRefused():
            code = max(code for code, _ in error.recipients.values())
            return NotSent(f"the server refused the recipient ({code})", final=code >= FINAL)
        case smtplib.SMTPResponseException():
            return NotSent(f"the server refused ({error.smtp_code})", final=error.smtp_code >= FINAL)
        case TimeoutError() | smtplib.SMTPServerDisconnected(__context__=TimeoutError()):
            return NotSent("the server did not answer in time", final=False)
        case smtplib.SMTPNotSupportedError():
            return NotSent("the server takes no login", final=True)
        case smtplib.SMTPException():
            return NotSent(f"the server hung up ({type(error).__name__})", final=False)
        case ssl.SSLCertVerificationError():
            return NotSent(f"the server's certificate is not good: {error.verify_message}", final=True)
        case ssl.SSLError():
            return NotSent(f"TLS failed ({error.reason})", final=False)
    return NotSent(f"the server cannot be reached: {error.strerror or type(error).__name__}", final=False)
