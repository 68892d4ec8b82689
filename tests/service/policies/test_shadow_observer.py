"""Observer of shadow policies without a database: errors, outages, and the limit of waiting decisions."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from support.waiting import eventually

from toolgate_service.context import AuthContext
from toolgate_service.core.errors import StorageFault
from toolgate_service.core.ids import new_id
from toolgate_service.decisions.recorder import DecisionRecord
from toolgate_service.policies import shadow as module
from toolgate_service.policies.comparison import LiveComparison
from toolgate_service.policies.document import PolicyDocument
from toolgate_service.policies.evaluation import PolicyEvaluator
from toolgate_service.policies.shadow import LoadedShadow, ShadowObserver

SHADOW = "shadow"
AUTH = AuthContext(
    new_id(), None, new_id(), "production", 1, "pro", None, agent_id="1", shadow_id=SHADOW, epoch=1
)


def evaluator(*actions: str) -> PolicyEvaluator:
    agent = {"name": "bot", "permissions": [{"action": action} for action in actions]}
    policy = PolicyDocument.model_validate({"version": "toolgate.policy/v1", "agents": [agent]})
    return PolicyEvaluator(policy, {"bot": "1"})


def record(action: str = "pay", auth: AuthContext = AUTH) -> DecisionRecord:
    return DecisionRecord(new_id(), auth, "1", action, None, None, {}, None, "allowed", "allowed")


class Storage:
    """Replacement for the cache of shadows and for the function that adds results to the database."""

    def __init__(self) -> None:
        self.loaded = LoadedShadow(SHADOW, 1, LiveComparison(evaluator("keep"), evaluator("keep", "pay")))
        self.fault: Exception | None = None
        self.attempts = 0
        self.counts: Counter[str] = Counter()
        self.samples: list[str | None] = []

    async def find(self, _auth: AuthContext) -> LoadedShadow:
        return self.loaded

    async def add(self, _database: object, results: Mapping[str, Any]) -> Mapping[str, set[str] | None]:
        self.attempts += 1
        if self.fault is not None:
            raise self.fault
        self.counts += results[SHADOW].counts
        for samples in results[SHADOW].samples.values():
            self.samples += [sample["decision_id"] for sample in samples]
        return {SHADOW: set()}


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Storage:
    storage = Storage()
    monkeypatch.setattr(module, "ShadowCache", lambda _database: storage)
    monkeypatch.setattr(module, "_add_results", storage.add)
    monkeypatch.setattr(module, "INTERVAL", 0.01)
    monkeypatch.setattr(module, "BATCH_INTERVAL", 0.01)
    return storage


@pytest.fixture
def observer(storage: Storage) -> ShadowObserver:
    assert storage.attempts == 0
    database: Any = None
    return ShadowObserver(database)


async def test_results_are_written_at_the_shutdown(
    monkeypatch: pytest.MonkeyPatch, storage: Storage, observer: ShadowObserver
) -> None:
    monkeypatch.setattr(module, "INTERVAL", 60.0)
    monkeypatch.setattr(module, "BATCH_INTERVAL", 60.0)
    denied = [record() for _ in range(30)]
    for one in (*denied, record("keep")):
        observer.observe(one)
    await observer.stop()
    assert storage.counts == {"newly_denied": 30, "unchanged": 1}
    assert storage.samples == [one.id for one in denied]
    assert observer.dropped == 0


async def test_error_of_a_comparison_does_not_affect_the_others(
    monkeypatch: pytest.MonkeyPatch,
    storage: Storage,
    observer: ShadowObserver,
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole = module._compare_record

    def compare(shadow: LoadedShadow, one: DecisionRecord) -> tuple[str, str | None]:
        if one.action == "broken":
            raise ValueError("broken")
        return whole(shadow, one)

    monkeypatch.setattr(module, "_compare_record", compare)
    for action in ("pay", "broken", "pay"):
        observer.observe(record(action))
    await observer.stop()
    assert storage.counts == {"newly_denied": 2}
    assert observer.dropped == 1
    assert "the shadow policy cannot be compared with a decision" in caplog.text


async def test_results_are_added_once_after_an_outage(storage: Storage, observer: ShadowObserver) -> None:
    storage.fault = StorageFault("the disk is full")
    first, second = record(), record()
    observer.observe(first)
    await eventually(lambda: _true(storage.attempts >= 2))
    observer.observe(second)
    storage.fault = None
    await eventually(lambda: _true(storage.counts.total() == 2))
    await observer.stop()
    assert storage.counts == {"newly_denied": 2}
    assert sorted(map(str, storage.samples)) == sorted([first.id, second.id])
    assert observer.dropped == 0


async def test_results_are_lost_if_the_outage_outlasts_the_shutdown(
    monkeypatch: pytest.MonkeyPatch, storage: Storage, observer: ShadowObserver
) -> None:
    monkeypatch.setattr(module, "STOP_SECONDS", 0.3)
    storage.fault = StorageFault("the disk is full")
    for _ in range(3):
        observer.observe(record())
    await observer.stop()
    assert (observer.dropped, storage.counts.total()) == (3, 0)


async def test_too_many_waiting_decisions_are_dropped(
    monkeypatch: pytest.MonkeyPatch, storage: Storage, observer: ShadowObserver
) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 2)
    for _ in range(5):
        observer.observe(record())
    await observer.stop()
    assert (observer.dropped, storage.counts.total()) == (3, 2)


async def test_decision_under_another_shadow_is_not_counted(
    storage: Storage, observer: ShadowObserver
) -> None:
    for shadow_id in ("earlier", SHADOW):
        observer.observe(record(auth=AUTH._replace(shadow_id=shadow_id)))
    await observer.stop()
    assert storage.counts == {"newly_denied": 1}


async def test_decision_of_an_earlier_policy_is_compared_in_full(
    storage: Storage, observer: ShadowObserver
) -> None:
    """The policies are equivalent now, but the call was allowed before the permission was deleted."""
    storage.loaded = LoadedShadow(SHADOW, 2, LiveComparison(evaluator("keep"), evaluator("keep")))
    observer.observe(record())
    observer.observe(record(auth=AUTH._replace(epoch=2)))
    await observer.stop()
    assert storage.counts == {"newly_denied": 1, "unchanged": 1}


async def _true(value: bool) -> bool:
    return value
