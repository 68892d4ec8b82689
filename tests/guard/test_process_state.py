"""Of those of one process that wait for the same approval, only the last to leave is the last."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest

from toolgate._process_state import PendingApproval, PendingApprovals


def test_waiters_under_threads() -> None:
    """Of many that wait for one approval and leave together, exactly one is the last."""
    waiters = PendingApprovals()
    many = [PendingApproval(waiters) for _ in range(50)]
    for each in many:
        each.begin("appr-1")
    stranger = PendingApproval(waiters)
    stranger.begin("appr-2")
    gate, last = threading.Barrier(len(many)), list[bool]()

    def leave(waiter: PendingApproval) -> None:
        gate.wait()
        last.append(waiter.end())

    threads = [threading.Thread(target=leave, args=(each,)) for each in many]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(last) == [False] * 49 + [True]


def test_a_waiter_that_is_gone_does_not_count() -> None:
    """A call that vanished without a word keeps nobody from withdrawing."""
    waiters = PendingApprovals()
    PendingApproval(waiters).begin("appr-1")
    waiter = PendingApproval(waiters)
    waiter.begin("appr-1")
    assert waiter.end() is True


def test_a_waiter_that_leaves_while_another_looks() -> None:
    """A call collected as garbage may leave in the midst of another's leaving, on the same thread."""
    waiters = PendingApprovals()
    first, second, third = (PendingApproval(waiters) for _ in range(3))
    inner: list[bool] = []

    class Looked:
        def __eq__(self, other: object) -> bool:
            if third.waits_for is not None:
                inner.append(third.end())
            return False

        def __hash__(self) -> int:
            return 0

    odd: Any = Looked()
    first.begin("appr-1")
    third.begin("appr-3")
    waiters.join(second, odd)

    def leave() -> None:
        inner.append(first.end())

    # A thread of its own: a deadlock would be the test's failure and not its end.
    thread = threading.Thread(target=leave, daemon=True)
    thread.start()
    thread.join(timeout=10)
    assert inner == [True, True]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
def test_a_fork_while_somebody_leaves() -> None:
    """A child is not held up by a thread of the parent that was just looking who waits."""
    code = (
        "import os, threading\n"
        "from toolgate._process_state import PendingApproval, PendingApprovals\n"
        "waiters, inside, done = PendingApprovals(), threading.Event(), threading.Event()\n"
        "class Slow:\n"
        "    def __hash__(self): return 0\n"
        "    def __eq__(self, other):\n"
        "        inside.set(); done.wait(); return False\n"
        "first, second = PendingApproval(waiters), PendingApproval(waiters)\n"
        "waiters.join(first, (1, 'appr-1')); waiters.join(second, Slow())\n"
        "threading.Thread(target=first.end).start()\n"
        "inside.wait()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    done.set()\n"
        "    mine = PendingApproval(waiters); mine.begin('appr-1')\n"
        "    os._exit(0 if mine.end() else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "done.set()\n"
    )
    # Killed with all it started when a child hangs.
    with subprocess.Popen([sys.executable, "-W", "ignore", "-c", code], start_new_session=True) as process:
        try:
            assert process.wait(timeout=30) == 0
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
