"""The count of failed requests per address."""

import pytest

from toolgate_service.core.errors import bad_credentials
from toolgate_service.rate_limit import auth_failures
from toolgate_service.rate_limit.auth_failures import AuthFailures, network_of


class Clock:
    """Stands still until it is moved."""

    now = 600.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(auth_failures, "DELAY", 0)
    return Clock()


async def test_each_address_is_counted_alone_and_for_a_minute(clock: Clock) -> None:
    """What one does costs no other, and the next minute begins with nothing."""
    failures = AuthFailures(2, clock)
    found = [(await failures.reject("192.0.2.1", bad_credentials())).status_code for _ in range(3)]
    assert found == [401, 401, 429]
    assert (await failures.reject("192.0.2.2", bad_credentials())).status_code == 401
    clock.now += 60
    assert (await failures.reject("192.0.2.1", bad_credentials())).status_code == 401


async def test_retry_after_is_the_rest_of_the_minute(clock: Clock) -> None:
    """In whole seconds, at least one."""
    failures = AuthFailures(1, clock)
    failures.count("192.0.2.1")
    for moment, seconds in ((600.0, "60"), (630.5, "30"), (659.9, "1")):
        clock.now = moment
        error = await failures.reject("192.0.2.1", bad_credentials())
        assert error.headers is not None
        assert (error.headers["Retry-After"], error.headers["X-RateLimit-Remaining"]) == (seconds, "0")


async def test_memory_is_bounded(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond so many addresses all further ones share a count."""
    monkeypatch.setattr(auth_failures, "MAX_ADDRESSES", 3)
    failures = AuthFailures(2, clock)
    found = [failures.count(f"192.0.2.{number}") for number in range(10)]
    assert found == [False] * 5 + [True] * 5
    assert not failures.count("192.0.2.0")


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::ffff", "2001:db8:1:2::/64"),
        (None, "unknown"),
        ("a socket", "unknown"),
    ],
)
def test_customers_are_told_apart_by_network(address: str | None, network: str) -> None:
    """Whoever has one IPv6 address has 2^64 of them."""
    assert network_of(address) == network
