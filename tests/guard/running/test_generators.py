"""Guarded generators do what bare ones do, and end in exactly one entry."""

from __future__ import annotations

import contextlib
import gc
import inspect
import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolgate import ActionDenied, Guard, acting_as

BLOCKED = {"allowed": False, "requires_approval": False, "reason": "no permission", "approval_id": None}


class Stop(Exception):
    """Ends a generator that takes everything else."""


# Each step of a body: what it does when it is resumed with a value or an exception.
Steps = list[str]
STEPS = st.lists(
    st.sampled_from(["yield", "catch", "cleanup", "raise", "return", "nested", "stop"]), max_size=6
)
RESUME = st.one_of(
    st.just(("next",)),
    st.tuples(st.just("send"), st.integers(0, 3) | st.none()),
    st.tuples(
        st.just("throw"),
        st.sampled_from([ValueError, GeneratorExit, StopIteration, KeyboardInterrupt, Stop]),
    ),
    st.just(("close",)),
)


def body(steps: Steps, began: Callable[[bool], object] = bool) -> Generator[Any, Any, Any]:
    """A generator that does what the steps say."""
    began(True)
    got: list[Any] = []
    for number, step in enumerate(steps):
        if step == "yield":
            got.append((yield (number, got[-1:])))
        elif step == "catch":
            try:
                got.append((yield number))
            except BaseException as error:
                got.append(type(error).__name__)
        elif step == "cleanup":
            try:
                yield number
            finally:
                got.append("cleaned")
        elif step == "nested":
            got.append((yield from body(["catch", "yield"])))
        elif step == "raise":
            raise LookupError(number)
        elif step == "stop":
            raise StopIteration(number)  # noqa: PLR1708 - what Python makes of it is compared
        else:
            return got
    return got


def outcome(act: Callable[[], Any]) -> Any:
    """What came of it: a value, or an exception with all that hangs on it."""
    try:
        return "value", act()
    except BaseException as error:
        return "raised", chain(error)


def chain(error: BaseException | None) -> Any:
    if error is None:
        return None
    value = error.value if isinstance(error, StopIteration) else None
    return type(error).__name__, error.args, value, chain(error.__cause__), chain(error.__context__)


def resumed(generator: Generator[Any, Any, Any], how: tuple[Any, ...]) -> Any:
    if how[0] == "next":
        return outcome(lambda: next(generator))
    if how[0] == "send":
        return outcome(lambda: generator.send(how[1]))
    if how[0] == "throw":
        return outcome(lambda: generator.throw(how[1]("thrown")))
    return outcome(generator.close)


def ended_well(play: tuple[Any, ...], seen: Any) -> bool:
    """Whether the play that ended a generator did so without an error of the generator's."""
    if seen[0] == "value":
        return True
    asked = play in [("close",), ("throw", GeneratorExit)]
    kind = seen[1][0]
    return kind == "StopIteration" or (asked and kind == "GeneratorExit")


@given(steps=STEPS, plays=st.lists(RESUME, max_size=8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_play_goes_as_with_a_bare_one(
    guard: Guard, gateway: Any, steps: Steps, plays: list[tuple[Any, ...]]
) -> None:
    """next, send, throw and close give the same values and exceptions; what began ends in exactly one entry."""
    gateway.forget()
    bare_runs, runs = [], []
    bare, guarded = (
        body(steps, bare_runs.append),
        guard.guarded("a.b", ignore={"began"})(body)(steps, runs.append),
    )
    items, status = 0, None
    for play in [*plays, *[("close",)] * (3 * len(steps) + 1)]:
        expected = resumed(bare, play)
        assert resumed(guarded, play) == expected
        assert runs == bare_runs
        state = inspect.getgeneratorstate(bare)
        assert inspect.getgeneratorstate(guarded) == state
        items += state == inspect.GEN_SUSPENDED
        if state == inspect.GEN_CLOSED and status is None:
            status = "success" if ended_well(play, expected) else "failed"
    assert guard.flush()
    assert len(gateway.checks) == len(runs)
    seen = [(each["status"], each["context"]["items"]) for each in gateway.logs]
    assert seen == ([(status, items)] if runs else [])


def test_the_check_is_before_the_first_item(guard: Guard, gateway: Any) -> None:
    """Calling asks nothing; a refused generator ends with the refusal, and nothing of it has run."""

    @guard.guarded("a.b")
    def tool() -> Iterator[int]:
        pytest.fail("the tool ran")
        yield 1

    gateway.check = [BLOCKED]
    refused = tool()
    assert gateway.requests == []
    with pytest.raises(ActionDenied, match="no permission"):
        next(refused)
    assert list(refused) == []
    assert [each["status"] for each in gateway.logs] == ["denied"]


def test_a_wrong_call_fails_where_it_is_written(guard: Guard) -> None:
    """Arguments that do not fit are a TypeError at the call, as of any generator function."""

    @guard.guarded("a.b")
    def tool(n: int) -> Iterator[int]:
        yield n

    with pytest.raises(TypeError, match="'n'"):
        tool()  # type: ignore[call-arg]  # what is tested


def test_the_caller_acts_and_not_who_iterates(guard: Guard, gateway: Any) -> None:
    """The identity is the caller's; the arguments count as they are when the tool begins."""

    @guard.guarded("a.b")
    def tool(items: list[int]) -> Iterator[int]:
        yield from items

    items = [1]
    with acting_as("caller", run_id="run-7"):
        made = tool(items)
    items.append(2)
    with acting_as("somebody else"):
        assert list(made) == [1, 2]
    for sent in (*gateway.checks, *gateway.logs):
        assert (sent["agent_id"], sent["run_id"], sent["context"]["items"]) == ("caller", "run-7", [1, 2])
    assert gateway.logs[0]["context"]["items_"] == 2


@pytest.mark.parametrize("cyclic", [False, True])
def test_an_abandoned_one_is_recorded(guard: Guard, gateway: Any, cyclic: bool) -> None:
    """A generator nobody keeps is closed and recorded, also when the garbage collector finds it."""
    cleaned = []

    @guard.guarded("a.b")
    def tool() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            cleaned.append(True)

    made: Any = [tool()]
    next(made[0])
    if cyclic:
        made.append(made)
    del made
    gc.collect()
    assert cleaned == [True]
    assert guard.flush()
    assert [
        (each["status"], each["context"]["items"], each["context"]["closed"]) for each in gateway.logs
    ] == [("success", 1, True)]


def test_one_that_its_own_argument_holds_is_collected(guard: Guard, gateway: Any) -> None:
    """What is kept for the entry at the end keeps neither the arguments nor, through them, the generator."""

    class Holder(list[Any]):
        pass

    @guard.guarded("a.b", ignore={"holder"})
    def tool(holder: Holder) -> Iterator[int]:
        yield 1
        yield 2

    holder = Holder()
    holder.append(tool(holder))
    next(holder[0])
    seen = weakref.ref(holder)
    del holder
    gc.collect()
    assert seen() is None
    assert guard.flush()
    assert [(each["status"], each["context"]["items"]) for each in gateway.logs] == [("success", 1)]


def test_one_that_is_never_begun_is_no_call(guard: Guard, gateway: Any) -> None:
    """Nothing is asked and nothing recorded of a generator that is dropped before its first item."""

    @guard.guarded("a.b")
    def tool() -> Iterator[int]:
        yield 1

    tool()
    gc.collect()
    assert guard.flush()
    assert gateway.requests == []


def test_nothing_is_asked_of_the_gateway_while_garbage_is_collected(guard: Guard, gateway: Any) -> None:
    """What is abandoned is recorded later: collecting it may happen in the midst of a request."""

    @guard.guarded("a.b")
    def tool() -> Iterator[int]:
        yield 1
        yield 2

    made = tool()
    next(made)
    # The outbox sends by a thread of its own, whenever it likes.
    asked = [request for request in gateway.requests if request.url.path != "/sdk/logs"]
    del made
    assert [request for request in gateway.requests if request.url.path != "/sdk/logs"] == asked
    assert guard.flush()
    assert len(gateway.logs) == 1


def test_looks_and_behaves_like_a_generator(guard: Guard) -> None:
    """It is one, by its type and its name, and hands on what it returns to `yield from`."""

    @guard.guarded("a.b")
    def tool() -> Generator[int, str, str]:
        return (yield 1)

    made = tool()
    assert inspect.isgeneratorfunction(tool)
    assert inspect.isgenerator(made)
    assert (made.__name__, made.__qualname__) == (tool.__name__, tool.__qualname__)

    def outer() -> Generator[int, str, list[str]]:
        return [(yield from tool())]

    through = outer()
    assert next(through) == 1
    with pytest.raises(StopIteration) as ended:
        through.send("answer")
    assert ended.value.value == ["answer"]


def test_items_and_what_is_sent_are_not_kept(guard: Guard) -> None:
    """What was given out and what was sent in is let go, as by a bare generator."""

    class Big:
        pass

    @guard.guarded("a.b")
    def tool() -> Generator[Big, Big, None]:
        while True:
            yield Big()

    made = tool()
    first = weakref.ref(next(made))
    assert first() is None
    big = Big()
    sent = weakref.ref(big)
    made.send(big)
    del big
    assert sent() is None
    made.close()


def test_threads_may_take_turns(guard: Guard, gateway: Any) -> None:
    """A generator that one thread begins may be ended by another."""

    @guard.guarded("a.b")
    def tool() -> Iterator[int]:
        yield 1
        yield 2

    made, rest = tool(), []
    next(made)
    thread = threading.Thread(target=lambda: rest.extend(made))
    thread.start()
    thread.join()
    assert rest == [2]
    assert [each["context"]["items"] for each in gateway.logs] == [2]


def test_an_outage_at_the_end_changes_nothing(guard: Guard, gateway: Any) -> None:
    """Items and return value are the same when the entry cannot be delivered."""
    gateway.log = [httpx.ConnectError("refused")] * 20

    @guard.guarded("a.b")
    def tool() -> Generator[int, None, str]:
        yield 1
        return "end"

    made = tool()
    assert next(made) == 1
    with pytest.raises(StopIteration, match="end"):
        next(made)


@pytest.mark.parametrize("above", [True, False])
def test_context_managers(guard: Guard, gateway: Any, above: bool) -> None:
    """Checked when entered; the body's exception goes through as the very same, or is swallowed as before."""
    guard_it, managing = guard.guarded("a.b"), contextlib.contextmanager

    def tool(swallow: bool) -> Iterator[str]:
        try:
            yield "entered"
        except LookupError:
            if not swallow:
                raise

    managed: Any = guard_it(managing(tool)) if above else managing(guard_it(tool))
    made = managed(False)
    assert gateway.requests == []
    error = LookupError("mine")
    with pytest.raises(LookupError) as raised, made as value:  # noqa: PT012 - the body of a with is what is tested
        assert value == "entered"
        assert len(gateway.checks) == 1
        raise error
    assert raised.value is error
    with managed(True):
        raise LookupError
    for kind in (StopIteration, RuntimeError):
        with pytest.raises(kind, match="mine"), managed(True):
            raise kind("mine")
    assert [each["status"] for each in gateway.logs] == ["failed", "success", "failed", "failed"]


@pytest.mark.parametrize("above", [True, False])
def test_context_managers_as_decorators(guard: Guard, gateway: Any, above: bool) -> None:
    """What a guarded context manager decorates is checked and recorded at each of its calls."""
    guard_it, managing = guard.guarded("a.b"), contextlib.contextmanager

    def tool(n: int) -> Iterator[None]:
        yield

    managed: Any = guard_it(managing(tool)) if above else managing(guard_it(tool))

    @managed(7)
    def decorated() -> str:
        return "done"

    assert gateway.requests == []
    assert [decorated(), decorated()] == ["done", "done"]
    assert [each["context"]["n"] for each in (*gateway.checks, *gateway.logs)] == [7] * 4
