"""Texts of the e-mails that the gateway sends."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Email:
    """E-mail to one recipient. The text may contain a secret link, so it is never logged.

    Attributes:
        kind: Name of this kind of e-mail in log lines.
        to: Address of the recipient.
        subject: Subject, one line.
        text: Body as plain text.
    """

    kind: str
    to: str
    subject: str
    text: str

    def __repr__(self) -> str:
        """Return the kind of e-mail and the domain of the recipient, without the text and the full address."""
        return f"Email({self.kind!r} to an address at {self.to.rpartition('@')[2]!r})"


def invitation(to: str, organization: str, role: str, link: str) -> Email:
    """Return the e-mail that invites a person to an organization."""
    return Email(
        "invitation",
        to,
        "You are invited to Toolgate",
        f"You are invited to join the organization '{organization}' on Toolgate as {role}.\n\n"
        f"Choose a password here, within 72 hours; the link works once:\n\n{link}\n\n"
        "If you did not expect this, ignore it: nothing happens.\n",
    )


def password_reset(to: str, link: str) -> Email:
    """Return the e-mail with the link for choosing a new password."""
    return Email(
        "password reset",
        to,
        "Your new Toolgate password",
        "Somebody, probably you, asked for a new password on Toolgate.\n\n"
        f"Choose it here, within an hour; the link works once:\n\n{link}\n\n"
        "If it was not you, ignore this: your password stays as it is.\n",
    )
