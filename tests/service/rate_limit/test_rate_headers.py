"""`X-RateLimit-*` on every authenticated answer of the SDK surface (spec §8, decisions §7)."""

import time
from itertools import pairwise

import httpx
import pytest
from support.gateway import LiveGateway, Owner
from support.insight import execute

BODIES = [
    b'{"agent_id": "x", "action": "a", "status": "success"}',
    b"{",
    b"{}",
    b'{"agent_id": 5}',
    b" " * 300_000,
]


def limits(answer: httpx.Response) -> tuple[int, int, int]:
    names = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
    limit, remaining, reset = (int(answer.headers[name]) for name in names)
    return limit, remaining, reset


@pytest.mark.parametrize("path", ["/sdk/check", "/sdk/log"])
@pytest.mark.parametrize("content", BODIES, ids=lambda content: repr(content[:20]))
def test_answers_carry_the_window(acme: Owner, path: str, content: bytes) -> None:
    """Answers of every status carry limit, remaining and reset, whole numbers, the reset within a minute."""
    answer = acme.http.post(path, content=content, headers={"X-API-Key": acme.key})
    limit, remaining, reset = limits(answer)
    assert limit == 1_000_000
    assert 0 <= remaining < limit
    assert reset % 60 == 0
    assert -5 < reset - time.time() < 65
    assert "Retry-After" not in answer.headers


def test_check_and_log_share_a_window(newcomer: Owner) -> None:
    """`/sdk/log` shares the limit of `/sdk/check` (spec §8); each request costs one."""
    bot = newcomer.agent()
    answers = [newcomer.check(bot, "a"), newcomer.log(bot, "a"), newcomer.check(bot, "a")]
    seen = [limits(answer) for answer in answers]
    for earlier, later in pairwise(seen):
        assert later[2] > earlier[2] or later[1] == earlier[1] - 1


def test_approvals_have_a_window_of_their_own(newcomer: Owner) -> None:
    """Waiting for approvals costs nothing of the checks, and has the same limit (decisions §7)."""
    bot = newcomer.agent()
    for _ in range(3):
        newcomer.check(bot, "a")
    answer = newcomer.http.get("/sdk/approvals/x", headers={"X-API-Key": newcomer.key})
    assert answer.status_code == 404
    assert limits(answer)[:2] == (1_000_000, 999_999)


@pytest.mark.parametrize(
    ("plan", "limit"), [("free", 100), ("pro", 1_000), ("business", 10_000), ("enterprise", 1_000_000)]
)
def test_the_limit_is_the_plans(gateway: LiveGateway, newcomer: Owner, plan: str, limit: int) -> None:
    """Each plan has its own number, of this moment (spec §8, decisions §7)."""
    organization = newcomer.user["organization_id"]
    execute(gateway, "UPDATE organizations SET plan = ? WHERE id = ?", plan, organization)
    assert limits(newcomer.check("x", "a"))[0] == limit


def test_an_organizations_own_limit_goes_before_its_plans(gateway: LiveGateway, newcomer: Owner) -> None:
    """An operator may set a number per organization (decisions §7)."""
    organization = newcomer.user["organization_id"]
    execute(gateway, "UPDATE organizations SET requests_per_minute = 7 WHERE id = ?", organization)
    assert limits(newcomer.check("x", "a"))[0] == 7


def test_management_answers_carry_the_users_own_window(newcomer: Owner) -> None:
    """What an API key asks for does not count against its people, nor the other way round."""
    newcomer.check("x", "a")
    first, second = [limits(newcomer.http.get("/api/agents")) for _ in range(2)]
    assert first[2] != second[2] or first[1] - second[1] == 1
    assert limits(newcomer.check("x", "a"))[1] > first[0] - 5
