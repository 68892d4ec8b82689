"""What an operator says about mail, checked before the gateway starts."""

from email.utils import parseaddr
from typing import Annotated

from pydantic import AfterValidator, SecretStr

from toolgate_service.mail.smtp import SmtpMailer
from toolgate_service.web.fields import is_email

SENDER = "Toolgate <toolgate@example.com>"
ADDRESS = "https://toolgate.example.com"


def _server(value: SecretStr) -> SecretStr:
    SmtpMailer.from_url(value.get_secret_value(), SENDER)
    return value


def _sender(value: str) -> str:
    if not value.isprintable() or not is_email(parseaddr(value)[1]):
        raise ValueError(f"{value!r} is no sender; write for instance {SENDER}")
    return value


MailServer = Annotated[SecretStr, AfterValidator(_server)]
Sender = Annotated[str, AfterValidator(_sender)]


def demand_all(smtp_url: SecretStr | None, mail_from: str | None, public_url: str | None) -> None:
    """See that whoever sets up mail says who writes it and where its links lead.

    Raises:
        ValueError: one of them is missing.
    """
    if smtp_url is None:
        return
    for name, value, example in (
        ("TOOLGATE_MAIL_FROM", mail_from, SENDER),
        ("TOOLGATE_PUBLIC_URL", public_url, ADDRESS),
    ):
        if value is None:
            raise ValueError(
                f"{name}: is needed beside TOOLGATE_SMTP_URL; set it, for instance to {example!r}"
            )
