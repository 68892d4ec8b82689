"""What is taken away is gone at the very next request, however many others ask meanwhile."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import pytest
from support.crowd import meanwhile
from support.gateway import Owner
from support.waiting import until
from support.wire import Heard, Wire

CLIENTS = 16
FEW = 10
#: seconds between two checks of one client: as many as it can in a full run, otherwise what two cores easily bear
PACES = [0.01, pytest.param(0.0, marks=pytest.mark.slow)]


@dataclass
class Truth:
    """What an answer must be at this moment; None while a change is under way.

    Every change puts a new object into `now`: a client that finds the same one before and after its request knows
    that the request lay wholly within it.
    """

    now: tuple[bool | None] = (None,)
    seen: Counter[bool] = field(default_factory=Counter)
    lies: list[str] = field(default_factory=list)

    @contextmanager
    def becoming(self, expected: bool) -> Iterator[None]:
        """Make a change; when the block ends it is acknowledged."""
        self.now = (None,)
        yield
        self.now = (expected,)

    def witnessed(self) -> None:
        """Wait until one of the clients has seen the present truth for itself."""
        (expected,) = self.now
        assert expected is not None
        seen = self.seen[expected]
        until(lambda: self.seen[expected] > seen)

    def keep_asking(
        self, wire: Wire, ask: Callable[[Wire], bool], pace: float, enough: threading.Event
    ) -> None:
        """Compare answers with the truth, until it is enough."""
        with wire:
            while not enough.wait(pace):
                before = self.now
                answer = ask(wire)
                (expected,) = before
                if self.now is before and expected is not None:
                    self.seen[expected] += 1
                    if answer is not expected:
                        self.lies.append(f"{answer} instead of {expected}")


@contextmanager
def _crowd(owner: Owner, ask: Callable[[Wire], bool], pace: float) -> Iterator[Truth]:
    """Let sixteen clients ask during a block, and see that no answer contradicted an acknowledged change."""
    truth = Truth()
    with meanwhile([partial(truth.keep_asking, Wire.of(owner), ask, pace) for _ in range(CLIENTS)]):
        yield truth
        truth.witnessed()
    assert not truth.lies
    assert truth.seen[True]
    assert truth.seen[False]


def _acknowledged(answer: Heard) -> Heard:
    assert answer.status in {200, 201, 204}, answer.raw
    return answer


@pytest.mark.parametrize(("pace", "times"), [(0.01, 30), pytest.param(0.0, 200, marks=pytest.mark.slow)])
def test_a_deleted_permission_is_refused_by_the_very_next_check(
    pace: float, times: int, owner: Owner
) -> None:
    """Many times in a row the check after a deletion is refused, and no answer of 16 busy clients lags behind."""
    agent = owner.agent()
    paths = (f"/api/agents/{agent}/permissions/{{}}", "/api/permissions/{}")
    with (
        _crowd(owner, lambda wire: wire.allowed(agent, "files.delete"), pace) as truth,
        Wire.of(owner) as admin,
        Wire.of(owner) as wire,
    ):
        for turn in range(times):
            with truth.becoming(True):
                granted = admin.send("POST", f"/api/agents/{agent}/permissions", {"action": "files.delete"})
                permission = _acknowledged(granted).json()["id"]
            assert wire.allowed(agent, "files.delete")
            if turn % 20 == 0:
                truth.witnessed()
            with truth.becoming(False):
                _acknowledged(admin.send("DELETE", paths[turn % 2].format(permission)))
            assert not wire.allowed(agent, "files.delete")


@pytest.mark.parametrize("pace", PACES)
def test_an_agent_switched_off_is_refused_by_the_very_next_check(pace: float, owner: Owner) -> None:
    """Switched off, an agent is refused at once, and no answer of 16 busy clients lags behind."""
    agent = owner.agent()
    owner.permit(agent, "files.read")
    with _crowd(owner, lambda wire: wire.allowed(agent, "files.read"), pace) as truth, Wire.of(owner) as wire:
        for _ in range(FEW):
            with truth.becoming(True):
                _acknowledged(wire.send("PUT", f"/api/agents/{agent}", {"status": "active"}))
            assert wire.allowed(agent, "files.read")
            truth.witnessed()
            with truth.becoming(False):
                _acknowledged(wire.send("PUT", f"/api/agents/{agent}", {"status": "inactive"}))
            assert not wire.allowed(agent, "files.read")


@pytest.mark.parametrize("pace", PACES)
def test_a_lowered_maximum_holds_for_the_very_next_check(pace: float, owner: Owner) -> None:
    """Once a maximum is lowered, an amount above it is refused at once, and no answer of 16 busy clients lags."""
    agent = owner.agent()
    permission = owner.permit(agent, "money.send", max_amount=100)
    ask = partial(_may_send, agent)
    with _crowd(owner, ask, pace) as truth, Wire.of(owner) as wire:
        for _ in range(FEW):
            with truth.becoming(True):
                _acknowledged(wire.send("PUT", f"/api/permissions/{permission}", {"max_amount": 100}))
            assert ask(wire)
            truth.witnessed()
            with truth.becoming(False):
                _acknowledged(wire.send("PUT", f"/api/permissions/{permission}", {"max_amount": 49.99}))
            assert not ask(wire)


def _may_send(agent: str, wire: Wire) -> bool:
    return wire.allowed(agent, "money.send", amount=50)


@pytest.mark.parametrize("pace", PACES)
def test_a_deleted_agent_is_refused_by_the_very_next_check(pace: float, owner: Owner) -> None:
    """Deleted, an agent is refused at once and for good, and no answer of 16 busy clients lags behind."""
    agents = [owner.agent() for _ in range(FEW)]
    for agent in agents:
        owner.permit(agent, "files.read")
    current = [agents[0]]
    with (
        _crowd(owner, lambda wire: wire.allowed(current[0], "files.read"), pace) as truth,
        Wire.of(owner) as wire,
    ):
        for agent in agents:
            with truth.becoming(True):
                current[0] = agent
            assert wire.allowed(agent, "files.read")
            truth.witnessed()
            with truth.becoming(False):
                _acknowledged(wire.send("DELETE", f"/api/agents/{agent}"))
            assert not wire.allowed(agent, "files.read")
        assert not any(wire.allowed(agent, "files.read") for agent in agents)


@pytest.mark.parametrize("pace", PACES)
def test_a_replaced_key_is_refused_by_the_very_next_request(pace: float, owner: Owner) -> None:
    """Replaced, a key is 401 at once on every /sdk path, and no answer of 16 busy clients lags behind."""
    agent = owner.agent()
    owner.permit(agent, "files.read")
    key = [owner.key]

    def ask(wire: Wire) -> bool:
        body = {"agent_id": agent, "action": "files.read"}
        answer = wire.send("POST", "/sdk/check", body, {"X-API-Key": key[0]})
        assert answer.status in {200, 401}
        return answer.status == 200

    with _crowd(owner, ask, pace) as truth, Wire.of(owner) as admin:
        for _ in range(FEW):
            with truth.becoming(True):
                key[0] = owner.http.get("/api/organization").json()["api_key"]
            with Wire(owner.url, key[0]) as wire:
                assert wire.allowed(agent, "files.read")
                truth.witnessed()
                with truth.becoming(False):
                    _acknowledged(admin.send("POST", "/api/organization/regenerate-key"))
                for path in ("/sdk/check", "/sdk/log"):
                    refused = wire.send("POST", path, {"agent_id": agent, "action": "files.read"})
                    assert refused.status == 401
                    assert refused.json()["detail"] == "Invalid API key"


def test_the_crowd_sees_a_lie(owner: Owner) -> None:
    """The clients that watch would notice: told that nothing is allowed while it is, they report it."""
    agent = owner.agent()
    owner.permit(agent, "files.read")
    truth = Truth()
    with meanwhile(
        [partial(truth.keep_asking, Wire.of(owner), lambda wire: wire.allowed(agent, "files.read"), 0.0)]
    ):
        with truth.becoming(False):
            pass
        until(lambda: truth.lies)
    assert truth.lies[0] == "True instead of False"
