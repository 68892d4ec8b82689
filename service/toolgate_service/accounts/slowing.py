"""Slowing whoever guesses passwords, without locking anybody out (decisions §7).

Wrong passwords are counted by pair (an address and an e-mail), by address and by e-mail. A few are free; after that
each further one doubles the time until the next attempt is looked at, up to a modest longest. An attempt that comes
earlier is a 429 with ``Retry-After``: no password is hashed for it, nothing is written, and the time does not grow.
Every ten minutes without a failure forgive one.

Which counts an attempt waits for:

- the *pair's*, from the pair's last failure;
- the *e-mail's*, also from the pair's last failure, and only where the pair failed. Whoever comes from an address that
  did not fail gets in at once while others hammer the e-mail, and whoever mistyped waits a minute at most after that,
  whatever the others do. Many addresses together get one guess each before they wait for what all of them failed;
- the *address's*, from the address's last failure, unless the user logged in from there of late: someone who tries
  many e-mails from one office slows strangers there, not those who work there. It has more free failures and a
  shorter longest, because an address may be many people.

A verdict on a password is told only if the attempt may still be looked at once it has its turn: of any number of
simultaneous guesses no more are answered than one after the other would be. Counts are in the database, so that they
hold for every process; subjects are hashed under the gateway's secret, so that they tell nobody who tried to log in.
"""

import hmac
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_address

from sqlmodel import col, delete, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.models import LoginFailures, Session, User
from toolgate_service.errors import ApiError
from toolgate_service.storage.database import now
from toolgate_service.vault import Vault

#: after which one failure is forgiven
FORGIVEN = timedelta(minutes=10)
#: for how long a login makes its address the user's own: beyond the token, at whose end one has to log in again
FAMILIAR = timedelta(days=30)
#: forgotten rows removed with one failure: more than one failure makes, and few enough to cost nothing
SWEPT = 20
#: the part of an IPv6 address that one customer has
NETWORK = 64


@dataclass(frozen=True, slots=True)
class Pace:
    """How failures slow.

    Attributes:
        free: failures that cost nothing.
        longest: seconds that nobody has to wait longer than.
    """

    free: int
    longest: int

    @property
    def most(self) -> int:
        """Failures beyond which the delay grows no more; more are not counted, so that they are soon forgiven."""
        return self.free + math.ceil(math.log2(self.longest))

    def delay(self, failures: int) -> timedelta:
        """Return how long after the last of so many failures the next attempt is looked at."""
        if failures < self.free:
            return timedelta(0)
        return timedelta(seconds=min(self.longest, 2 ** (failures - self.free)))


PAIR = Pace(free=5, longest=60)
EMAIL = Pace(free=10, longest=60)
ADDRESS = Pace(free=30, longest=10)
#: how long a row can matter
KEPT = FORGIVEN * (max(pace.most for pace in (PAIR, EMAIL, ADDRESS)) + 1)


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt to prove an e-mail's password from an address: the three subjects that it counts for."""

    pair: str
    address: str
    email: str

    @classmethod
    def of(cls, vault: Vault, address: str | None, email: str) -> "Attempt":
        """Return the attempt's subjects."""

        def subject(kind: str, text: str) -> str:
            return f"{kind}:{hmac.digest(vault.login_key, text.encode(), 'sha256').hex()}"

        place, email = _network(address), email.strip().lower()
        return cls(
            pair=subject("pair", f"{place} {email}"),
            address=subject("address", place),
            email=subject("email", email),
        )

    @property
    def turns(self) -> tuple[str, str]:
        """The turns under which this attempt's counts are read and written."""
        return (self.address, self.email)

    def paces(self) -> Mapping[str, Pace]:
        """Return each subject's pace."""
        return {self.pair: PAIR, self.address: ADDRESS, self.email: EMAIL}


async def admit(session: AsyncSession, attempt: Attempt, user: User | None) -> None:
    """Let an attempt on, or say when to come again; the module's docstring has the rule.

    Raises:
        ApiError: 429, the attempt comes too early.
    """
    found = await _failures(session, attempt)
    moment = now(session)
    until = [moment]
    pair, address = found.get(attempt.pair), found.get(attempt.address)
    if pair is not None and (failed := _of_late(pair, moment)):
        shared = _of_late(found.get(attempt.email), moment)
        until.append(pair.last_failed_at + max(PAIR.delay(failed), EMAIL.delay(shared)))
    if address is not None and (delay := ADDRESS.delay(_of_late(address, moment))):
        ends = address.last_failed_at + delay
        if ends > moment and not await _familiar(session, attempt, user):
            until.append(ends)
    seconds = math.ceil((max(until) - moment).total_seconds())
    if seconds > 0:
        raise ApiError(
            429, f"Too many failed logins; retry after {seconds} seconds", {"Retry-After": str(seconds)}
        )


async def count_failure(session: AsyncSession, attempt: Attempt) -> None:
    """Count a wrong password, in a transaction that holds the attempt's turns."""
    moment = now(session)
    found = await _failures(session, attempt, lock=True)
    for subject, pace in attempt.paces().items():
        row = found.get(subject)
        failures = min(pace.most, _of_late(row, moment) + 1)
        if row is None:
            session.add(LoginFailures(subject=subject, failures=failures, last_failed_at=moment))
        else:
            row.failures, row.last_failed_at = failures, moment
    await session.flush()
    await _sweep(session, moment)


async def forgive(session: AsyncSession, attempt: Attempt) -> None:
    """Forget what a pair failed, now that it proved the password. Writes only where there is something to forget."""
    row = (await _failures(session, attempt)).get(attempt.pair)
    if row is not None:
        await session.exec(delete(LoginFailures).where(col(LoginFailures.subject) == attempt.pair))


async def _failures(
    session: AsyncSession, attempt: Attempt, *, lock: bool = False
) -> dict[str, LoginFailures]:
    query = select(LoginFailures).where(col(LoginFailures.subject).in_(tuple(attempt.paces())))
    if lock:
        # Another transaction's sweep may be about to remove one of them.
        query = query.order_by(col(LoginFailures.subject)).with_for_update()
    return {row.subject: row for row in (await session.exec(query)).all()}


def _of_late(row: LoginFailures | None, moment: datetime) -> int:
    if row is None:
        return 0
    return max(0, row.failures - max(0, (moment - row.last_failed_at) // FORGIVEN))


async def _familiar(session: AsyncSession, attempt: Attempt, user: User | None) -> bool:
    query = select(Session.id).where(
        Session.user_id == (user.id if user else ""),
        Session.address == attempt.address,
        Session.created_at > now(session) - FAMILIAR,
    )
    return (await session.exec(query.limit(1))).first() is not None


async def _sweep(session: AsyncSession, moment: datetime) -> None:
    stale = (
        select(LoginFailures.subject).where(col(LoginFailures.last_failed_at) < moment - KEPT).limit(SWEPT)
    )
    # What another transaction works on is left to it: two sweeps never wait for each other.
    subjects = (await session.exec(stale.with_for_update(skip_locked=True))).all()
    if subjects:
        await session.exec(delete(LoginFailures).where(col(LoginFailures.subject).in_(subjects)))


def _network(address: str | None) -> str:
    try:
        parsed = ip_address((address or "").partition("%")[0])
    except ValueError:
        return address or "unknown"
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped:
            return str(parsed.ipv4_mapped)
        return f"{IPv6Address(int(parsed) >> NETWORK << NETWORK)}/{NETWORK}"
    return str(parsed)
