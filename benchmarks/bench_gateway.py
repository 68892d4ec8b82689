"""The gateway's pieces: the decision, the statement before it, the canonical form."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TypeVar

from pytest_benchmark.fixture import BenchmarkFixture
from support.gateway import LiveGateway, Owner

from toolgate_service.auth_store.sqlite import SqliteAuthStore
from toolgate_service.checks.decide import ALLOWED, decide
from toolgate_service.checks.schemas import CheckRequest
from toolgate_service.context import AuthContext
from toolgate_service.core import strict_json
from toolgate_service.core.plans import BUILT_IN
from toolgate_service.core.strict_json import canonical, digest
from toolgate_service.db.sqlite import SqliteDatabase
from toolgate_service.organizations.repository import key_digest
from toolgate_service.rate_limit.limiter import MemoryRateLimiter
from toolgate_service.rules.evaluation import NO_RULES

T = TypeVar("T")

BODY = json.dumps(
    {
        "agent_id": "a",
        "action": "stripe.refund",
        "context": {"charge_id": "ch_1", "amount": 12.5, "note": "late"},
    }
).encode()

STANDING = AuthContext(
    "k", None, "o", "production", 1, "enterprise", None, None, "a", "active", "p", 0, "100", 0
)


def test_strict_reading(benchmark: BenchmarkFixture) -> None:
    """Read a check's body."""
    assert benchmark(strict_json.loads, BODY)


def test_canonical_digest(benchmark: BenchmarkFixture) -> None:
    """Write the canonical form and hash it."""
    context = {"charge_id": "ch_1", "amount": Decimal("12.5"), "note": "late"}
    assert benchmark(lambda: digest(canonical(context)))


def test_decide(benchmark: BenchmarkFixture) -> None:
    """Decide about a permitted amount."""
    context = {"amount": Decimal("12.5")}
    request = CheckRequest("a", "stripe.refund", context, None, None, None, dry_run=False)
    assert benchmark(decide, STANDING, request, NO_RULES, datetime.now(UTC)) is ALLOWED


def finished(start: Callable[[], Coroutine[None, None, T]]) -> T:
    """Run a coroutine that never waits, without a loop's own cost."""
    try:
        start().send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    raise AssertionError("it waited")


def test_standing(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """Read key, organization, agent and permission in one statement."""
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner:
        agent_id = owner.agent()
        owner.permit(agent_id, "stripe.refund")
        reader = SqliteAuthStore(SqliteDatabase(gateway.database_url), MemoryRateLimiter(), BUILT_IN)
        asyncio.run(reader.open())
        found = benchmark(finished, lambda: reader.load(key_digest(owner.key), agent_id, "stripe.refund"))
        asyncio.run(reader.close())
    assert found.permission_id
