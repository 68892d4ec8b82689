"""Mailer that sends e-mails through an SMTP server."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate, make_msgid, parseaddr

import aiosmtplib

from toolgate_service.core.mail_settings import SmtpServer
from toolgate_service.mail.queue import NotSent
from toolgate_service.mail.templates import Email

#: timeout in seconds for one response of the server
RESPONSE_SECONDS = 10
#: timeout in seconds for the whole delivery of an e-mail
TOTAL_SECONDS = 30

#: lowest SMTP code of a permanent failure; the server would reject a retry too
FINAL = 500


class SmtpMailer:
    """Sends e-mails through an SMTP server. The server's settings decide whether TLS is required."""

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
        """Connect and log in without sending an e-mail.

        Raises:
            NotSent: The connection or the login failed.
        """
        async with self._session() as client:
            await client.noop()

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[aiosmtplib.SMTP]:
        server = self.server
        client = aiosmtplib.SMTP(
            hostname=server.host,
            port=server.port,
            timeout=RESPONSE_SECONDS,
            use_tls=server.implicit_tls,
            start_tls=False,
        )
        try:
            # The client's own timeout applies to each response. A slow server could exceed every limit in total.
            async with asyncio.timeout(TOTAL_SECONDS):
                await client.connect()
                await self._start_tls(client)
                await self._log_in(client)
                yield client
        except (OSError, aiosmtplib.SMTPException) as error:
            # `from None` omits the server's message, which may repeat secrets that were sent to the server.
            raise _describe(error) from None
        else:
            # The server has already accepted the e-mail, so a failed QUIT must not cause a retry.
            with suppress(OSError, aiosmtplib.SMTPException):
                await client.quit()
        finally:
            client.close()

    async def _start_tls(self, client: aiosmtplib.SMTP) -> None:
        if self.server.implicit_tls:
            return
        if await _has_extension(client, "starttls"):
            await client.starttls()
        elif self.server.require_tls:
            raise NotSent("the server offers no TLS; append ?tls=off to send in the clear", final=True)

    async def _log_in(self, client: aiosmtplib.SMTP) -> None:
        if self.server.user is None or self.server.password is None:
            return
        if not await _has_extension(client, "auth"):
            raise NotSent("the server takes no login", final=True)
        await client.login(self.server.user, self.server.password)


def compose(email: Email, sender: str) -> EmailMessage:
    """Return the e-mail as a MIME message with all headers.

    Raises:
        ValueError: A header would contain a line break.
    """
    message = EmailMessage(policy=SMTP)
    message["From"] = sender
    message["To"] = email.to
    message["Subject"] = email.subject
    message["Date"] = formatdate()
    message["Message-ID"] = make_msgid(domain=parseaddr(sender)[1].rpartition("@")[2])
    # This header (RFC 3834) prevents automatic replies.
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(email.text)
    return message


async def _has_extension(client: aiosmtplib.SMTP, name: str) -> bool:
    try:
        await client.ehlo()
    except aiosmtplib.SMTPHeloError:
        # The server supports only HELO, so it has no extensions.
        return False
    return client.supports_extension(name)


def _describe(error: BaseException) -> NotSent:
    match error:
        case aiosmtplib.SMTPAuthenticationError():
            return NotSent(f"the server refused the login ({error.code})", final=error.code >= FINAL)
        case aiosmtplib.SMTPRecipientsRefused():
            code = max(refused.code for refused in error.recipients)
            return NotSent(f"the server refused the recipient ({code})", final=code >= FINAL)
        case aiosmtplib.SMTPResponseException():
            return NotSent(f"the server refused ({error.code})", final=error.code >= FINAL)
        case TimeoutError():
            return NotSent("the server did not answer in time", final=False)
        case aiosmtplib.SMTPConnectError(__cause__=OSError() as cause):
            return _describe(cause)
        case aiosmtplib.SMTPException():
            return NotSent(f"the server hung up ({type(error).__name__})", final=False)
        case ssl.SSLCertVerificationError():
            return NotSent(f"the server's certificate is not good: {error.verify_message}", final=True)
        case ssl.SSLError():
            return NotSent(f"TLS failed ({error.reason})", final=False)
        case OSError(strerror=str() as reason):
            return NotSent(f"the server cannot be reached: {reason}", final=False)
    return NotSent(f"the server cannot be reached: {str(error) or type(error).__name__}", final=False)
