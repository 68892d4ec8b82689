"""Hashing in a bounded pool (decisions §7)."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from toolgate_service.core.crypto import Passwords
from toolgate_service.core.errors import ApiError


@pytest.fixture
def narrow() -> Iterator[Passwords]:
    """Room for one password, and one waiting."""
    passwords = Passwords(threads=1, queue=1)
    yield passwords
    passwords.close()


async def test_a_password_fits_its_hash_alone(narrow: Passwords) -> None:
    """Argon2id; another password does not fit, nor does any where there is no hash."""
    stored = await narrow.hash("correct horse")
    assert stored.startswith("$argon2id$")
    assert await narrow.verify("correct horse", stored) is True
    assert await narrow.verify("wrong horse", stored) is False
    assert await narrow.verify("password of no user", None) is False


async def test_beyond_the_queue_it_says_so_before_hashing(narrow: Passwords) -> None:
    """Of four at once two are hashed, two get a 429 with `Retry-After`; afterwards there is room again."""
    outcomes = await asyncio.gather(*[narrow.hash("password") for _ in range(4)], return_exceptions=True)
    refusals = [outcome for outcome in outcomes if isinstance(outcome, ApiError)]
    assert [refusal.status_code for refusal in refusals] == [429, 429]
    assert all(refusal.headers == {"Retry-After": "2"} for refusal in refusals)
    assert (await narrow.hash("password")).startswith("$argon2id$")


async def test_an_unknown_email_takes_as_long(narrow: Passwords) -> None:
    """Where there is no hash, one is checked all the same: nobody learns by the clock who is registered."""
    stored = await narrow.hash("correct horse")
    await narrow.verify("wrong horse", None)

    async def quickest(against: str | None) -> float:
        took = []
        for _ in range(5):
            begun = time.perf_counter()
            assert await narrow.verify("wrong horse", against) is False
            took.append(time.perf_counter() - begun)
        return min(took)

    known, unknown = await quickest(stored), await quickest(None)
    assert known / 3 < unknown < known * 3
