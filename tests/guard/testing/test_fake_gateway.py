"""What the fake gateway has beside the real one's answers: a clock that leaps, outages, a memory, assertions."""

from __future__ import annotations

import threading
from decimal import Decimal

import pytest

from toolgate import (
    ActionDenied,
    ApprovalDenied,
    ApprovalExpired,
    ApprovalPending,
    ConfigurationError,
    GatewayUnavailable,
    Guard,
    acting_as,
)
from toolgate.testing import FakeGateway


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway(allow=["math.add"], hold=["mail.send"])


def test_it_remembers_what_it_was_asked_and_told(gateway: FakeGateway) -> None:
    """Checks and entries stand in order with their contexts, and the assertions find them."""
    guard = gateway.guard()
    guard.guarded("math.add")(lambda a, b: a + b)(1, Decimal("2.50"))
    with pytest.raises(ActionDenied):
        guard.guarded("rm")(lambda path: path)("x")
    assert [(one.action, one.outcome) for one in gateway.checks] == [
        ("math.add", "allowed"),
        ("rm", "blocked"),
    ]
    assert [(one.action, one.status) for one in gateway.entries] == [
        ("math.add", "success"),
        ("rm", "denied"),
    ]
    assert gateway.assert_checked("math.add", b=2.5).agent_id == gateway.agent_id
    assert gateway.assert_logged("rm", "denied", path="x").context["reason"]
    gateway.assert_not_checked("mail.send")
    for wrong in (
        lambda: gateway.assert_checked("math.add", a=2),
        lambda: gateway.assert_checked("mail.send"),
        lambda: gateway.assert_logged("rm", "success"),
        lambda: gateway.assert_not_checked("rm"),
        gateway.assert_not_checked,
    ):
        with pytest.raises(AssertionError, match="'rm'"):
            wrong()


def test_an_outage_takes_no_time(gateway: FakeGateway) -> None:
    """Every retry is made, the deadline passes on the gateway's clock alone, and afterwards it answers again."""
    guard = gateway.guard(timeout=3600)
    before = gateway.clock()
    with gateway.outage():
        with pytest.raises(GatewayUnavailable) as away:
            guard.check("math.add")
        assert away.value.status is None
        # The last pause, of two seconds at most, is not begun.
        assert 3590 < gateway.clock() - before < 3610
        for _ in range(5):
            with pytest.raises(GatewayUnavailable):
                guard.check("math.add")
    assert guard.check("math.add").allowed
    with gateway.outage(status=503), pytest.raises(GatewayUnavailable) as proxy:
        guard.check("math.add")
    assert proxy.value.status == 503
    assert guard.check("math.add").allowed


def test_an_outage_lets_run_what_fails_open(gateway: FakeGateway) -> None:
    """A tool that fails open runs while the fake is away, and its record arrives afterwards."""
    guard = gateway.guard()
    open_tool = guard.guarded("math.add", fail_open=True)(lambda a: a)
    with gateway.outage():
        assert open_tool(1) == 1
        with pytest.raises(GatewayUnavailable):
            guard.guarded("math.add")(lambda a: a)(2)
    assert gateway.assert_logged("math.add", "success", a=1)


def test_latency_beyond_the_deadline_loses_the_answer(gateway: FakeGateway) -> None:
    """A slow answer is waited for; one that is too slow is lost, although the gateway did its work."""
    guard = gateway.guard(timeout=5)
    with gateway.latency(4):
        assert guard.check("math.add").allowed
    with gateway.latency(6), pytest.raises(GatewayUnavailable, match="no answer within"):
        guard.log("math.add", "success", idempotency_key="k")
    guard.log("math.add", "success", idempotency_key="k")
    with gateway.latency(6):
        for _ in range(5):
            with pytest.raises(GatewayUnavailable):
                guard.check("math.add")
    assert guard.check("math.add").allowed
    assert [one.action for one in gateway.entries] == ["math.add"]


def test_what_comes_of_a_request_by_itself(gateway: FakeGateway) -> None:
    """Approved or denied at once; ignored, whoever waits finds the time gone."""
    guard = gateway.guard()
    send = guard.guarded("mail.send", on_hold="wait")(lambda to: to)
    gateway.hold("mail.send", then="approved")
    assert send("a") == "a"
    gateway.hold("mail.send", then="denied")
    with pytest.raises(ApprovalDenied):
        send("b")
    gateway.hold("mail.send", then="ignored")
    with pytest.raises(ApprovalExpired):
        send("c")
    with pytest.raises(ApprovalPending):
        guard.guarded("mail.send", on_hold="wait", hold_timeout=60)(lambda to: to)("d")


async def test_ignored_tasks(gateway: FakeGateway) -> None:
    """As for threads: the wait is over in no time."""
    gateway.hold("mail.send", then="ignored")

    @gateway.guard().guarded("mail.send", on_hold="wait")
    async def send(to: str) -> None: ...

    with pytest.raises(ApprovalExpired):
        await send("a")


def test_the_only_request_needs_no_name(gateway: FakeGateway) -> None:
    """`approve()` and `deny()` mean the one that waits, and say so when there is another number."""
    guard = gateway.guard()
    assert guard.check("mail.send", {"n": 1}).held
    gateway.approve()
    assert guard.check("mail.send", {"n": 1}).allowed
    with pytest.raises(ConfigurationError, match="0 requests wait"):
        gateway.deny()
    assert guard.check("mail.send", {"n": 2}).held
    assert guard.check("mail.send", {"n": 3}).held
    with pytest.raises(ConfigurationError, match="2 requests wait"):
        gateway.approve()


def test_blocking_in_the_tests_own_words(gateway: FakeGateway) -> None:
    """The reason reaches the caller; what waited for the action is cancelled; allowing it again lifts it."""
    guard = gateway.guard()
    assert guard.check("mail.send").held
    gateway.block("mail.send", "the mail server is being moved")
    assert guard.check("mail.send").reason == "the mail server is being moved"
    assert gateway.pending() == []
    gateway.allow("mail.send")
    assert guard.check("mail.send").allowed


def test_advancing_wakes_who_waits(gateway: FakeGateway) -> None:
    """A day later a thread that waits is told that its request has run out."""
    ended: list[object] = []

    def call() -> None:
        with pytest.raises(ApprovalExpired) as expired:
            gateway.guard().guarded("mail.send", on_hold="wait")(lambda: None)()
        ended.append(expired.type)

    thread = threading.Thread(target=call)
    thread.start()
    while not gateway.pending():
        pass
    gateway.advance(24 * 3600)
    thread.join(60)
    assert ended == [ApprovalExpired]


def test_replacing_a_guard_for_a_while(gateway: FakeGateway) -> None:
    """What an application's own guard guards asks the fake inside the block, and nobody else's gateway."""
    theirs = Guard("http://127.0.0.1:9", "ak_" + "k" * 37, "their-agent", timeout=0.01)
    tool = theirs.guarded("math.add")(lambda a: a)
    with gateway.replacing(theirs):
        assert tool(1) == 1
    with pytest.raises(GatewayUnavailable):
        tool(2)
    assert [one.context for one in gateway.checks] == [{"a": 1}]


def test_agents(gateway: FakeGateway) -> None:
    """Whoever asks is known unless agents are named; one that is switched off may do nothing."""
    with acting_as("anybody"):
        assert gateway.guard().check("math.add").allowed
    gateway.switch_off("anybody")
    assert gateway.guard("anybody").check("math.add").reason == "Agent is inactive"
    gateway.switch_on("anybody")
    assert gateway.guard("anybody").check("math.add").allowed
    strict = FakeGateway(allow=["math.add"], agents=["one", "two"])
    assert strict.agent_id == "one"
    assert "Agent not found" in str(strict.guard("three").check("math.add").reason)


def test_two_fakes_know_nothing_of_each_other(gateway: FakeGateway) -> None:
    """What one blocked may fail open at the other: no memory of this process is shared between them."""
    other = FakeGateway(allow=["x"])
    assert gateway.guard().check("x").blocked
    tool = other.guard().guarded("x", fail_open=True)(lambda: "ran")
    with other.outage():
        assert tool() == "ran"


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda: FakeGateway(allow="math.add"), "allow is 'math.add'"),
        (lambda: FakeGateway(hold=[""]), "action ''"),
        (lambda: FakeGateway(allow=["a"], hold=["a"]), "Duplicate action 'a'"),
        (lambda: FakeGateway(allow={"a": {"maximum": 1}}), "unknown limit 'maximum'"),
        (lambda: FakeGateway(allow={"a": 3}), "are 3"),
        (lambda: FakeGateway(agents=[""]), "agents is ''"),
        (lambda: FakeGateway().allow("a", max_amount=-1), "max_amount of action 'a' is -1"),
        (lambda: FakeGateway().allow("a", max_amount=float("nan")), "max_amount of action 'a' is nan"),
        (lambda: FakeGateway().allow("a", max_amount=True), "max_amount of action 'a' is True"),
        (lambda: FakeGateway().allow("a", amount_required=3), "amount_required of action 'a' is 3"),
        (lambda: FakeGateway(allow={"a": {"amount_required": True}}), "'a' has amount_required=True without"),
        (lambda: FakeGateway(allow=["stripe.*"]), "contains the wildcard '*'"),
        (lambda: FakeGateway(hold=["a?"]), "contains the wildcard '?'"),
        (lambda: FakeGateway().allow("*"), "contains the wildcard '*'"),
        (lambda: FakeGateway().hold("a.*"), "contains the wildcard '*'"),
        (lambda: FakeGateway().block("a.*"), "contains the wildcard '*'"),
        (lambda: FakeGateway().hold("a", then="maybe"), "then is 'maybe'"),
        (lambda: FakeGateway().block("a b"), "'a b'"),
    ],
)
def test_mistakes_are_named(wrong: object, named: str) -> None:
    """What cannot be is refused by name."""
    with pytest.raises(ConfigurationError) as error:
        wrong()  # type: ignore[operator]  # a function of no arguments
    assert named in str(error.value)
