"""429 on the free plan: a hundred requests a minute (spec §8)."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx
from support.gateway import LiveGateway, Owner
from support.insight import key_to_test


def in_one_window(
    gateway: LiveGateway, work: Callable[[Owner], Sequence[httpx.Response]]
) -> Sequence[httpx.Response]:
    """Return the answers that a new organization gets within one minute; if it turned, those of another."""
    for _ in range(3):
        with Owner(gateway.url) as owner:
            answers = work(owner)
        if len({answer.headers["X-RateLimit-Reset"] for answer in answers}) == 1:
            return answers
    raise AssertionError("a minute turned during every attempt")


def test_a_hundred_pass_and_the_next_is_told_when_to_come_back(free_gateway: LiveGateway) -> None:
    """100 answers count down to 0; the 101st is 429 with the headers and text of spec §7, whichever path it takes."""

    def work(owner: Owner) -> list[httpx.Response]:
        answers = [owner.check("x", "a") if number % 2 else owner.log("x", "a") for number in range(100)]
        return [*answers, owner.check("x", "a"), owner.log("x", "a")]

    *passed, check, log = in_one_window(free_gateway, work)
    assert {answer.status_code for answer in passed} == {200, 404}
    assert [int(answer.headers["X-RateLimit-Remaining"]) for answer in passed] == list(range(99, -1, -1))
    for refused in (check, log):
        assert refused.status_code == 429
        seconds = int(refused.headers["Retry-After"])
        assert refused.json()["detail"] == f"Rate limit exceeded; retry after {seconds} seconds"
        assert 1 <= seconds <= 60
        assert abs(int(refused.headers["X-RateLimit-Reset"]) - time.time() - seconds) < 5
        assert refused.headers["X-RateLimit-Limit"] == "100"
        assert refused.headers["X-RateLimit-Remaining"] == "0"


def test_of_two_hundred_parallel_requests_a_hundred_pass(free_gateway: LiveGateway) -> None:
    """The count is exact under concurrency (decisions §7)."""

    def work(owner: Owner) -> list[httpx.Response]:
        with ThreadPoolExecutor(20) as pool:
            return list(pool.map(lambda _: owner.check("x", "a"), range(200)))

    answers = in_one_window(free_gateway, work)
    assert Counter(answer.status_code for answer in answers) == {200: 100, 429: 100}


def test_a_refused_request_changes_nothing(free_gateway: LiveGateway) -> None:
    """Beyond the limit nothing is stored, and other windows go on."""

    def work(owner: Owner) -> list[httpx.Response]:
        bot = owner.agent()
        answers = [owner.log(bot, "a") for _ in range(101)]
        test = key_to_test(free_gateway, owner)
        body = {"agent_id": "x", "action": "a"}
        ask = partial(owner.http.post, "/sdk/check", json=body)
        waits = owner.http.get("/sdk/approvals/x", headers={"X-API-Key": owner.key})
        answers += [ask(headers={"X-API-Key": test}), waits]
        # A page has a hundred; all 101 pass where a minute turned meanwhile.
        stored = min(100, sum(answer.status_code == 200 for answer in answers[:101]))
        assert len(owner.entries(limit=100)) == stored
        assert owner.http.get("/api/agents").status_code == 200
        return answers

    *logged, test, waits = in_one_window(free_gateway, work)
    assert Counter(answer.status_code for answer in logged) == {200: 100, 429: 1}
    assert (test.status_code, waits.status_code) == (200, 404)


def test_the_test_environment_has_a_window_of_the_same_size(free_gateway: LiveGateway) -> None:
    """Whatever production has used, a hundred test requests pass, and the next does not (decisions §8)."""

    def work(owner: Owner) -> list[httpx.Response]:
        headers = {"X-API-Key": key_to_test(free_gateway, owner)}
        body = {"agent_id": "x", "action": "a"}
        production = [owner.check("x", "a") for _ in range(50)]
        test = [owner.http.post("/sdk/check", json=body, headers=headers) for _ in range(101)]
        return production + test

    answers = in_one_window(free_gateway, work)
    assert {answer.status_code for answer in answers[:-1]} == {200}
    assert answers[-1].status_code == 429
    left = [int(answer.headers["X-RateLimit-Remaining"]) for answer in answers]
    assert left[:50] == list(range(99, 49, -1))
    assert left[50:] == [*range(99, -1, -1), 0]
