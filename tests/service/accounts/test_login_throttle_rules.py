"""The rule by which failed logins slow, on a clock that the tests set (decisions §7)."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from sqlmodel import func, select
from support.databases import database_url
from support.insight import vault

from toolgate_service.accounts.login_throttle import (
    ADDRESS,
    EMAIL,
    FORGIVE_AFTER,
    KEEP_FOR,
    PAIR,
    Backoff,
    LoginAttempt,
    clear_failures,
    count_failure,
    require_allowed,
)
from toolgate_service.accounts.models import LoginFailures, User
from toolgate_service.accounts.schemas import Registration
from toolgate_service.accounts.sessions import open_session
from toolgate_service.core.errors import ApiError
from toolgate_service.db.database import ACCOUNTS, NOW, Database, open_database
from toolgate_service.organizations.service import create_organization

START = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOME, OFFICE, CAFE = "192.0.2.1", "198.51.100.1", "203.0.113.1"
ANNA, BERT = "anna@example.test", "bert@example.test"


class Door:
    """Attempts at a database's door, by a clock of the test's own."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.time = START

    def later(self, delta: timedelta) -> None:
        self.time += delta

    async def wait(self, address: str | None, email: str, user: User | None = None) -> int:
        """Return how many seconds an attempt would have to wait."""
        async with self.database.writing() as session:
            session.info[NOW] = self.time
            try:
                await require_allowed(session, LoginAttempt.of(vault(), address, email), user)
            except ApiError as refusal:
                return int((refusal.headers or {})["Retry-After"])
            return 0

    async def fail(self, address: str | None, email: str, times: int = 1) -> None:
        """Fail so often in a moment, whether or not it would have been let on."""
        for _ in range(times):
            async with self.database.writing() as session:
                session.info[NOW] = self.time
                await count_failure(session, LoginAttempt.of(vault(), address, email))

    async def succeed(self, address: str, email: str) -> None:
        async with self.database.writing() as session:
            session.info[NOW] = self.time
            await clear_failures(session, LoginAttempt.of(vault(), address, email))

    async def join(self, address: str, email: str) -> User:
        """Register from an address."""
        async with self.database.writing(ACCOUNTS) as session:
            session.info[NOW] = self.time
            form = Registration(email=email, password="correct horse", organization_name="Acme")
            place = LoginAttempt.of(vault(), address, email).address
            user = await create_organization(session, vault(), form, "hash", "free")
            await open_session(session, vault(), user, "full", address=place)
            return (await session.exec(select(User).where(User.email == email))).one()

    async def rows(self) -> int:
        async with self.database.reading() as session:
            return (await session.exec(select(func.count()).select_from(LoginFailures))).one()


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    """A door at which nobody has failed yet."""
    database = open_database(database_url(tmp_path))
    await database.start()
    yield Door(database)
    await database.close()


async def test_a_few_failures_are_free_and_then_the_wait_doubles(door: Door) -> None:
    """Five wrong passwords cost nothing; then a second, doubling to a minute and no longer."""
    waits = []
    for _ in range(15):
        waits.append(await door.wait(HOME, ANNA))
        door.later(timedelta(seconds=waits[-1]))
        assert await door.wait(HOME, ANNA) == 0, "after the wait the attempt is looked at"
        await door.fail(HOME, ANNA)
    assert waits == [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]


async def test_coming_too_early_does_not_prolong_the_wait(door: Door) -> None:
    """Refused attempts are not counted: whoever hammers waits no longer, and the wait runs down."""
    await door.fail(HOME, ANNA, times=9)
    waits = []
    for _ in range(16):
        waits.append(await door.wait(HOME, ANNA))
        door.later(timedelta(seconds=1))
    assert waits == list(range(16, 0, -1))
    assert await door.wait(HOME, ANNA) == 0


async def test_time_forgives(door: Door) -> None:
    """Every ten minutes without a failure forgive one; in two hours any pair starts afresh."""
    await door.fail(HOME, ANNA, times=100)
    door.later(FORGIVE_AFTER * (PAIR.max_failures - PAIR.free + 1))
    await door.fail(HOME, ANNA)
    assert await door.wait(HOME, ANNA) == 1
    door.later(FORGIVE_AFTER * PAIR.max_failures)
    await door.fail(HOME, ANNA, times=PAIR.free - 1)
    assert await door.wait(HOME, ANNA) == 0


async def test_the_right_password_forgives_its_pair(door: Door) -> None:
    """Whoever got in starts afresh from that address; what others failed stays."""
    await door.fail(HOME, ANNA, times=PAIR.free)
    await door.fail(CAFE, ANNA, times=PAIR.free)
    await door.succeed(HOME, ANNA)
    assert await door.wait(HOME, ANNA) == 0
    assert await door.wait(CAFE, ANNA) > 0


async def test_nobody_is_locked_out_by_others(door: Door) -> None:
    """However many addresses hammer an e-mail, one that did not fail gets in at once."""
    for number in range(50):
        await door.fail(f"203.0.113.{number}", ANNA, times=3)
    assert await door.wait(HOME, ANNA) == 0
    assert await door.wait("203.0.113.7", BERT) == 0, "another e-mail is none of this"


async def test_whoever_mistyped_waits_a_minute_at_most_whatever_others_do(door: Door) -> None:
    """One's own wait runs from one's own last failure, though the others never stop."""
    await door.fail(CAFE, ANNA, times=100)
    await door.fail(HOME, ANNA)
    assert await door.wait(HOME, ANNA) == EMAIL.max_delay
    for second in range(EMAIL.max_delay):
        await door.fail(CAFE, ANNA)
        assert await door.wait(HOME, ANNA) == EMAIL.max_delay - second
        door.later(timedelta(seconds=1))
    assert await door.wait(HOME, ANNA) == 0


async def test_many_addresses_get_one_guess_each(door: Door) -> None:
    """Once an e-mail was failed often, each address that failed at all waits for what all of them failed."""
    for number in range(EMAIL.max_failures):
        await door.fail(f"203.0.113.{number}", ANNA)
    waits = [await door.wait(f"203.0.113.{number}", ANNA) for number in range(EMAIL.max_failures)]
    assert set(waits) == {EMAIL.max_delay}


async def test_one_address_that_tries_many_emails_is_slowed(door: Door) -> None:
    """Thirty are free, for an address may be many people; then it waits, ten seconds at most."""
    waits = []
    for number in range(45):
        waits.append(await door.wait(OFFICE, f"user-{number}@example.test"))
        door.later(timedelta(seconds=waits[-1]))
        await door.fail(OFFICE, f"user-{number}@example.test")
    assert waits[: ADDRESS.free] == [0] * ADDRESS.free
    assert waits[ADDRESS.free :] == [1, 2, 4, 8] + [ADDRESS.max_delay] * 11
    assert await door.wait(HOME, "user-1@example.test") == 0


async def test_who_works_at_a_slowed_address_gets_in(door: Door) -> None:
    """A user who logged in from there of late does not wait for what strangers fail there."""
    anna = await door.join(OFFICE, ANNA)
    bert = await door.join(HOME, BERT)
    await door.fail(OFFICE, "nobody@example.test", times=60)
    assert await door.wait(OFFICE, ANNA, anna) == 0
    assert await door.wait(OFFICE, BERT, bert) == ADDRESS.max_delay
    async with door.database.writing(bert.organization_id) as session:
        session.info[NOW] = door.time
        place = LoginAttempt.of(vault(), OFFICE, BERT).address
        await open_session(session, vault(), bert, "full", address=place)
    assert await door.wait(OFFICE, BERT, bert) == 0
    for days, seconds in ((8, 0), (23, ADDRESS.max_delay)):
        door.later(timedelta(days=days))
        await door.fail(OFFICE, "nobody@example.test", times=60)
        assert await door.wait(OFFICE, BERT, bert) == seconds, (
            "beyond the token's week, and not beyond a month"
        )


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("fe80::1%eth0", "fe80::1", True),
        ("192.0.2.1", "192.0.2.2", False),
        (None, "192.0.2.2", False),
    ],
)
def test_an_address_is_what_one_customer_has(one: str | None, other: str, same: bool) -> None:
    """An IPv6 address counts by its first 64 bits, of which its owner has all; IPv4 as it is."""
    subjects = [LoginAttempt.of(vault(), address, ANNA).address for address in (one, other)]
    assert (subjects[0] == subjects[1]) is same


def test_subjects_tell_nobody_and_ignore_spelling() -> None:
    """Neither address nor e-mail stands in them; the e-mail counts in lower case (decisions §2, §7)."""
    attempt = LoginAttempt.of(vault(), HOME, ANNA)
    assert attempt == LoginAttempt.of(vault(), HOME, f" {ANNA.upper()} ")
    for subject in (attempt.pair, attempt.address, attempt.email):
        assert HOME not in subject
        assert "anna" not in subject
        assert len(subject) <= 80


def test_a_pace_never_falls() -> None:
    """More failures never mean a shorter wait, and the longest is reached at `most`."""
    for pace in (PAIR, EMAIL, ADDRESS, Backoff(0, 1)):
        delays = [pace.delay(failures) for failures in range(pace.max_failures + 5)]
        assert all(earlier <= later for earlier, later in pairwise(delays))
        assert pace.delay(pace.max_failures) == timedelta(seconds=pace.max_delay)


async def test_what_is_forgotten_is_swept_away(door: Door) -> None:
    """Rows that can matter no more go, a few with each failure: guessing fills no disk."""
    for number in range(30):
        await door.fail(HOME, f"user-{number}@example.test")
    assert await door.rows() == 61
    door.later(KEEP_FOR + timedelta(seconds=1))
    for number in range(4):
        await door.fail(CAFE, f"user-{number}@example.test")
    assert await door.rows() == 9
