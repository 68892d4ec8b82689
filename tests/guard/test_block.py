from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any

import pytest

from toolgate import ActionDenied, ApprovalPending, ConfigurationError, Guard, acting_as

BLOCKED = {"allowed": False, "requires_approval": False, "reason": "no permission", "approval_id": None}
HELD = {"allowed": False, "requires_approval": True, "reason": "needs a person", "approval_id": "appr-1"}


class Entered(AbstractAsyncContextManager[Any]):
    """Enters a block with `with` or `async with`, so that one test covers both."""

    def __init__(self, kind: str, block: Any) -> None:
        self._kind = kind
        self._block: AbstractContextManager[Any] | Any = block

    async def __aenter__(self) -> Any:
        return self._block.__enter__() if self._kind == "sync" else await self._block.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._kind == "sync":
            self._block.__exit__(kind, error, trace)
        else:
            await self._block.__aexit__(kind, error, trace)


@pytest.fixture(params=["sync", "async"])
def block(request: pytest.FixtureRequest, guard: Guard) -> Any:
    return lambda *args, **options: Entered(request.param, guard.action(*args, **options))


async def test_allowed(block: Any, gateway: Any) -> None:
    """The context is asked about, what the block adds reaches the log entry beside it."""
    async with block("db.drop", {"table": "users", "password": "hunter22"}) as act:
        act.context["rows"] = 12
    assert gateway.checks[0]["context"].keys() == {"table", "password"}
    entry = gateway.logs[0]
    assert entry["status"] == "success"
    assert (entry["context"]["table"], entry["context"]["rows"]) == ("users", 12)
    assert b"hunter22" not in gateway.requests[0].content + gateway.requests[1].content


async def test_evidence_stays(block: Any, gateway: Any) -> None:
    """A value the block changes stands beside the one that was asked about."""
    async with block("db.drop", {"table": "users"}) as act:
        act.context["table"] = "orders"
    assert (gateway.logs[0]["context"]["table"], gateway.logs[0]["context"]["table_"]) == ("users", "orders")


async def test_raises(block: Any, gateway: Any) -> None:
    """An exception in the block is recorded as failed and goes on as the same object."""
    error = ValueError("broken")
    with pytest.raises(ValueError, match="broken") as raised:
        async with block("db.drop"):
            raise error
    assert raised.value is error
    assert gateway.logs[0]["status"] == "failed"
    assert gateway.logs[0]["context"]["error"] == {"type": "ValueError", "message": "broken"}


@pytest.mark.parametrize(("answer", "kind"), [(BLOCKED, ActionDenied), (HELD, ApprovalPending)])
async def test_not_entered(block: Any, gateway: Any, answer: Any, kind: type[Exception]) -> None:
    """A blocked or held block is not entered."""
    gateway.check = [answer]
    with pytest.raises(kind):
        async with block("db.drop"):
            pytest.fail("the block ran")
    assert len(gateway.logs) == 1


async def test_waits(block: Any, gateway: Any) -> None:
    """A block may wait for its approval."""
    gateway.check = [HELD]
    async with block("db.drop", {"table": "users"}, on_hold="wait", hold_timeout=5):
        pass
    assert [each.get("approval_id") for each in gateway.checks] == [None, "appr-1"]


async def test_entered_once(block: Any) -> None:
    """A block object is entered once."""
    entered = block("db.drop")
    async with entered:
        pass
    with pytest.raises(ConfigurationError, match="already been used"):
        await entered.__aenter__()


async def test_options(block: Any, gateway: Any) -> None:
    """Names are excluded and redacted as for a function, and an agent named here wins."""
    with acting_as("acting", run_id="run-1"):
        async with block(
            "db.drop", {"body": "text", "iban": "DE00"}, exclude={"body"}, redact={"iban"}, agent_id="x"
        ):
            pass
    assert gateway.context.keys() == {"body", "iban"}
    assert all("$digest" in value for value in gateway.context.values())
    assert (gateway.checks[0]["agent_id"], gateway.checks[0]["run_id"]) == ("x", "run-1")


async def test_large_additions_fit(block: Any, gateway: Any) -> None:
    """However much a block adds, its log entry stays within what the gateway takes."""
    async with block("db.drop", {f"n{i}": "x" * 8000 for i in range(7)}) as act:
        act.context.update({f"m{i}": "y" * 8000 for i in range(7)})
    assert gateway.logs[0]["context"]["n0"] == "x" * 8000
    assert len(gateway.requests[1].content) < 64 * 1024


class Unreadable(dict[str, Any]):
    def __iter__(self) -> Any:
        raise RuntimeError("not now")

    items = keys = __iter__


@pytest.mark.parametrize("odd", [None, 5, [("a", 1)], Unreadable(a=1), {1: "x"}], ids=repr)
@pytest.mark.parametrize("error", [None, ValueError("mine")], ids=repr)
async def test_odd_context_at_the_end(block: Any, gateway: Any, odd: Any, error: Exception | None) -> None:
    """Whatever the context is in the end, the entry is made and the block's own exception goes on."""
    caught: BaseException | None = None
    try:
        async with block("db.drop", {"t": 1}) as act:
            act.context = odd
            if error is not None:
                raise error
    except BaseException as raised:
        caught = raised
    assert caught is error
    entry = gateway.logs[0]
    assert (entry["status"], entry["context"]["t"]) == ("success" if error is None else "failed", 1)
    if type(odd) is dict:
        assert entry["context"]["1"] == "x"
    else:
        assert type(odd).__name__ in entry["context"]["additions"]


async def test_context_gone_at_the_end(block: Any, gateway: Any) -> None:
    """Also a context that was deleted leaves an entry."""
    async with block("db.drop", {"t": 1}) as act:
        del act.context
    assert "additions" in gateway.logs[0]["context"]


async def test_odd_names_become_text(block: Any, gateway: Any) -> None:
    """Names that are single values are sent as text; two that are written alike, and others, are refused."""
    async with block("db.drop", {1: "a", None: "c"}) as act:
        act.context[2] = "x"
    assert gateway.context == {"1": "a", "null": "c"}
    assert gateway.logs[0]["context"]["2"] == "x"
    for wrong in ({1: "a", "1": "b"}, {(3, "y"): "z"}):
        with pytest.raises(ConfigurationError, match=r"equal in JSON|a name of type"):
            async with block("db.drop", wrong):
                pytest.fail("the block ran")


async def test_additions_that_are_not_json_leave_an_entry(block: Any, gateway: Any) -> None:
    async with block("db.drop", {"t": 1}) as act:
        act.context["rows"] = 5
        act.context["session"] = object()
        act.context[(3, "y")] = "z"
    entry = gateway.logs[0]
    assert (entry["status"], entry["context"]["t"], entry["context"]["rows"]) == ("success", 1, 5)
    assert "not recorded" in entry["context"]["additions"]


@pytest.mark.parametrize(
    "odd", ["text", 0, [], ["ab"], 5, object()], ids=lambda context: type(context).__name__
)
async def test_context_must_be_a_mapping(block: Any, gateway: Any, odd: Any) -> None:
    """A context that is no mapping is refused by the name of its class, before anything is asked."""
    with pytest.raises(ConfigurationError, match=f"context.*{type(odd)!r}"):
        block("db.drop", odd)
    assert gateway.requests == []


async def test_context_replaced_before_entering(guard: Guard, gateway: Any) -> None:
    """What the block is entered with must be a mapping as well."""
    act = guard.action("db.drop")
    act.context = None  # type: ignore[assignment]  # what is tested
    with pytest.raises(ConfigurationError, match="NoneType"), act:
        pytest.fail("the block ran")
    assert gateway.requests == []
