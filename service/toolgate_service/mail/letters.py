"""What the gateway writes to people."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Letter:
    """One mail. Its text may hold a secret link: it is never logged.

    Attributes:
        kind: what the log calls it.
        to: an e-mail address.
        subject: one line.
        text: plain text.
    """

    kind: str
    to: str
    subject: str
    text: str

    def __repr__(self) -> str:
        """Name the letter without its text and its reader."""
        return f"Letter({self.kind!r} to an address at {self.to.rpartition('@')[2]!r})"


def invitation(to: str, organization: str, role: str, link: str) -> Letter:
    """Write to somebody who is invited."""
    return Letter(
        "invitation",
        to,
        "You are invited to Toolgate",
        f"You are invited to join the organization '{organization}' on Toolgate as {role}.\n\n"
        f"Choose a password here, within 72 hours; the link works once:\n\n{link}\n\n"
        "If you did not expect this, ignore it: nothing happens.\n",
    )


def password_reset(to: str, link: str) -> Letter:
    """Write to somebody who forgot the password."""
    return Letter(
        "password reset",
        to,
        "Your new Toolgate password",
        "Somebody, probably you, asked for a new password on Toolgate.\n\n"
        f"Choose it here, within an hour; the link works once:\n\n{link}\n\n"
        "If it was not you, ignore this: your password stays as it is.\n",
    )
