"""E-mails that the gateway sends: their texts, a queue that sends them in the background, and an SMTP client."""

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate, make_msgid, parseaddr
from typing import TYPE_CHECKING, Protocol, TypeAlias

from toolgate_service.core.mail_settings import SmtpServer

if TYPE_CHECKING:
    import aiosmtplib


@dataclass(frozen=True, slots=True)
class Email:
    """E-mail to one recipient. Its text may contain a secret link, so it is never logged.

    Attributes:
        kind: Type of the e-mail for log lines, such as "invitation".
        to: E-mail address of the recipient.
        subject: Subject line.
        text: Body as plain text.
    """

    kind: str
    to: str
    subject: str
    text: str

    def __repr__(self) -> str:
        """Return the type of the e-mail and the domain of the recipient: a text for log lines, without secrets."""
        return f"Email({self.kind!r} to an address at {self.to.rpartition('@')[2]!r})"


def invitation(to: str, organization: str, role: str, link: str) -> Email:
    """Return the e-mail that invites a person to an organization."""
    return Email(
        "invitation",
        to,
        "You are invited to Toolgate",
        f"You are invited to join the organization '{organization}' on Toolgate as {role}.\n\n"
        f"Choose a password within 72 hours with this link, which works once:\n\n{link}\n\n"
        "If you did not expect this invitation, ignore this e-mail: no account is created.\n",
    )


def password_reset(to: str, link: str) -> Email:
    """Return the e-mail with a link that sets a new password."""
    return Email(
        "password reset",
        to,
        "Your new Toolgate password",
        "A new password was requested for your Toolgate account.\n\n"
        f"Choose it within an hour with this link, which works once:\n\n{link}\n\n"
        "If you did not request it, ignore this e-mail: your password does not change.\n",
    )


#: Seconds to wait before the first, second, third and fourth retry of an e-mail.
BACKOFF = (2.0, 15.0, 60.0, 300.0)
#: Maximum number of e-mails in the queue. Further e-mails are rejected.
MAX_QUEUED = 500
#: Maximum number of e-mails that are sent at the same time.
CONCURRENCY = 2
#: Maximum seconds that a shutdown waits for the e-mails in the queue.
SHUTDOWN_SECONDS = 3.0

MakeEmail: TypeAlias = Callable[[], Awaitable[Email | None]]

logger = logging.getLogger("toolgate.mail")


class NotSent(Exception):
    """Error for an e-mail that could not be sent. The message contains the reason, but no secrets.

    Attributes:
        final: True if the failure is permanent, so that a retry would fail too.
    """

    def __init__(self, reason: str, *, final: bool) -> None:
        super().__init__(reason)
        self.final = final


class Mailer(Protocol):
    """Interface of a client that sends e-mails, such as the SMTP client."""

    async def send(self, email: Email) -> None:
        """Send one e-mail.

        Raises:
            NotSent: The e-mail was not sent.
        """


class MailQueue:
    """Queue that sends e-mails in the background, so that requests do not wait for the mail server.

    Failures are logged.

    Attributes:
        results: Number of e-mails by result (``sent`` or ``given_up``), for the metrics.
    """

    def __init__(self, mailer: Mailer, backoff: Sequence[float] = BACKOFF) -> None:
        self.results = Counter[str](sent=0, given_up=0)
        self._mailer = mailer
        self._backoff = backoff
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(CONCURRENCY)

    @property
    def pending(self) -> int:
        """Number of e-mails that are not sent yet."""
        return len(self._tasks)

    def send(self, email: Email) -> bool:
        """Add an e-mail to the queue. If the queue is full, log an error and return False."""

        async def make() -> Email:
            return email

        added = self.make_and_send(make)
        if not added:
            logger.error(
                "%r is not sent: the queue is full, because %d e-mails wait to be sent",
                email,
                MAX_QUEUED,
            )
        return added

    def make_and_send(self, make: MakeEmail) -> bool:
        """Call `make` in the background, and send the e-mail that it returns. If it returns None, no e-mail is sent.

        Returns:
            False if the queue is full. In this case, `make` is not called.
        """
        if len(self._tasks) >= MAX_QUEUED:
            return False
        task = asyncio.create_task(self._process(make))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def close(self) -> None:
        """Wait at most `SHUTDOWN_SECONDS` for the e-mails in the queue, and log how many were not sent."""
        if not self._tasks:
            return
        _, left = await asyncio.wait(self._tasks, timeout=SHUTDOWN_SECONDS)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
            logger.error("%d e-mails were not sent before the gateway stopped", len(left))

    async def _process(self, make: MakeEmail) -> None:
        try:
            email = await make()
            if email is not None:
                await self._send_with_retries(email)
        except Exception:
            logger.exception("an e-mail is not sent, because its message could not be created")

    async def _send_with_retries(self, email: Email) -> None:
        for pause in (*self._backoff, None):
            failure = await self._attempt(email)
            if failure is None:
                self.results["sent"] += 1
                return
            if failure.final or pause is None:
                self.results["given_up"] += 1
                logger.error("%r was not sent and is not retried: %s", email, failure)
                return
            logger.warning("%r was not sent and is retried: %s", email, failure)
            await asyncio.sleep(pause)

    async def _attempt(self, email: Email) -> NotSent | None:
        try:
            async with self._slots:
                await self._mailer.send(email)
        except NotSent as failure:
            return failure
        return None


#: Maximum seconds to wait for one response of the mail server.
RESPONSE_SECONDS = 10
#: Maximum seconds for sending one e-mail, including connection and login.
TOTAL_SECONDS = 30

#: Lowest SMTP status code of a permanent failure, after which a retry would be useless.
FINAL = 500


class SmtpMailer:
    """SMTP client that sends e-mails. The gateway's SMTP settings determine whether TLS is required.

    The library `aiosmtplib` is imported only when the first e-mail is sent, because the import takes 30 ms and most
    gateways send no e-mails.
    """

    def __init__(self, server: SmtpServer, sender: str) -> None:
        self.server = server
        self._sender = sender

    async def send(self, email: Email) -> None:
        """Send one e-mail.

        Raises:
            NotSent: The e-mail was not sent.
        """
        message = compose(email, self._sender)
        async with self._session() as client:
            await client.send_message(message)

    async def check_connection(self) -> None:
        """Connect to the mail server and log in, without sending an e-mail.

        Raises:
            NotSent: The connection or the login failed.
        """
        async with self._session() as client:
            await client.noop()

    @asynccontextmanager
    async def _session(self) -> "AsyncIterator[aiosmtplib.SMTP]":
        import aiosmtplib

        server = self.server
        client = aiosmtplib.SMTP(
            hostname=server.host,
            port=server.port,
            timeout=RESPONSE_SECONDS,
            use_tls=server.implicit_tls,
            start_tls=False,
        )
        try:
            # Limit the total time: the timeout of the library `aiosmtplib` applies to each response, so a slow server
            # could delay the delivery without limit.
            async with asyncio.timeout(TOTAL_SECONDS):
                await client.connect()
                await self._start_tls(client)
                await self._log_in(client)
                yield client
        except (OSError, aiosmtplib.SMTPException) as error:
            # Do not show the server's message, because it can repeat secrets that were sent to the server.
            raise _describe(error) from None
        else:
            # The server has already accepted the e-mail, so an error of QUIT must not cause a retry.
            with suppress(OSError, aiosmtplib.SMTPException):
                await client.quit()
        finally:
            client.close()

    async def _start_tls(self, client: "aiosmtplib.SMTP") -> None:
        if self.server.implicit_tls:
            return
        if await _has_extension(client, "starttls"):
            await client.starttls()
        elif self.server.require_tls:
            raise NotSent(
                "the server does not support TLS; append ?tls=off to the URL to send without encryption",
                final=True,
            )

    async def _log_in(self, client: "aiosmtplib.SMTP") -> None:
        if self.server.user is None or self.server.password is None:
            return
        if not await _has_extension(client, "auth"):
            raise NotSent(
                "the server does not support a login; remove the user and password from the URL", final=True
            )
        await client.login(self.server.user, self.server.password)


def compose(email: Email, sender: str) -> EmailMessage:
    """Return the e-mail as a MIME message with all headers.

    Raises:
        ValueError: The subject, an address or another header contains a line break.
    """
    message = EmailMessage(policy=SMTP)
    message["From"] = sender
    message["To"] = email.to
    message["Subject"] = email.subject
    message["Date"] = formatdate()
    message["Message-ID"] = make_msgid(domain=parseaddr(sender)[1].rpartition("@")[2])
    # With this header (RFC 3834), mail systems do not send automatic replies.
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(email.text)
    return message


async def _has_extension(client: "aiosmtplib.SMTP", name: str) -> bool:
    from aiosmtplib import SMTPHeloError

    try:
        await client.ehlo()
    except SMTPHeloError:
        # The server understands only HELO, so it has no extensions.
        return False
    return client.supports_extension(name)


def _describe(error: BaseException) -> NotSent:
    import aiosmtplib

    match error:
        case aiosmtplib.SMTPAuthenticationError():
            return NotSent(f"the server rejected the login ({error.code})", final=error.code >= FINAL)
        case aiosmtplib.SMTPRecipientsRefused():
            code = max(refused.code for refused in error.recipients)
            return NotSent(f"the server rejected the recipient ({code})", final=code >= FINAL)
        case aiosmtplib.SMTPResponseException():
            return NotSent(f"the server responded with error {error.code}", final=error.code >= FINAL)
        case TimeoutError():
            return NotSent("the server did not respond in time", final=False)
        case aiosmtplib.SMTPConnectError(__cause__=OSError() as cause):
            return _describe(cause)
        case aiosmtplib.SMTPException():
            return NotSent(f"the connection to the server failed ({type(error).__name__})", final=False)
        case ssl.SSLCertVerificationError():
            return NotSent(f"the server's certificate is not valid: {error.verify_message}", final=True)
        case ssl.SSLError():
            return NotSent(f"TLS failed ({error.reason})", final=False)
        case OSError(strerror=str() as reason):
            return NotSent(f"the server cannot be reached: {reason}", final=False)
    return NotSent(f"the server cannot be reached: {str(error) or type(error).__name__}", final=False)
