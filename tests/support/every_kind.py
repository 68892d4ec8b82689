"""Every kind of callable that can be guarded: made, guarded and used once, synchronously and asynchronously.

Each maker takes the decorator and what the tool does, and returns what uses the guarded tool with `x=1`.
"""

import contextlib
import dataclasses
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any, TypeAlias, overload

import pydantic

Body: TypeAlias = Callable[[], Any]
AsyncBody: TypeAlias = Callable[[], Awaitable[Any]]
Use: TypeAlias = Callable[[], Any]
AsyncUse: TypeAlias = Callable[[], Awaitable[Any]]


def function(guard_it: Any, body: Body) -> Use:
    @guard_it
    def tool(x: int) -> Any:
        return body()

    return lambda: tool(1)


def afunction(guard_it: Any, body: AsyncBody) -> AsyncUse:
    @guard_it
    async def tool(x: int) -> Any:
        return await body()

    return lambda: tool(1)


def method(guard_it: Any, body: Body) -> Use:
    class Holder:
        @guard_it
        def tool(self, x: int) -> Any:
            return body()

    return lambda: Holder().tool(1)


def amethod(guard_it: Any, body: AsyncBody) -> AsyncUse:
    class Holder:
        @guard_it
        async def tool(self, x: int) -> Any:
            return await body()

    return lambda: Holder().tool(1)


def class_method(guard_it: Any, body: Body) -> Use:
    class Holder:
        @guard_it
        @classmethod
        def tool(cls, x: int) -> Any:
            return body()

    return lambda: Holder.tool(1)


def aclass_method(guard_it: Any, body: AsyncBody) -> AsyncUse:
    class Holder:
        @classmethod
        @guard_it
        async def tool(cls, x: int) -> Any:
            return await body()

    return lambda: Holder.tool(1)


def static_method(guard_it: Any, body: Body) -> Use:
    class Holder:
        @guard_it
        @staticmethod
        def tool(x: int) -> Any:
            return body()

    return lambda: Holder.tool(1)


def astatic_method(guard_it: Any, body: AsyncBody) -> AsyncUse:
    class Holder:
        @staticmethod
        @guard_it
        async def tool(x: int) -> Any:
            return await body()

    return lambda: Holder().tool(1)


def generator(guard_it: Any, body: Body) -> Use:
    @guard_it
    def tool(x: int) -> Iterator[Any]:
        yield body()

    return lambda: _only(tool(1))


def agenerator(guard_it: Any, body: AsyncBody) -> AsyncUse:
    @guard_it
    async def tool(x: int) -> AsyncIterator[Any]:
        yield await body()

    async def use() -> Any:
        return _only([item async for item in tool(1)])

    return use


def manager_above(guard_it: Any, body: Body) -> Use:
    @guard_it
    @contextlib.contextmanager
    def tool(x: int) -> Iterator[None]:
        yield

    return lambda: _within(tool(1), body)


def amanager_above(guard_it: Any, body: AsyncBody) -> AsyncUse:
    @guard_it
    @contextlib.asynccontextmanager
    async def tool(x: int) -> AsyncIterator[None]:
        yield

    return lambda: _awithin(tool(1), body)


def manager_below(guard_it: Any, body: Body) -> Use:
    @contextlib.contextmanager
    @guard_it
    def tool(x: int) -> Iterator[None]:
        yield

    return lambda: _within(tool(1), body)


def amanager_below(guard_it: Any, body: AsyncBody) -> AsyncUse:
    @contextlib.asynccontextmanager
    @guard_it
    async def tool(x: int) -> AsyncIterator[None]:
        yield

    return lambda: _awithin(tool(1), body)


def callable_object(guard_it: Any, body: Body) -> Use:
    class Tool:
        def __call__(self, x: int) -> Any:
            return body()

    tool = guard_it(Tool())
    return lambda: tool(1)


def acallable_object(guard_it: Any, body: AsyncBody) -> AsyncUse:
    class Tool:
        async def __call__(self, x: int) -> Any:
            return await body()

    tool = guard_it(Tool())
    return lambda: tool(1)


def partial(guard_it: Any, body: Body) -> Use:
    def tool(x: int) -> Any:
        return body()

    return guard_it(functools.partial(tool, 1))


def apartial(guard_it: Any, body: AsyncBody) -> AsyncUse:
    async def tool(x: int) -> Any:
        return await body()

    return guard_it(functools.partial(tool, 1))


def partial_method(guard_it: Any, body: Body) -> Use:
    class Holder:
        def plain(self, x: int) -> Any:
            return body()

        tool = guard_it(functools.partialmethod(plain, 1))

    return lambda: Holder().tool()


def apartial_method(guard_it: Any, body: AsyncBody) -> AsyncUse:
    class Holder:
        async def plain(self, x: int) -> Any:
            return await body()

        tool = guard_it(functools.partialmethod(plain, 1))

    return lambda: Holder().tool()


def of_dataclass(guard_it: Any, body: Body) -> Use:
    @dataclasses.dataclass(frozen=True)
    class Holder:
        name: str = "n"

        @guard_it
        def tool(self, x: int) -> Any:
            return body()

    return lambda: Holder().tool(1)


def aof_dataclass(guard_it: Any, body: AsyncBody) -> AsyncUse:
    @dataclasses.dataclass(slots=True)
    class Holder:
        name: str = "n"

        @guard_it
        async def tool(self, x: int) -> Any:
            return await body()

    return lambda: Holder().tool(1)


def of_pydantic(guard_it: Any, body: Body) -> Use:
    class Holder(pydantic.BaseModel):
        name: str = "n"

        @guard_it
        def tool(self, x: int) -> Any:
            return body()

    return lambda: Holder().tool(1)


def aof_pydantic(guard_it: Any, body: AsyncBody) -> AsyncUse:
    class Holder(pydantic.BaseModel):
        name: str = "n"

        @guard_it
        async def tool(self, x: int) -> Any:
            return await body()

    return lambda: Holder().tool(1)


def overloaded(guard_it: Any, body: Body) -> Use:
    @overload
    def tool(x: int) -> int: ...
    @overload
    def tool(x: str) -> str: ...
    @guard_it
    def tool(x: Any) -> Any:
        return body()

    return lambda: tool(1)


def aoverloaded(guard_it: Any, body: AsyncBody) -> AsyncUse:
    @overload
    async def tool(x: int) -> int: ...
    @overload
    async def tool(x: str) -> str: ...
    @guard_it
    async def tool(x: Any) -> Any:
        return await body()

    return lambda: tool(1)


def returns_later(guard_it: Any, body: Body) -> Use:
    def inner() -> Iterator[Any]:
        yield body()

    @guard_it
    def tool(x: int) -> Iterator[Any]:
        return inner()

    return lambda: _only(tool(1))


def areturns_later(guard_it: Any, body: AsyncBody) -> AsyncUse:
    @guard_it
    def tool(x: int) -> Awaitable[Any]:
        return body()

    async def use() -> Any:
        return await tool(1)

    return use


def _only(items: Iterable[Any]) -> Any:
    (item,) = items
    return item


def _within(manager: Any, body: Body) -> Any:
    with manager:
        return body()


async def _awithin(manager: Any, body: AsyncBody) -> Any:
    async with manager:
        return await body()


#: the rows of the table in docs/reference/callables.md
KINDS: dict[str, tuple[Callable[[Any, Body], Use], Callable[[Any, AsyncBody], AsyncUse]]] = {
    "function": (function, afunction),
    "method": (method, amethod),
    "class method": (class_method, aclass_method),
    "static method": (static_method, astatic_method),
    "generator function": (generator, agenerator),
    "context-manager function, guarded above": (manager_above, amanager_above),
    "context-manager function, guarded below": (manager_below, amanager_below),
    "callable object": (callable_object, acallable_object),
    "`functools.partial`": (partial, apartial),
    "`functools.partialmethod`": (partial_method, apartial_method),
    "method of a dataclass": (of_dataclass, aof_dataclass),
    "method of a pydantic model": (of_pydantic, aof_pydantic),
    "overloaded function": (overloaded, aoverloaded),
    "function that returns a generator or coroutine": (returns_later, areturns_later),
}

#: the kinds that are generators inside, whose entries count items
COUNTED = {
    ("generator function", "sync"),
    ("generator function", "async"),
    ("context-manager function, guarded above", "sync"),
    ("context-manager function, guarded above", "async"),
    ("context-manager function, guarded below", "sync"),
    ("context-manager function, guarded below", "async"),
    ("function that returns a generator or coroutine", "sync"),
}
