"""An agent that calls its tool until somebody kills it: `python agent_to_kill.py FOLDER NAME MODE`.

The tool writes down that it has begun before it does anything else. Whatever reaches the tool's caller that is not the
gateway's absence is written down as well.
"""

import asyncio
import itertools
import os
import sys
import threading
from importlib import import_module
from pathlib import Path

import httpx

from toolgate import GatewayUnavailable, Guard


def note(file: Path, text: str) -> None:
    """Append a line that outlives this process's death by SIGKILL."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{text}\n".encode())
    os.close(descriptor)


class Agent:
    """One process's tools."""

    def __init__(self, folder: Path, name: str, mode: str) -> None:
        self._folder, self._name, self._mode = folder, name, mode
        self._guard = Guard(timeout=1)
        self._add = self._guard.guarded("math.add")(self.add)
        self._aadd = self._guard.guarded("math.add")(self.aadd)

    def add(self, n: str) -> str:
        """Begin, and return."""
        note(self._folder / "begun", n)
        if "SLOW_TOOL" in os.environ:
            threading.Event().wait()
        return n

    async def aadd(self, n: str) -> str:
        """As `add`."""
        note(self._folder / "begun", n)
        await asyncio.sleep(0.001)
        return n

    def call(self, number: int) -> None:
        """Call the tool, and write down what the caller should not have seen."""
        if self._mode == "async":
            numbers = [f"{self._name}-{os.getpid()}-{number}-{k}" for k in range(5)]
            results = asyncio.run(self._many(numbers))
        else:
            numbers = [f"{self._name}-{os.getpid()}-{number}"]
            try:
                results = [self._add(numbers[0])]
            except BaseException as error:
                results = [error]
        for wanted, got in zip(numbers, results, strict=True):
            if got != wanted and not isinstance(got, GatewayUnavailable):
                note(self._folder / "wrong", f"{wanted}: {got!r}")

    def replay(self) -> int:
        """Send what others left; returns the process's status."""
        sent = self._guard.flush(60)
        self._guard.close()
        return 0 if sent else 1

    async def _many(self, numbers: list[str]) -> list[object]:
        return await asyncio.gather(*map(self._aadd, numbers), return_exceptions=True)


def main(folder: Path, name: str, mode: str) -> int:
    agent = Agent(folder, name, mode)
    if mode == "replay":
        return agent.replay()
    # What the first call loads takes longer than everything else together.
    for module in ("_outbox.sender", "_http.client", "_flow", "_invocation"):
        import_module(f"toolgate.{module}")
    httpx.Client().close()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for number in itertools.count():
        agent.call(number)
        if mode == "forks" and number == 10:
            # Both go on, and are killed together.
            os.fork()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
