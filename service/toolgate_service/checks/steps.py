"""What a check is judged by, step by step (decisions §4-5): each verdict names the one at which it was reached."""

from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias


class Step(StrEnum):
    """A step, in the order in which they are taken.

    Whoever reaches one up to `APPROVAL` has passed all before it. Of those behind it only some are taken, and each is
    told of as it is passed.
    """

    KEY = "key"
    ORGANIZATION = "organization"
    RATE = "rate"
    AGENT = "agent"
    SWITCHED_ON = "switched on"
    PERMISSION = "permission"
    AMOUNT_NAMED = "amount named"
    AMOUNT_READ = "amount read"
    AMOUNT_WITHIN = "amount within"
    APPROVAL = "approval"
    #: an earlier try of the very same attempt was let through
    ATTEMPT = "attempt"
    #: the approval that the check names is one of its own
    NAMED = "named"
    #: the call was not let through before
    CALL = "call"
    #: an approval to be used up
    APPROVED = "approved"
    #: a person changed the very call
    CHANGED = "changed"
    #: the approval that the check names is still open
    OPEN = "open"
    #: nobody said no to the same of late
    DENIED = "denied"
    #: nobody said no to the action again and again
    DENIALS = "denials"
    #: something that allows it for a while
    ALLOWED = "allowed"
    #: a request that waits already
    WAITING = "waiting"
    #: room for one more request
    ROOM = "room"
    #: a new request
    ASKED = "asked"


#: is told of a step that was passed, and of what was found there
Hear: TypeAlias = Callable[[Step, str], None]


def nobody(_step: Step, _found: str) -> None:
    """Hear of a step, and do nothing."""
