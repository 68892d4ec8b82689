from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import inspect
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from toolgate import (
    ActionDenied,
    ApprovalDenied,
    ApprovalExpired,
    ApprovalPending,
    ConfigurationError,
    GatewayProtocolError,
    GatewayUnavailable,
    Guard,
    guarded,
)

BLOCKED = {"allowed": False, "requires_approval": False, "reason": "no permission", "approval_id": None}
HELD = {"allowed": False, "requires_approval": True, "reason": "needs a person", "approval_id": "appr-1"}


@guarded("module.level")
def module_level(charge: str, amount: float = 1.0) -> str:
    """What it does."""
    return charge


class Tools:
    @guarded("tools.method")
    def method(self, charge: str) -> str: ...


async def run(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    value = function(*args, **kwargs)
    return await value if inspect.iscoroutine(value) else value


@pytest.fixture(params=["sync", "async"])
def tool(request: pytest.FixtureRequest, make_guard: Callable[..., Guard]) -> Callable[..., Any]:
    """A factory of guarded tools, synchronous or asynchronous, that note whether they ran."""

    def make(body: Callable[..., Any] = lambda: "done", **options: Any) -> Any:
        guard = make_guard()

        def sync_tool(n: int = 1, secret: str = "hunter22") -> Any:
            """A tool."""
            return body()

        async def async_tool(n: int = 1, secret: str = "hunter22") -> Any:
            """A tool."""
            return body()

        chosen: Any = sync_tool if request.param == "sync" else async_tool
        return guard.guarded("a.b", **options)(chosen)

    return make


def never() -> None:
    pytest.fail("the tool ran")


async def test_allowed(tool: Any, gateway: Any) -> None:
    """An allowed tool runs once, its value comes back, and a success entry follows the check."""
    assert await run(tool()) == "done"
    [entry] = gateway.logs
    assert [each.url.path for each in gateway.requests] == ["/sdk/check", "/sdk/logs"]
    assert (entry["status"], entry["action"], entry["agent_id"]) == ("success", "a.b", "agent-1")
    assert entry["context"].keys() == {"n", "secret", "duration_ms"}
    assert "hunter22" not in str(gateway.requests[1].content)


async def test_blocked(tool: Any, gateway: Any) -> None:
    """A blocked tool does not run; a denied entry is made and ActionDenied raised."""
    gateway.check = [BLOCKED]
    with pytest.raises(ActionDenied, match="no permission"):
        await run(tool(never))
    assert gateway.logs[0]["status"] == "denied"
    assert gateway.logs[0]["context"]["reason"] == "no permission"


async def test_held(tool: Any, gateway: Any) -> None:
    """A held tool does not run; a pending entry is made and ApprovalPending raised."""
    gateway.check = [HELD]
    with pytest.raises(ApprovalPending) as raised:
        await run(tool(never))
    assert raised.value.approval_id == "appr-1"
    assert (gateway.logs[0]["status"], gateway.logs[0]["approval_id"]) == ("pending", "appr-1")


async def test_held_and_approved(tool: Any, gateway: Any) -> None:
    """A tool that waits runs after the approval, checked once more with its id."""
    gateway.check = [HELD]
    assert await run(tool(on_hold="wait", hold_timeout=5)) == "done"
    assert [each.get("approval_id") for each in gateway.checks] == [None, "appr-1"]
    assert [each["status"] for each in gateway.logs] == ["pending", "success"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [("denied", ApprovalDenied), ("expired", ApprovalExpired), ("cancelled", ActionDenied)],
)
async def test_held_and_not_approved(tool: Any, gateway: Any, status: str, kind: type[Exception]) -> None:
    """A tool whose approval comes to nothing does not run."""
    gateway.check = [HELD]
    gateway.approval = [{"id": "appr-1", "status": status, "note": None}]
    with pytest.raises(kind):
        await run(tool(never, on_hold="wait"))
    assert len(gateway.checks) == 1


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (httpx.ConnectError("refused"), GatewayUnavailable),
        (httpx.Response(503), GatewayUnavailable),
        (httpx.Response(200, text="<html>"), GatewayProtocolError),
        (httpx.Response(401, json={"detail": "Invalid API key"}), ConfigurationError),
    ],
    ids=["down", "failing", "html", "key"],
)
async def test_no_decision(tool: Any, gateway: Any, reply: Any, kind: type[Exception]) -> None:
    """Without a decision the tool does not run."""
    gateway.check = [reply] * 10
    with pytest.raises(kind):
        await run(tool(never))
    assert gateway.logs == []


@pytest.mark.parametrize(
    "error",
    [ValueError("with hunter22"), KeyboardInterrupt(), SystemExit(3), asyncio.CancelledError()],
    ids=repr,
)
async def test_the_very_same_exception(tool: Any, gateway: Any, error: BaseException) -> None:
    """Whatever the tool raises goes on as the same object with its own context, after a failed entry."""

    def body() -> None:
        try:
            raise LookupError("first")
        except LookupError:
            raise error  # noqa: B904 - the implicit context is what is tested

    try:
        try:
            raise RuntimeError("outer")
        except RuntimeError:
            await run(tool(body))
    except BaseException as raised:
        caught = raised
    assert caught is error
    assert isinstance(caught.__context__, LookupError)
    assert gateway.logs[0]["status"] == "failed"
    assert gateway.logs[0]["context"]["error"]["type"] == type(error).__name__
    assert b"hunter22" not in gateway.requests[1].content


def test_stop_iteration_survives(guard: Guard, gateway: Any) -> None:
    """A tool may raise StopIteration: it reaches the caller as it is."""
    error = StopIteration("mine")

    @guard.guarded("a.b")
    def tool() -> None:
        raise error

    with pytest.raises(StopIteration) as raised:
        tool()
    assert raised.value is error
    assert gateway.logs[0]["context"]["error"] == {"type": "StopIteration", "message": "mine"}


@pytest.mark.parametrize(
    "reply", [httpx.ConnectError("refused"), httpx.Response(400), RuntimeError("bug")], ids=repr
)
async def test_a_failed_record_changes_nothing(tool: Any, gateway: Any, reply: Any) -> None:
    """Value and exception of the tool are the same when its entry cannot be delivered."""
    gateway.log = [reply] * 20
    assert await run(tool()) == "done"

    def body() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await run(tool(body))


async def test_cancelled_while_running(guard: Guard, gateway: Any) -> None:
    """A task cancelled while its tool runs is recorded as failed and stays cancelled."""
    running = asyncio.Event()

    @guard.guarded("a.b")
    async def tool() -> None:
        running.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(tool())
    await running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gateway.logs[0]["context"]["error"]["type"] == "CancelledError"


def test_changed_while_waiting(make_guard: Callable[..., Guard], gateway: Any) -> None:
    """Arguments that are changed while a person decides are asked about anew."""
    gateway.check = [HELD]
    items = [1]

    def sneaky(request: httpx.Request) -> httpx.Response:
        if "approvals" in request.url.path:
            items.append(2)
        found: httpx.Response = gateway(request)
        return found

    @make_guard(transport=httpx.MockTransport(sneaky)).guarded("a.b", on_hold="wait")
    def tool(items: list[int]) -> list[int]:
        return items

    assert tool(items) == [1, 2]
    assert [(each["context"], each.get("approval_id")) for each in gateway.checks] == [
        ({"items": [1]}, None),
        ({"items": [1, 2]}, None),
    ]


def test_looks_like_the_function() -> None:
    """Name, documentation, signature and hints are the function's own."""
    assert module_level.__name__ == "module_level"
    assert module_level.__doc__ == "What it does."
    assert str(inspect.signature(module_level)) == "(charge: 'str', amount: 'float' = 1.0) -> 'str'"
    assert inspect.get_annotations(module_level, eval_str=True)["amount"] is float
    assert inspect.isfunction(module_level)
    assert not inspect.iscoroutinefunction(module_level)


async def test_stays_a_coroutine_function(guard: Guard) -> None:
    """Coroutine functions, methods and class methods stay coroutine functions; a wrong call fails at once."""

    @guard.guarded("a.b")
    async def tool(n: int) -> int:
        return n

    class Holder:
        @guard.guarded("a.b")
        async def method(self) -> None: ...

        @guard.guarded("a.b")
        @classmethod
        async def of_class(cls) -> None: ...

        @guard.guarded("a.b")
        async def __call__(self) -> int:
            return 7

    class Plain:
        async def __call__(self) -> int:
            return 8

    assert inspect.iscoroutinefunction(tool)
    assert inspect.iscoroutinefunction(Holder().method)
    assert inspect.iscoroutinefunction(Holder.of_class)
    with pytest.raises(TypeError):
        tool()  # type: ignore[call-arg]  # what is tested
    assert await Holder()() == 7
    assert await guard.guarded("a.b")(Plain())() == 8
    assert await guard.guarded("a.b")(functools.partial(inspect.unwrap(tool), 5))() == 5


def test_amount(guard: Guard, gateway: Any) -> None:
    """The argument named by amount= is sent under both names."""

    @guard.guarded("a.b", amount="cents")
    def tool(cents: int, **more: int) -> None: ...

    tool(250, amount=1)
    assert gateway.context == {"cents": 250, "amount": 250, "amount_": 1}


def test_copy_and_pickle() -> None:
    """A guarded function is copied and pickled like the function, a method like the method."""
    assert pickle.loads(pickle.dumps(module_level)) is module_level
    assert copy.copy(module_level) is module_level
    assert copy.deepcopy(module_level) is module_level
    method = copy.deepcopy(Tools().method)
    assert method.__name__ == "method"
    assert type(method) is type(Tools().method)


class Callee:
    @guarded("tools.call")
    def __call__(self) -> None: ...


class Manager:
    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
@guarded("tools.generator")
def manager() -> Iterator[None]:
    yield


@functools.wraps(module_level)
def wrapped_again(*args: Any, **kwargs: Any) -> Any: ...


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (Tools, "guard one of its methods"),
        (functools.partial(Tools, 1), "guard one of its methods"),
        (property(lambda self: 1), "guard the function below @property"),
        (functools.cached_property(lambda self: 1), "guard the function below @cached_property"),
        (5, "cannot be called"),
        ((n for n in ()), "cannot be called"),
        (iter, "write a function that calls it, and guard that function"),
        (functools.partial(iter, ()), "Python cannot read the signature of"),
        (Manager(), "decorate the __call__ method of its class"),
        (module_level, "already guarded"),
        (wrapped_again, "already guarded"),
        (staticmethod(module_level), "already guarded"),
        (Tools().method, "already guarded"),
        (Tools.method, "already guarded"),
        (functools.partial(module_level, "ch_1"), "already guarded"),
        (functools.partial(functools.partial(module_level, "ch_1"), 2.0), "already guarded"),
        (functools.partial(Tools().method, "ch_1"), "already guarded"),
        (functools.partialmethod(module_level, "ch_1"), "already guarded"),
        (classmethod(functools.partial(module_level, "ch_1")), "already guarded"),
        (guarded("a.b")(functools.partial(len, [])), "already guarded"),
        (guarded("a.b")(functools.partialmethod(str.upper)), "already guarded"),
        (manager, "already guarded"),
        (guarded("a.b")(contextlib.contextmanager(inspect.unwrap(manager))), "already guarded"),
        (staticmethod(manager), "already guarded"),
        (contextlib.contextmanager(manager), "already guarded"),
        (Callee(), "already guarded"),
        (Callee().__call__, "already guarded"),
        (functools.partial(Callee()), "already guarded"),
    ],
)
def test_unguardable(thing: Any, message: str) -> None:
    """What would be recorded wrongly is refused when decorated, with the cure."""
    decorate: Any = guarded("a.b")
    with pytest.raises(ConfigurationError, match=message):
        decorate(thing)


@pytest.mark.parametrize("action", ["", "two words", "a\nb", "ä", "x" * 256, None, module_level])
def test_wrong_action(action: Any) -> None:
    """An action must be 1 to 255 visible ASCII characters; a bare decorator says how to write it."""
    with pytest.raises(ConfigurationError, match=r"service\.operation"):
        guarded(action)


@pytest.mark.parametrize(
    "options",
    [
        {"on_hold": "ask"},
        {"on_hold": True},
        {"on_hold": "check"},
        {"on_hold": ValueError},
        {"hold_timeout": 5},
        {"on_hold": "wait", "hold_timeout": 0},
        {"on_hold": "wait", "hold_timeout": float("nan")},
        {"on_hold": "wait", "hold_timeout": True},
        {"agent_id": ""},
    ],
)
def test_wrong_options(options: dict[str, Any]) -> None:
    """Wrong options are refused when decorated, by name."""
    with pytest.raises(ConfigurationError, match=list(options)[-1]):
        guarded("a.b", **options)


def test_call_asks_again_every_time(guard: Guard, gateway: Any) -> None:
    """Two calls are two checks: no decision is remembered."""
    gateway.check = [
        {"allowed": True, "requires_approval": False, "reason": None, "approval_id": None},
        BLOCKED,
    ]
    tool = guard.guarded("a.b")(lambda: 1)
    assert tool() == 1
    with pytest.raises(ActionDenied):
        tool()
