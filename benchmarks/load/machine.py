"""The machine: which core does what, what it is, and what processes use of it."""

from __future__ import annotations

import os
import platform
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Self

#: where servers and their databases run, and where the load is made
SERVER, LOAD = 0, 1
ROOT = Path(__file__).resolve().parents[2]
_ALLOWED = os.sched_getaffinity(0) if sys.platform == "linux" else set()


def pinnable() -> bool:
    """Return True if the servers and the load generator can have one core each."""
    return {SERVER, LOAD} <= _ALLOWED


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Pin this thread, and what it starts meanwhile; nothing happens where that cannot be done.

    Args:
        core: Its number.
    """
    if sys.platform != "linux" or not pinnable():
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def circumstances() -> dict[str, str]:
    """Return the circumstances of a measurement: time, commit, machine and versions."""
    cores = os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    pinned = f"server core {SERVER}, load core {LOAD}" if pinnable() else "not pinned"
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "machine": f"{_processor()}, {cores} cores, {memory:.0f} GiB, {platform.system()} {platform.release()}, {pinned}",
        "versions": f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, "
        + ", ".join(f"{name} {version(name)}" for name in ("uvicorn", "starlette", "uvloop")),
    }


class Others:
    """Context manager that measures the time of the two cores that other processes and the host used.

    Servers that are started in the block must also end in it.

    Attributes:
        share: Share of other processes in the time of both cores; None if unknown.
        stolen: Share of the virtual machine's host in the time of both cores; None if unknown.
    """

    def __init__(self) -> None:
        self.share: float | None = None
        self.stolen: float | None = None

    def __enter__(self) -> Self:
        """Begin."""
        self._began = _ticks()
        self._ours = _own_seconds()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        now = _ticks()
        if not now or not self._began:
            return
        total, idle, stolen = (after - before for after, before in zip(now, self._began, strict=True))
        tick = os.sysconf("SC_CLK_TCK")
        busy = (total - idle - stolen) / tick - (_own_seconds() - self._ours)
        self.share = max(0.0, busy * tick / total) if total else None
        self.stolen = stolen / total if total else None


def memory_of(process: int) -> int:
    """Bytes of memory that a process has resident.

    Args:
        process: Its id.
    """
    pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _ticks() -> tuple[int, int, int] | None:
    """All, idle and stolen ticks of the two cores since the machine started."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return None
    found = [0, 0, 0]
    for line in stat.read_text(encoding="ascii").splitlines():
        name, *numbers = line.split()
        if name in {f"cpu{SERVER}", f"cpu{LOAD}"}:
            # user, nice, system, idle, iowait, irq, softirq, steal; guests are within user and nice
            ticks = [int(number) for number in numbers[:8]]
            found = [found[0] + sum(ticks), found[1] + ticks[3] + ticks[4], found[2] + ticks[7]]
    return found[0], found[1], found[2]


def _own_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _commit() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=False
        ).stdout.strip()

    # What a run writes itself changes nothing that is measured.
    changed = git("status", "--porcelain", "--", ".", ":!benchmarks/results", ":!benchmarks/RESULTS.md")
    return (git("rev-parse", "--short=10", "HEAD") or "unknown") + (" and changes" if changed else "")


def _processor() -> str:
    cpus = Path("/proc/cpuinfo")
    if cpus.exists():
        for line in cpus.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
