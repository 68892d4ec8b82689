"""Management requests: 600 a minute for each user (decisions §7)."""

import time
from collections import Counter
from functools import partial

import httpx
from support.crowd import together
from support.gateway import LiveGateway, Owner
from support.team import Colleague, client

LIMIT = 600


def window(answer: httpx.Response) -> tuple[int, int, int]:
    names = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
    limit, remaining, reset = (int(answer.headers[name]) for name in names)
    return limit, remaining, reset


def ask(owner: Owner, times: int) -> list[httpx.Response]:
    with client(owner.url, owner.token) as http:
        return [http.get("/auth/me") for _ in range(times)]


def test_exactly_600_a_minute_are_answered(live_gateway: LiveGateway) -> None:
    """However many ask at once, each minute answers 600 of one user's and refuses the rest with all headers."""
    with Owner(live_gateway.url) as owner, Colleague(owner) as colleague:
        answers = [answer for batch in together(*[partial(ask, owner, 175)] * 4) for answer in batch]
        # The owner's own requests of before, invitations and the like, are in the first window.
        by_minute = Counter(window(answer)[2] for answer in answers if answer.status_code == 200)
        assert all(used <= LIMIT for used in by_minute.values())
        refusals = [answer for answer in answers if answer.status_code == 429]
        assert len(refusals) + sum(by_minute.values()) == 700
        last = max(by_minute)
        if len(by_minute) == 1:
            assert refusals, "700 requests in one minute are too many"
        for answer in refusals:
            limit, remaining, reset = window(answer)
            assert (limit, remaining) == (LIMIT, 0)
            assert reset <= last
            seconds = int(answer.headers["Retry-After"])
            assert 1 <= seconds <= 60
            assert answer.json()["detail"] == f"Rate limit exceeded; retry after {seconds} seconds"
            assert abs(reset - time.time()) < 120
        assert colleague.http.get("/auth/me").status_code == 200, "each user has a window of their own"
        assert owner.check("x", "a").status_code == 200, "and an API key another"


def test_every_management_answer_says_where_its_user_stands(newcomer: Owner) -> None:
    """Refusals too: limit, what is left, and when the minute ends."""
    answers = [
        newcomer.http.get("/api/agents"),
        newcomer.http.get("/api/agents/x"),
        newcomer.http.post("/api/agents"),
    ]
    assert [answer.status_code for answer in answers] == [200, 404, 400]
    stands = [window(answer) for answer in answers]
    assert {stand[0] for stand in stands} == {1_000_000}
    assert stands[0][2] != stands[2][2] or stands[0][1] - stands[2][1] == 2


def test_who_is_nobody_has_no_window(anyone: httpx.Client) -> None:
    """A 401 carries no headers: nobody was counted."""
    assert "X-RateLimit-Limit" not in anyone.get("/auth/me").headers
