"""What becomes of log entries committed together: decided in order, one bad entry alone (decisions §6, §7)."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from support.entries import new_entry

from toolgate_service.core.plans import UNLIMITED
from toolgate_service.logs.schemas import Refused, Replayed, Stored
from toolgate_service.logs.writer import Batch, BatchState, Tenant

NOW = datetime(2026, 11, 30, 23, 59, 59, 999_999, tzinfo=UTC)
ACME: Tenant = ("acme", "production")
ENTRY = new_entry()


def batch(used: int = 0, **answers: tuple[bytes, str]) -> Batch:
    """A batch about which the database says so much."""
    known = {(ACME, key): answer for key, answer in answers.items()}
    return Batch(
        BatchState(NOW, frozenset({(ACME, "bot"), (("acme", "test"), "bot")}), {ACME: used}, {}, known)
    )


def kinds(outcomes: list[Stored | Replayed | Refused]) -> list[object]:
    return [outcome.status if isinstance(outcome, Refused) else type(outcome) for outcome in outcomes]


def test_the_month_fills_within_a_batch() -> None:
    """Of five entries, two fit into what is left of the month; exactly those are written and counted."""
    full = batch(used=1)
    assert kinds(full.decide([ENTRY] * 5)) == [Stored, Stored, 403, 403, 403]
    assert (len(full.entries), full.state.used[ACME], full.month) == (2, 3, "2026-11")


def test_an_unknown_agent_fails_alone() -> None:
    """An entry for nobody is refused and uses nothing up; those beside it are stored."""
    mixed = batch(used=1)
    nobody = replace(ENTRY, agent_id="nobody")
    assert kinds(mixed.decide([nobody, ENTRY, nobody, ENTRY])) == [404, Stored, 404, Stored]
    assert kinds(batch(used=3).decide([nobody, ENTRY])) == [404, 403]


def test_an_agent_of_another_tenant_is_unknown() -> None:
    """The same id in another organization or environment is another agent."""
    foreign = replace(ENTRY, organization_id="rival")
    assert kinds(batch().decide([foreign, replace(ENTRY, environment="staging")])) == [404, 404]


def test_one_key_twice_in_a_batch_is_one_entry() -> None:
    """The second repeats the first's answer, byte for byte, and costs the month nothing."""
    twice = batch(used=2)
    keyed = replace(ENTRY, idempotency_key="once")
    stored, repeated = twice.decide([keyed, keyed])
    assert isinstance(stored, Stored)
    assert repeated == Replayed(stored.body, mismatch=False)
    assert (len(twice.entries), len(twice.answers), twice.mismatches) == (1, 1, [])


def test_a_key_with_another_body_is_repeated_and_noted() -> None:
    """The original answer comes back, also when month or agent would refuse, and the mismatch is audited."""
    full = batch(used=3, once=(b"{}", "other"))
    keyed = replace(ENTRY, idempotency_key="once", agent_id="nobody")
    assert full.decide([keyed]) == [Replayed(b"{}", mismatch=True)]
    assert full.mismatches == [keyed]


def test_a_refusal_is_not_remembered() -> None:
    """Only what was stored answers to its key later."""
    full = batch(used=3)
    keyed = replace(ENTRY, idempotency_key="late")
    assert kinds(full.decide([keyed, keyed])) == [403, 403]
    assert full.answers == []


def test_the_test_environment_and_an_unlimited_plan_know_no_month() -> None:
    """Neither is refused for what was written before (decisions §8)."""
    unlimited = replace(ENTRY, max_logs_per_month=UNLIMITED)
    assert kinds(batch(used=10**9).decide([replace(ENTRY, environment="test"), unlimited])) == [
        Stored,
        Stored,
    ]


def test_entries_of_a_batch_keep_their_order() -> None:
    """Each is a microsecond after the one before, so that lists show them as they came."""
    answers = [
        json.loads(outcome.body) for outcome in batch().decide([ENTRY] * 3) if isinstance(outcome, Stored)
    ]
    moments = [datetime.fromisoformat(answer["created_at"]) for answer in answers]
    assert moments == [NOW + timedelta(microseconds=number) for number in range(3)]


def test_a_capped_log_takes_what_fits() -> None:
    """Sizes add up within a batch; what does not fit is refused, and a smaller entry after it may fit."""
    capped = batch()
    fat = replace(ENTRY, max_log_bytes=2_000, context='{"x":"' + "x" * 600 + '"}')
    thin = replace(ENTRY, max_log_bytes=2_000)
    assert kinds(capped.decide([fat, fat, thin, thin])) == [Stored, 403, Stored, 403]
    assert capped.added_bytes == {ACME: fat.size + thin.size}
    assert capped.state.log_bytes == capped.added_bytes
