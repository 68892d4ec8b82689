"""Failed logins over HTTP: slowed before a password is hashed, never locked out (decisions §7)."""

import math
import time
from collections import Counter
from itertools import count
from pathlib import Path

import httpx
import pytest
from support.crowd import together
from support.gateway import PASSWORD, LiveGateway, Owner
from support.insight import execute, rows, vault
from support.shapes import complaints, refused
from support.team import client, fresh_email
from support.waiting import until

from toolgate_service.accounts.login_throttle import ADDRESS, PAIR, LoginAttempt

_hosts = count(1)


@pytest.fixture
def address() -> str:
    """An address of this machine from which nobody has called yet."""
    number = next(_hosts)
    return f"127.77.{number // 250}.{number % 250 + 1}"


def login(owner: Owner, address: str, password: str = "wrong", email: str | None = None) -> httpx.Response:
    with client(owner.url, address=address) as http:
        return http.post("/auth/login", json={"email": email or owner.email, "password": password})


def fail(owner: Owner, address: str, times: int, email: str | None = None) -> None:
    for _ in range(times):
        refused(login(owner, address, email=email), 401, "Invalid e-mail or password")


def slowed(answer: httpx.Response) -> int:
    """Assert that an answer is the 429 of too many failures; return after how many seconds to come again."""
    seconds = int(answer.headers["Retry-After"])
    refused(answer, 429, f"Too many failed logins; retry after {seconds} seconds")
    return seconds


def give_time(gateway: LiveGateway, subject: str) -> None:
    """Let a subject that is about to be slowed wait for its longest: a busy machine takes more than a second."""
    assert execute(gateway, "UPDATE login_failures SET failures = 100 WHERE subject = ?", subject) == 1


def failures(gateway: LiveGateway, subject: str) -> int:
    found = rows(gateway, "SELECT failures FROM login_failures WHERE subject = ?", subject)
    return int(found[0][0]) if found else 0


def test_whoever_keeps_guessing_waits_and_then_gets_in(
    gateway: LiveGateway, newcomer: Owner, address: str
) -> None:
    """Beyond the free failures even the right password is 429 with `Retry-After`; once that is over it works."""
    pair = LoginAttempt.of(vault(), address, newcomer.email).pair
    fail(newcomer, address, PAIR.free)
    give_time(gateway, pair)
    assert 50 < slowed(login(newcomer, address, PASSWORD)) <= PAIR.max_delay
    execute(gateway, "UPDATE login_failures SET failures = ? WHERE subject = ?", PAIR.free, pair)
    until(lambda: login(newcomer, address, PASSWORD).status_code == 200)
    fail(newcomer, address, PAIR.free)


def test_an_unknown_email_is_slowed_alike(gateway: LiveGateway, acme: Owner, address: str) -> None:
    """Nobody learns from the slowing which e-mails are registered."""
    nobody = fresh_email("nobody")
    fail(acme, address, PAIR.free, email=nobody)
    give_time(gateway, LoginAttempt.of(vault(), address, nobody).pair)
    slowed(login(acme, address, email=nobody))


def test_others_who_hammer_an_email_keep_its_owner_out_for_no_moment(newcomer: Owner, address: str) -> None:
    """While three addresses fail without pause, the owner's own address gets in at the first try, each time."""
    hammers = [f"127.78.0.{number + 1}" for number in range(3)]
    for hammer in hammers * PAIR.free:
        login(newcomer, hammer)
    for _ in range(3):
        *refusals, own = together(
            *[lambda hammer=hammer: login(newcomer, hammer) for hammer in hammers],
            lambda: login(newcomer, address, PASSWORD),
        )
        assert own.status_code == 200
        assert {answer.status_code for answer in refusals} <= {401, 429}


def test_many_guesses_at_once_are_answered_as_one_after_the_other(
    gateway: LiveGateway, newcomer: Owner, address: str
) -> None:
    """Of twenty simultaneous guesses no more get a verdict than the free ones and what time allows."""
    begun = time.monotonic()
    answers = together(*[lambda: login(newcomer, address)] * 20)
    elapsed = time.monotonic() - begun
    verdicts = Counter(answer.status_code for answer in answers)
    assert set(verdicts) == {401, 429}
    # After the free ones a verdict costs 1, 2, 4 … seconds.
    assert PAIR.free <= verdicts[401] <= PAIR.free + math.log2(elapsed + 1)
    subject = LoginAttempt.of(vault(), address, newcomer.email).pair
    assert failures(gateway, subject) == verdicts[401], "each verdict was counted, nothing else was"


def test_a_refusal_writes_nothing(gateway: LiveGateway, newcomer: Owner, address: str) -> None:
    """Attempts that come too early leave the counts as they were, however many they are."""
    subject = LoginAttempt.of(vault(), address, newcomer.email).pair
    fail(newcomer, address, PAIR.free)
    give_time(gateway, subject)
    with client(newcomer.url, address=address) as http:
        body = {"email": newcomer.email, "password": "wrong"}
        answers = [http.post("/auth/login", json=body) for _ in range(20)]
    assert {slowed(answer) > 0 for answer in answers} == {True}
    assert failures(gateway, subject) == 100


def test_the_counts_hold_for_every_process(tmp_path: Path) -> None:
    """A second gateway on the same database slows whom the first one saw failing."""
    with LiveGateway(tmp_path) as first, LiveGateway(tmp_path) as second, Owner(first.url) as owner:
        fail(owner, "127.79.0.1", PAIR.free)
        give_time(first, LoginAttempt.of(vault(), "127.79.0.1", owner.email).pair)
        owner.url = second.url
        slowed(login(owner, "127.79.0.1"))


def test_one_address_cannot_try_many_emails(tmp_path: Path) -> None:
    """Beyond thirty failures an address waits, whatever e-mail comes next; whoever works there gets in at once."""
    with LiveGateway(tmp_path) as own, Owner(own.url) as owner:
        for number in range(ADDRESS.free):
            fail(owner, "127.0.0.1", 1, email=f"user-{number}@example.test")
        give_time(own, LoginAttempt.of(vault(), "127.0.0.1", "").address)
        slowed(login(owner, "127.0.0.1", email="another@example.test"))
        assert login(owner, "127.0.0.1", PASSWORD).status_code == 200


def test_a_token_does_not_help_to_guess_the_password(
    gateway: LiveGateway, newcomer: Owner, address: str
) -> None:
    """Wrong current passwords of POST /auth/password count as failed logins, and are slowed like them."""
    body = {"current_password": "wrong", "new_password": "another horse battery"}
    with client(newcomer.url, newcomer.token, address=address) as http:
        for _ in range(PAIR.free):
            assert list(complaints(http.post("/auth/password", json=body))) == ["current_password"]
        give_time(gateway, LoginAttempt.of(vault(), address, newcomer.email).pair)
        slowed(http.post("/auth/password", json=body))
        slowed(login(newcomer, address, PASSWORD))


def test_a_login_that_nothing_stands_against_writes_its_session_alone(
    gateway: LiveGateway, newcomer: Owner, address: str
) -> None:
    """The right password at once leaves no row of failures behind; after a mistake it removes the pair's."""
    attempt = LoginAttempt.of(vault(), address, newcomer.email)
    assert login(newcomer, address, PASSWORD).status_code == 200
    subjects = (attempt.pair, attempt.address, attempt.email)
    assert [failures(gateway, subject) for subject in subjects] == [0, 0, 0]
    fail(newcomer, address, 1)
    assert [failures(gateway, subject) for subject in subjects] == [1, 1, 1]
    assert login(newcomer, address, PASSWORD).status_code == 200
    assert [failures(gateway, subject) for subject in subjects] == [0, 1, 1]
