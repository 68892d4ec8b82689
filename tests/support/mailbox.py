"""Mail servers of this machine, well-behaved and not, that keep what they were sent."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self, cast

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from support.leaks import KNOWN
from support.waiting import until

USER, MAIL_PASSWORD = "gate", "p@ss word/?#"
KNOWN.learn(MAIL_PASSWORD)


class Mailbox:
    """A mail server that keeps every mail.

    Attributes:
        mails: what it was sent, in order.
        over_tls: for each of them, whether it came over TLS.
        logins: users who logged in.
        answers: what it answers to the next mails instead of taking them, in order.
    """

    def __init__(
        self, *, tls: ssl.SSLContext | None = None, implicit: bool = False, login: bool = False
    ) -> None:
        self.mails: list[EmailMessage] = []
        self.over_tls: list[bool] = []
        self.logins: list[str] = []
        self.answers: list[str] = []
        self._controller = _Controller(
            self,
            hostname="127.0.0.1",
            tls=tls,
            implicit=implicit,
            login=login,
        )

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._controller.port
        return port

    def url(self, *, login: bool = False, host: str = "127.0.0.1", scheme: str = "smtp") -> str:
        """Return its URL, as the gateway is told."""
        user = "gate:p%40ss%20word%2F%3F%23@" if login else ""
        return f"{scheme}://{user}{host}:{self.port}"

    def next(self, number: int = 0) -> EmailMessage:
        """Wait for a mail."""
        return until(lambda: self.mails[number] if len(self.mails) > number else None)  # type: ignore[return-value]  # until returns what is true

    async def handle_DATA(self, _server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 - aiosmtpd calls it so
        """Keep a mail, or answer what was asked for."""
        if self.answers:
            return self.answers.pop(0)
        content = cast("bytes", envelope.content)
        self.mails.append(message_from_bytes(content, policy=default))
        self.over_tls.append(session.ssl is not None)
        return "250 OK"

    def authenticate(self, _s: SMTP, _session: Session, _e: Envelope, _m: str, data: Any) -> AuthResult:
        """Let in whoever knows the password."""
        fits = isinstance(data, LoginPassword) and (data.login, data.password) == (
            USER.encode(),
            MAIL_PASSWORD.encode(),
        )
        if fits:
            self.logins.append(USER)
        return AuthResult(success=fits, handled=False)

    def start(self) -> Self:
        """Listen."""
        self._controller.start()
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self._controller.stop()


class _Controller(Controller):
    def __init__(
        self,
        mailbox: Mailbox,
        *,
        hostname: str,
        tls: ssl.SSLContext | None,
        implicit: bool,
        login: bool,
    ) -> None:
        self._mailbox, self._starttls, self._login = mailbox, None if implicit else tls, login
        ssl_context = tls if implicit else None
        super().__init__(mailbox, hostname=hostname, port=0, ssl_context=ssl_context, ready_timeout=60)

    def _trigger_server(self) -> None:
        # aiosmtpd connects to the port once: by now the server has it from the kernel.
        self.port = cast("asyncio.Server", self.server).sockets[0].getsockname()[1]
        super()._trigger_server()  # type: ignore[no-untyped-call]  # the package has no annotation here

    def factory(self) -> SMTP:
        return SMTP(
            self._mailbox,
            hostname="mail.test",
            tls_context=self._starttls,
            authenticator=self._mailbox.authenticate if self._login else None,
            # With TLS from the first byte it does not see that there is any.
            auth_require_tls=self._starttls is not None,
        )


@contextmanager
def misbehaving(behave: Callable[[socket.socket, threading.Event], None]) -> Iterator[int]:
    """Listen, and do something with every connection; it is told by an event when the test is over."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    try:
                        behave(connection, over)
                    except OSError:
                        continue

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            over.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def certificate(folder: Path, *, days: int = 1) -> tuple[ssl.SSLContext, Path]:
    """Return a server's side of TLS for 127.0.0.1, and the file that makes its certificate trusted."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "mail.test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=30))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, SHA256())
    )
    chain, secret = folder / "mail.crt", folder / "mail.key"
    chain.write_bytes(made.public_bytes(Encoding.PEM))
    secret.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(chain, secret)
    return context, chain
