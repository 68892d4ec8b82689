"""Login throttle: delays login attempts after failures, but never locks a user out.

The gateway counts failed logins for three subjects: the client's IP address, the e-mail address, and the pair of IP
address and e-mail address. The first failures of a subject cause no delay. Each further failure doubles the delay
before the next attempt, up to a maximum. The gateway rejects an attempt during a delay with the status 429 and the
header ``Retry-After``. A rejected attempt does not extend the delay, and costs neither a password hash nor a database
write. For every ten minutes without a failure, one failure is forgiven: it no longer counts.

An attempt is allowed when all three delays have passed:

- The delay of the *pair* starts at the last failure of the pair.
- The delay of the *e-mail address* also starts at the last failure of the pair, and applies only if the pair has
  failures. Failures from an attacker's IP address therefore do not delay a user at another IP address. An attacker with
  many IP addresses gets one guess per IP address without delay. The delay of every further guess depends on the
  failures from all IP addresses.
- The delay of the *IP address* starts at the last failure from this address. It does not apply to users who recently
  logged in from this address: if an attacker tries many e-mail addresses from an office, the people who work there can
  still log in. Because many people may share an IP address, more failures are free of delay, and the maximum delay is
  shorter.

The gateway checks the delays before it verifies the password. It checks them again, under a lock, before it returns the
result. Parallel guesses therefore get no more results than sequential guesses. The counts are stored in the database
and apply to all gateway processes. The subjects are hashed with the gateway's secret, so the table does not reveal who
tried to log in.
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
from toolgate_service.core.crypto import Vault
from toolgate_service.core.errors import ApiError
from toolgate_service.db.database import now

#: time without a failed login after which one earlier failure is forgiven
FORGIVE_AFTER = timedelta(minutes=10)
#: time after a login during which the client's IP address counts as known for the user. The delay of a known address
#: does not apply to the user. The time is longer than the seven days for which a session token is valid, so that the
#: address is still known at the next login.
KNOWN_ADDRESS_PERIOD = timedelta(days=30)
#: maximum number of outdated rows of the table `login_failures` that one failed login deletes; this is more than the
#: three rows that a failed login can add, so outdated rows do not accumulate
STALE_BATCH = 20
#: length in bits of an IPv6 network prefix; all addresses of such a network count as one, because a provider assigns
#: the whole network to one customer
IPV6_PREFIX = 64


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff after failed logins.

    Attributes:
        free: Number of failures that causes the first delay, of one second. Each further failure doubles the delay.
        max_delay: Maximum delay in seconds.
    """

    free: int
    max_delay: int

    @property
    def max_failures(self) -> int:
        """Number of failures at which the delay reaches its maximum. The gateway stores no higher number."""
        return self.free + math.ceil(math.log2(self.max_delay))

    def delay(self, failures: int) -> timedelta:
        """Return the minimum time between the last of `failures` failed logins and the next attempt."""
        if failures < self.free:
            return timedelta(0)
        return timedelta(seconds=min(self.max_delay, 2 ** (failures - self.free)))


PAIR = Backoff(free=5, max_delay=60)
EMAIL = Backoff(free=10, max_delay=60)
ADDRESS = Backoff(free=30, max_delay=10)
#: time from the last failure of a `login_failures` row until all its failures are forgiven and the row can be deleted
KEEP_FOR = FORGIVE_AFTER * (max(backoff.max_failures for backoff in (PAIR, EMAIL, ADDRESS)) + 1)


@dataclass(frozen=True, slots=True)
class LoginAttempt:
    """Login attempt, identified by three hashes: of the IP address, of the e-mail address, and of both together."""

    pair: str
    address: str
    email: str

    @classmethod
    def of(cls, vault: Vault, address: str | None, email: str) -> "LoginAttempt":
        """Create a login attempt from the client's IP address and an e-mail address, and store only their hashes."""

        def subject(kind: str, text: str) -> str:
            return f"{kind}:{hmac.digest(vault.login_key, text.encode(), 'sha256').hex()}"

        network, email = _network(address), email.strip().lower()
        return cls(
            pair=subject("pair", f"{network} {email}"),
            address=subject("address", network),
            email=subject("email", email),
        )

    @property
    def lock_keys(self) -> tuple[str, str]:
        """Names of the database locks that a transaction must hold to change the failure counts of this attempt."""
        return (self.address, self.email)

    def backoffs(self) -> Mapping[str, Backoff]:
        """Return the backoff for each hashed subject: the IP address, the e-mail address, and both together."""
        return {self.pair: PAIR, self.address: ADDRESS, self.email: EMAIL}


async def require_allowed(session: AsyncSession, attempt: LoginAttempt, user: User | None) -> None:
    """Raise an error if the login must still be delayed because of earlier failures.

    The docstring of the module `login_throttle` describes the delays. `user` is the user with the e-mail address of the
    attempt, if there is one.

    Raises:
        ApiError: 429, with the remaining seconds in the header ``Retry-After``.
    """
    found = await _failures(session, attempt)
    moment = now(session)
    until = [moment]
    pair, address = found.get(attempt.pair), found.get(attempt.address)
    if pair is not None and (failed := _current_failures(pair, moment)):
        shared = _current_failures(found.get(attempt.email), moment)
        until.append(pair.last_failed_at + max(PAIR.delay(failed), EMAIL.delay(shared)))
    if address is not None and (delay := ADDRESS.delay(_current_failures(address, moment))):
        ends = address.last_failed_at + delay
        if ends > moment and not await _is_known_address(session, attempt, user):
            until.append(ends)
    seconds = math.ceil((max(until) - moment).total_seconds())
    if seconds > 0:
        raise ApiError(
            429, f"Too many failed logins; retry after {seconds} seconds", {"Retry-After": str(seconds)}
        )


async def count_failure(session: AsyncSession, attempt: LoginAttempt) -> None:
    """Count a login with a wrong password. The transaction must hold the locks `attempt.lock_keys`."""
    moment = now(session)
    found = await _failures(session, attempt, lock=True)
    for subject, backoff in attempt.backoffs().items():
        row = found.get(subject)
        failures = min(backoff.max_failures, _current_failures(row, moment) + 1)
        if row is None:
            session.add(LoginFailures(subject=subject, failures=failures, last_failed_at=moment))
        else:
            row.failures, row.last_failed_at = failures, moment
    await session.flush()
    await _delete_stale(session, moment)


async def clear_failures(session: AsyncSession, attempt: LoginAttempt) -> None:
    """Delete the failures of the pair of IP address and e-mail address after a login with the correct password.

    The failures that are counted for the IP address alone and for the e-mail address alone remain.
    """
    row = (await _failures(session, attempt)).get(attempt.pair)
    if row is not None:
        await session.exec(delete(LoginFailures).where(col(LoginFailures.subject) == attempt.pair))


async def _failures(
    session: AsyncSession, attempt: LoginAttempt, *, lock: bool = False
) -> dict[str, LoginFailures]:
    query = select(LoginFailures).where(col(LoginFailures.subject).in_(tuple(attempt.backoffs())))
    if lock:
        # Lock the rows, so that no other transaction deletes an outdated row before this one updates it.
        query = query.order_by(col(LoginFailures.subject)).with_for_update()
    return {row.subject: row for row in (await session.exec(query)).all()}


def _current_failures(row: LoginFailures | None, moment: datetime) -> int:
    if row is None:
        return 0
    return max(0, row.failures - max(0, (moment - row.last_failed_at) // FORGIVE_AFTER))


async def _is_known_address(session: AsyncSession, attempt: LoginAttempt, user: User | None) -> bool:
    query = select(Session.id).where(
        Session.user_id == (user.id if user else ""),
        Session.address == attempt.address,
        Session.created_at > now(session) - KNOWN_ADDRESS_PERIOD,
    )
    return (await session.exec(query.limit(1))).first() is not None


async def _delete_stale(session: AsyncSession, moment: datetime) -> None:
    stale = (
        select(LoginFailures.subject)
        .where(col(LoginFailures.last_failed_at) < moment - KEEP_FOR)
        .limit(STALE_BATCH)
    )
    # Skip rows that another transaction has locked, so that two concurrent cleanups never wait for each other.
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
        return f"{IPv6Address(int(parsed) >> IPV6_PREFIX << IPV6_PREFIX)}/{IPV6_PREFIX}"
    return str(parsed)
