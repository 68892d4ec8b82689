"""Guarded callables that are known by their names or by what they are made of, for other processes to use."""

import asyncio
import contextlib
import dataclasses
import functools
import multiprocessing
import os
import pickle
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

from toolgate import Guard, acting_as, guarded

#: kinds that are pickled: by their module and name, or with the instance or class they belong to
PICKLED = (
    "function",
    "coroutine function",
    "generator function",
    "async generator function",
    "context-manager function",
    "method",
    "class method",
    "static method",
)

# Copying sends no request.
OWN = Guard(
    os.environ.get("TOOLGATE_URL", "http://127.0.0.1:9"),
    os.environ.get("TOOLGATE_API_KEY", "ak_" + "k3y" * 12 + "z"),
    os.environ.get("TOOLGATE_AGENT_ID", "agent-1"),
)


@guarded("pickled.function")
def function(n: int) -> int:
    return n


@guarded("pickled.async")
async def afunction(n: int) -> int:
    return n


@guarded("pickled.generator")
def generator(n: int) -> Iterator[int]:
    yield n


@guarded("pickled.agenerator")
async def agenerator(n: int) -> AsyncIterator[int]:
    yield n


@guarded("pickled.manager")
@contextlib.contextmanager
def manager(n: int) -> Iterator[int]:
    yield n


def bare(n: int) -> int:
    return n


async def abare(n: int) -> int:
    return n


@dataclasses.dataclass
class Tool:
    name: str

    def __call__(self, n: int) -> int:
        return n

    @guarded("pickled.method")
    def method(self, n: int) -> int:
        return n

    @guarded("pickled.class")
    @classmethod
    def of_class(cls, n: int) -> int:
        return n

    @guarded("pickled.static")
    @staticmethod
    def static(n: int) -> int:
        return n


class AsyncTool:
    async def __call__(self, n: int) -> int:
        return n


def by_default(n: int) -> int:
    return n


def tools() -> dict[str, Any]:
    """One of each; called with 1 (a partial with nothing) it gives 1."""
    return {
        "function": function,
        "coroutine function": afunction,
        "generator function": generator,
        "async generator function": agenerator,
        "context-manager function": manager,
        "method": Tool("t").method,
        "class method": Tool.of_class,
        "static method": Tool.static,
        "object": guarded("pickled.object")(Tool("t")),
        "async object": guarded("pickled.aobject")(AsyncTool()),
        "partial": functools.partial(guarded("pickled.partial")(bare), 1),
        "guarded partial": guarded("pickled.gpartial")(functools.partial(bare, 1)),
        "guarded async partial": guarded("pickled.gapartial")(functools.partial(abare, 1)),
        "taken method": guarded("pickled.taken")(Tool("t").__call__),
        "beside its name": guarded("pickled.beside", on_hold="wait", hold_timeout=3)(by_default),
        "built-in": guarded("pickled.builtin")(abs),
        "object of a guard": OWN.guarded("pickled.own", exclude={"n"})(Tool("t")),
    }


def use(tool: Any) -> Any:
    """What it gives."""
    made = tool() if isinstance(tool, functools.partial) else tool(1)
    if hasattr(made, "__next__"):
        return next(iter(list(made)))
    if hasattr(made, "__enter__"):
        with made as value:
            return value
    if hasattr(made, "__aiter__"):
        return asyncio.run(_first(made))
    return asyncio.run(_awaited(made)) if hasattr(made, "__await__") else made


async def _first(made: Any) -> Any:
    return [item async for item in made][0]  # noqa: RUF015 - to its end


async def _awaited(made: Any) -> Any:
    return await made


def use_as(tool: Any, run_id: str) -> Any:
    """What it gives in a run."""
    with acting_as(os.environ["TOOLGATE_AGENT_ID"], run_id=run_id):
        return use(tool)


def main(method: str) -> None:
    """Use every one in a process that `method` starts, and here."""
    context = multiprocessing.get_context(method)
    with context.Pool(1) as pool:
        for name in PICKLED:
            tool = tools()[name]
            given = pool.apply(use_as, (tool, f"run-{method}"))
            assert given == use(pickle.loads(pickle.dumps(tool))) == 1, name
        pool.close()
        pool.join()


if __name__ == "__main__":
    main(sys.argv[1])
