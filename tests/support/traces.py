"""strace around a live gateway: what it asked of the kernel, in order, and faults put into its answers.

It is attached to the running process, so that a start-up is neither slowed nor made to fail, and detached again.
"""

import re
import shutil
import subprocess
import sys
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

from support.waiting import until

#: where only parents may trace (Ubuntu's default), the gateway says that anybody of the same user may
TRACEABLE = (
    sys.executable,
    "-c",
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(0x59616d61, ctypes.c_ulong(-1)); os.execv(sys.argv[1], sys.argv[1:])",
)

SYNCS = ("fsync", "fdatasync")
WRITES = ("write", "writev", "pwrite64", "pwritev", "sendto", "sendmsg")

#: a page of the database and more
_SHOWN = 8192

_WHOLE = re.compile(r"^(\d+) +(\w+)\((.*)\) += (-?\d+)(.*)$")
_BEGUN = re.compile(r"^(\d+) +(\w+)\((.*) <unfinished \.\.\.>$")
_RESUMED = re.compile(r"^(\d+) +<\.\.\. (\w+) resumed>(.*)\) += (-?\d+)(.*)$")
_TARGET = re.compile(r"^(\d+)<(.*?)>(?:\(deleted\))?(?:, |$)")


@dataclass(frozen=True, slots=True)
class Syscall:
    """One finished system call.

    Attributes:
        began: the place of its beginning in the trace.
        ended: the place of its end.
        name: which call.
        fd: the file descriptor it was about, or -1.
        target: what that descriptor stands for, a path for instance.
        arguments: the text of its arguments.
        result: what it returned.
    """

    began: int
    ended: int
    name: str
    fd: int
    target: str
    arguments: str
    result: int


class Strace:
    """strace on a running process, in a `with` block."""

    def __init__(self, pid: int, output: Path, *, inject: str | None = None) -> None:
        found = shutil.which("strace")
        if found is None:
            pytest.skip("strace is not installed; on Debian and Ubuntu: apt-get install strace")
        self.output = output
        self._command = [found, "-f", "-y", "-s", str(_SHOWN), "-o", str(output), "-p", str(pid)]
        self._command += ["-e", f"trace={','.join((*SYNCS, *WRITES))}"]
        if inject is not None:
            self._command += ["-e", f"inject={inject}"]
        self._said = output.with_suffix(".said")

    def __enter__(self) -> Self:
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(self._command, stderr=said)
        until(lambda: self._attached() or self._process.poll() is not None)
        if self._process.poll() is not None:
            said_text = self._said.read_text()
            if "Operation not permitted" in said_text:
                pytest.skip(f"this machine does not let a process be traced: {said_text.strip()}")
            raise AssertionError(f"strace ended: {said_text}")
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def detach(self) -> None:
        """Let go of the process, which runs on undisturbed."""
        if self._process.poll() is None:
            self._process.terminate()
        self._process.wait(timeout=30)

    def _attached(self) -> bool:
        return "attached" in self._said.read_text()

    def calls(self) -> list[Syscall]:
        """Return what was traced; only once detached is it complete."""
        return read_trace(self.output.read_text(errors="replace").splitlines())


def read_trace(lines: Sequence[str]) -> list[Syscall]:
    """Read the output of ``strace -f -y``, calls that other threads' calls cut in two included."""
    calls: list[Syscall] = []
    open_calls: dict[tuple[str, str], tuple[int, str]] = {}
    for place, line in enumerate(lines):
        if whole := _WHOLE.match(line):
            _, name, arguments, result, _ = whole.groups()
            calls.append(_syscall(place, place, name, arguments, int(result)))
        elif begun := _BEGUN.match(line):
            thread, name, arguments = begun.groups()
            open_calls[thread, name] = (place, arguments)
        elif resumed := _RESUMED.match(line):
            thread, name, rest, result, _ = resumed.groups()
            if (thread, name) in open_calls:
                began, arguments = open_calls.pop((thread, name))
                calls.append(_syscall(began, place, name, arguments + rest, int(result)))
    return sorted(calls, key=lambda call: call.began)


def _syscall(began: int, ended: int, name: str, arguments: str, result: int) -> Syscall:
    target = _TARGET.match(arguments)
    fd, path = (int(target.group(1)), target.group(2)) if target else (-1, "")
    return Syscall(began, ended, name, fd, path, arguments, result)


@dataclass(frozen=True, slots=True)
class Story:
    """What the kernel saw of one log entry.

    Attributes:
        written: the write of the entry's bytes to the database's log of changes.
        synced: the first sync of that file, begun after the write, that succeeded.
        answered: the beginning of the entry's 200 answer.
    """

    written: Syscall | None
    synced: Syscall | None
    answered: Syscall | None

    @property
    def in_order(self) -> bool:
        """Whether the answer began after the sync had ended."""
        if self.written is None or self.synced is None or self.answered is None:
            return False
        return self.written.ended < self.synced.began and self.synced.ended < self.answered.began


def stories(calls: Sequence[Syscall], marker: re.Pattern[str]) -> dict[str, Story]:
    """Find what happened to each entry, by the marker it carries."""
    writes = [call for call in calls if call.name in WRITES and call.result > 0]
    syncs = [call for call in calls if call.name in SYNCS and call.result == 0]
    written: dict[str, Syscall] = {}
    answered: dict[str, Syscall] = {}
    heads: dict[tuple[int, str], Syscall] = {}
    for call in writes:
        found = set(marker.findall(call.arguments))
        if call.target.endswith("-wal"):
            for name in found:
                written.setdefault(name, call)
        elif not call.target.startswith("/"):
            # Head and body may be written apart: the answer begins with its head.
            if '"HTTP/1.1 ' in call.arguments:
                heads[call.fd, call.target] = call
            for name in found:
                answered.setdefault(name, heads.get((call.fd, call.target), call))
    return {
        name: Story(
            written.get(name), _first_sync(syncs, written.get(name)), _if_accepted(answered.get(name))
        )
        for name in written.keys() | answered.keys()
    }


def _first_sync(syncs: Sequence[Syscall], written: Syscall | None) -> Syscall | None:
    if written is None:
        return None
    later = bisect_right(syncs, written.ended, key=lambda sync: sync.began)
    return next((sync for sync in syncs[later:] if sync.target == written.target), None)


def _if_accepted(answered: Syscall | None) -> Syscall | None:
    return answered if answered is not None and '"HTTP/1.1 200' in answered.arguments else None
