"""What is guarded survives being copied, pickled and sent to other processes and threads."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import copy
import functools
import inspect
import pickle
import subprocess
import sys
import threading
import typing
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from support import pickled
from support.gateway import LiveGateway, Owner

from toolgate import ConfigurationError, Guard, _default, acting_as, bind_context, configure
from toolgate._callables import GuardedBoundFunction, GuardedFunction

NAMES = list(pickled.tools())
WAYS = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{
        f"pickle {protocol}": lambda tool, protocol=protocol: pickle.loads(pickle.dumps(tool, protocol))
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)
    },
}
COPIES = [(name, way) for way in WAYS for name in NAMES if "copy" in way or name in pickled.PICKLED]


def guarded_inside(tool: Any) -> Any:
    """The guarded function in it."""
    while type(tool) not in (GuardedFunction, GuardedBoundFunction):
        tool = tool.func if isinstance(tool, functools.partial) else tool.__wrapped__
    return tool


def options_of(tool: Any) -> Any:
    inside = guarded_inside(tool)
    parent = inside._self_parent if type(inside) is GuardedBoundFunction else inside
    options = parent._self_guard.options
    return options.action, options.on_hold, options.hold_timeout, options.rules.exclude


@pytest.fixture
def as_default(make_guard: Any, gateway: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module's own guard asks the test's gateway."""
    monkeypatch.setattr(_default, "_default", None)
    configure(
        "http://127.0.0.1:9",
        make_guard()._guard_state.settings.api_key,
        "agent-1",
        transport=httpx.MockTransport(gateway),
    )
    return gateway


@pytest.mark.parametrize(("name", "way"), COPIES)
def test_a_copy_is_guarded_alike(name: str, way: str, as_default: Any) -> None:
    """A copy of every kind asks about the same action with the same options, and gives the same."""
    tool = pickled.tools()[name]
    copied = WAYS[way](tool)
    assert type(copied) is type(tool)
    assert options_of(copied) == options_of(tool)
    assert inspect.signature(copied) == inspect.signature(tool)
    if name != "object of a guard":
        assert pickled.use(copied) == 1
        assert [each["action"] for each in as_default.checks] == [options_of(tool)[0]]


@pytest.mark.parametrize("name", ["function", "coroutine function", "generator function", "built-in"])
def test_what_is_known_by_name_stays_the_same(name: str) -> None:
    """A function is copied and pickled by its name, as bare ones are: it is the very same afterwards."""
    tool = pickled.tools()[name]
    assert copy.copy(tool) is tool
    assert copy.deepcopy(tool) is tool
    if name != "built-in":
        assert pickle.loads(pickle.dumps(tool)) is tool


def test_an_object_is_copied_as_deep_as_asked() -> None:
    """A copied callable object is a new object, and the copy of a partial has its own arguments."""
    tool = pickled.tools()["object"]
    assert copy.copy(tool).__wrapped__ is not tool.__wrapped__
    copied = copy.deepcopy(tool)
    copied.name = "other"
    assert (tool.name, copied.name) == ("t", "other")


def test_what_cannot_be_pickled_bare_cannot_be_pickled_guarded(guard: Guard) -> None:
    """A function nobody else can find is refused as ever."""
    local = guard.guarded("a.b")(lambda: 1)
    with pytest.raises((pickle.PicklingError, AttributeError), match=r"local|lambda"):
        pickle.dumps(local)


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(pickled.PICKLED)))
def test_callable_without_a_name_of_its_own_is_not_pickled(name: str) -> None:
    """Its pickle would contain the guard, and a copy without the guard would run unchecked."""
    with pytest.raises(pickle.PicklingError, match="top level of a module"):
        pickle.dumps(pickled.tools()[name])


def test_a_guard_is_copied_as_itself_and_not_pickled(guard: Guard) -> None:
    """A pickle would contain its API key."""
    assert copy.deepcopy(guard) is copy.copy(guard) is guard
    with pytest.raises(pickle.PicklingError, match="create one with the same settings"):
        pickle.dumps(guard)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes(method: str, live_gateway: LiveGateway, owner: Owner) -> None:
    """Every kind is sent to a process that is forked or spawned, asks the gateway there, and is recorded."""
    names = sorted(options_of(pickled.tools()[name])[0] for name in pickled.PICKLED)
    agent_id = owner.agent()
    for name in names:
        owner.permit(agent_id, name)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "support.pickled", method],
        cwd=Path(__file__).parents[1],
        env={
            "PATH": "",
            "TOOLGATE_URL": live_gateway.url,
            "TOOLGATE_API_KEY": owner.key,
            "TOOLGATE_AGENT_ID": agent_id,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    entries = owner.entries(limit=100)
    assert {each["status"] for each in entries} == {"success"}
    for run in (f"run-{method}", None):
        assert sorted(each["action"] for each in entries if each["run_id"] == run) == names


def test_threads_and_pools(make_guard: Any, gateway: Any) -> None:
    """`carry` takes the identity along, to any number of calls at the same time; without it nobody is assumed."""
    guard = make_guard(agent_id=None)
    together = threading.Barrier(2)

    @guard.guarded("a.b")
    def tool(n: int) -> int:
        together.wait(10)
        return n

    with ThreadPoolExecutor(2) as pool:
        with acting_as("carried", run_id="run-7"):
            carried = bind_context(tool)
        assert list(pool.map(carried, [1, 2])) == [1, 2]
        with pytest.raises(ConfigurationError, match="no agent id is set"):
            pool.submit(tool, 3).result()
    assert {(each["agent_id"], each["run_id"]) for each in gateway.logs} == {("carried", "run-7")}
    assert carried.__name__ == "tool"


async def test_executors_of_a_loop(make_guard: Any, gateway: Any) -> None:
    """`asyncio.to_thread` takes the identity along by itself, `run_in_executor` with `carry`."""
    guard = make_guard(agent_id=None)
    tool = guard.guarded("a.b")(lambda: threading.current_thread() is threading.main_thread())
    loop = asyncio.get_running_loop()
    with acting_as("carried"):
        assert await asyncio.to_thread(tool) is False
        assert await loop.run_in_executor(None, bind_context(tool)) is False
        with pytest.raises(ConfigurationError, match="no agent id is set"):
            await loop.run_in_executor(None, tool)
    assert [each["agent_id"] for each in gateway.logs] == ["carried"] * 2


def test_carry_leaves_no_trace() -> None:
    """What a carried function sets is seen neither here nor by its next call."""
    variable = contextvars.ContextVar("variable", default=0)

    def bump() -> int:
        variable.set(variable.get() + 1)
        return variable.get()

    carried = bind_context(bump)
    assert [carried(), carried(), variable.get()] == [1, 1, 0]


@pytest.mark.parametrize("deep", [1, 5])
async def test_a_guarded_tool_may_call_others(guard: Guard, gateway: Any, deep: int) -> None:
    """A tool that calls itself and others, in both twins, is asked about and recorded at each level."""

    @guard.guarded("a.sync")
    def tool(n: int) -> int:
        return 0 if n == 0 else 1 + tool(n - 1)

    @guard.guarded("a.async")
    async def atool(n: int) -> int:
        return tool(n) if n == 0 else 1 + await atool(n - 1)

    assert await atool(deep) == deep
    assert tool(deep) == deep
    assert len(gateway.checks) == len(gateway.logs) == 2 * (deep + 1) + 1
    levels = [each["context"]["n"] for each in gateway.logs if each["action"] == "a.async"]
    assert sorted(levels) == list(range(deep + 1))


def test_one_event_loop_after_the_other(guard: Guard, gateway: Any) -> None:
    """The same tool runs in one `asyncio.run` after the other, and in several threads' at the same time."""

    @guard.guarded("a.b")
    async def tool(n: int) -> int:
        await asyncio.sleep(0)
        return n

    assert [asyncio.run(tool(n)) for n in range(5)] == list(range(5))
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda n: asyncio.run(tool(n)), range(8))) == list(range(8))
    assert len(gateway.logs) == 13


KIND_TESTS = [
    inspect.iscoroutinefunction,
    inspect.isgeneratorfunction,
    inspect.isasyncgenfunction,
    inspect.isfunction,
    callable,
]


@pytest.mark.parametrize("name", NAMES)
def test_what_inspection_sees(name: str) -> None:
    """Signature, kind, hints and documentation are the original's."""
    tool = pickled.tools()[name]
    inside = guarded_inside(tool)
    original = inside.__wrapped__ if inside is tool else inspect.unwrap(tool)
    if name == "context-manager function":
        original = contextlib.contextmanager(original)
    if isinstance(tool, functools.partial):
        original = functools.partial(inside.__wrapped__, *tool.args, **tool.keywords)
    assert inspect.signature(tool) == inspect.signature(original)
    assert [seen(tool) for seen in KIND_TESTS] == [seen(original) for seen in KIND_TESTS]
    assert inspect.getdoc(tool) == inspect.getdoc(original)
    for each in ("__name__", "__qualname__", "__module__"):
        assert getattr(tool, each, None) == getattr(original, each, None)
    if inspect.isroutine(original):
        assert typing.get_type_hints(tool) == typing.get_type_hints(original)
