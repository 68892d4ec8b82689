"""The end of embedded gateways: close, garbage collection, fork, interpreter exit; several at the same time."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.waiting import until

from toolgate import ConfigurationError, Guard, GuardError
from toolgate._options import Actions

pytestmark = pytest.mark.sqlite_only("the embedded gateway is on SQLite alone")


def left() -> set[str]:
    """Return the names of the threads that the test started."""
    return {thread.name for thread in threading.enumerate() if thread not in BEFORE}


BEFORE = set[threading.Thread]()


@pytest.fixture(autouse=True)
def _threads_before() -> None:
    BEFORE.clear()
    BEFORE.update(threading.enumerate())


def home_at(folder: Path) -> dict[str, str]:
    return {name: str(folder) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")}


@pytest.fixture
def same_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the configuration folder of the interpreters that `python` starts, and with it their secret."""
    for name, value in home_at(tmp_path).items():
        monkeypatch.setenv(name, value)


def python(code: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new interpreter in which warnings are errors."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, **home_at(folder), **env},
        timeout=300,
    )


OPEN = """
import asyncio, os, sys, threading
from toolgate import Guard, GuardError
guard = Guard.embedded("toolgate.db", agent="bot", allow=["math.add"], require_approval=["mail.send"])
add = guard.guarded("math.add")(lambda a: a)
"""


def test_close_ends_every_thread_and_waiting_call() -> None:
    guard = Guard.embedded(":memory:", agent="bot", require_approval=["mail.send"], timeout=10)
    ended: list[object] = []

    def call() -> None:
        try:
            guard.guarded("mail.send", on_hold="wait")(lambda: None)()
        except GuardError as error:
            ended.append(type(error))

    thread = threading.Thread(target=call)
    thread.start()
    until(guard.gateway.pending)
    guard.close()
    guard.close()
    thread.join(60)
    assert ended == [ConfigurationError]
    # A thread is still listed for a moment after its function returned.
    until(lambda: not left())


def test_garbage_collected_guard_closes_its_gateway() -> None:
    guard = Guard.embedded(":memory:", agent="bot")
    assert "toolgate-embedded" in left()
    del guard
    gc.collect()
    until(lambda: not left())


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param("", id="nothing"),
        pytest.param("sys.exit(0)", id="exit", marks=pytest.mark.slow),
        pytest.param("del guard, add", id="dropped", marks=pytest.mark.slow),
    ],
)
def test_interpreter_exit_delivers_the_log(tmp_path: Path, ending: str, same_home: None) -> None:
    done = python(f"{OPEN}assert add(1) == 1\n{ending}", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with Guard.embedded(tmp_path / "toolgate.db", agent="reader") as guard:
        entries = guard.gateway._call_api("GET", "/api/logs?action=math.add")
    assert [entry["status"] for entry in entries] == ["success"]


@pytest.mark.slow
def test_waiting_calls_do_not_delay_the_interpreter_exit(tmp_path: Path) -> None:
    code = f"""{OPEN}
wait = guard.guarded("mail.send", on_hold="wait")(lambda: None)
def call():
    try:
        wait()
    except GuardError:
        pass
threading.Thread(target=call, daemon=True).start()
while not guard.gateway.pending():
    pass
"""
    done = python(code, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_gateway_serves_several_event_loops(tmp_path: Path) -> None:
    code = f"""{OPEN}
async def ask(n):
    return (await guard.acheck("math.add", {{"n": n}})).allowed
print([asyncio.run(ask(n)) for n in range(3)])
"""
    done = python(code, tmp_path)
    assert (done.stdout, done.stderr) == ("[True, True, True]\n", "")


FORK = """
pid = os.fork()
if pid == 0:
    try:
        add(2)
    except GuardError as error:
        print(type(error).__name__, "fork" in str(error), "spawn" in str(error), flush=True)
    with Guard.embedded("toolgate.db", agent="child", allow=["math.add"]) as own:
        print(own.check("math.add").allowed, flush=True)
    guard.close()
    os._exit(0)
_, status = os.waitpid(pid, 0)
print(status, add(3))
"""


def test_forked_child_is_refused_and_may_open_its_own_gateway(tmp_path: Path) -> None:
    done = python(OPEN + FORK, tmp_path)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["ConfigurationError True True", "True", "0 3"]


def test_two_processes_share_a_file_without_lost_entries(tmp_path: Path, same_home: None) -> None:
    code = f"{OPEN}\nfor n in range(25): add(n)\nprint(guard._guard_state.settings.agent_id)"
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: python(code, tmp_path, TOOLGATE_TIMEOUT="60"), range(2)))
    assert [one.stderr for one in done] == ["", ""]
    assert done[0].stdout == done[1].stdout
    with Guard.embedded(tmp_path / "toolgate.db", agent="reader") as guard:
        entries = guard.gateway._call_api("GET", "/api/logs?action=math.add&limit=100")
    assert len(entries) == 50


def test_threads_receive_their_own_decisions() -> None:
    allow: Actions = {"pay": {"max_amount": 50}}
    with (
        Guard.embedded(":memory:", agent="bot", allow=allow, timeout=60) as guard,
        ThreadPoolExecutor(16) as pool,
    ):
        allowed = list(pool.map(lambda n: guard.check("pay", {"amount": n}).allowed, range(100)))
    assert allowed == [n <= 50 for n in range(100)]


@pytest.mark.slow
def test_unfinished_generator_does_not_delay_the_interpreter_exit(tmp_path: Path, same_home: None) -> None:
    code = f"""{OPEN}
@guard.guarded("math.add")
def items():
    yield 1
    yield 2
it = items()
assert next(it) == 1
"""
    done = python(code, tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.count("\n") == 1
    assert "log entries stay in the outbox" in done.stderr


@pytest.mark.slow
def test_call_in_an_exit_handler_is_refused(tmp_path: Path) -> None:
    code = f"""{OPEN}
import atexit
def late():
    try:
        print(add(1))
    except GuardError as error:
        print(error)
atexit.register(late)
add(1)
"""
    done = python(code, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(
        "the embedded gateway has closed because the Python interpreter is shutting down"
    )
