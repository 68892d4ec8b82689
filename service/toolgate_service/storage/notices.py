"""News for other gateways, announced in the transaction it is about: heard once that is committed, and otherwise never.

Only PostgreSQL passes it on, and only the smallest word of it: what kind of thing, whose, and which. Whoever hears it
looks for themselves.
"""

from collections.abc import Sequence
from typing import TypeAlias

from sqlalchemy.orm import Session
from sqlmodel.ext.asyncio.session import AsyncSession

#: where PostgreSQL's listeners listen
CHANNEL = "toolgate"

#: an approval has begun to wait, was voted on, or waits no more: its organization and its id follow
APPROVAL = "approval"
#: events wait to be delivered
EVENTS = "events"

_NOTICES = "toolgate.notices"
_AnySession: TypeAlias = Session | AsyncSession


def announce(session: _AnySession, *words: str) -> None:
    """Have something announced when the session's transaction is committed; the same thing once.

    Args:
        session: a write transaction's.
        words: what kind of thing, then identifiers; no blanks in them, nothing that anybody wrote.
    """
    session.info.setdefault(_NOTICES, {})[" ".join(words)] = None


def announced(session: _AnySession) -> Sequence[str]:
    """Return what is to be announced."""
    return list(session.info.get(_NOTICES, ()))
