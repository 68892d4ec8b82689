"""A span for each transaction below a request, its wait for a turn and its commit included."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from typing import ParamSpec, TypeAlias, TypeVar

from toolgate_service.tracing.spans import is_on, span_below

P = ParamSpec("P")
T = TypeVar("T")

#: what opens a transaction
Opens: TypeAlias = Callable[P, AbstractAsyncContextManager[T]]


def traced(name: str) -> Callable[[Opens[P, T]], Opens[P, T]]:
    """Have what is opened be a span, where spans are told to anybody.

    Args:
        name: the span's.
    """

    def decorate(opens: Opens[P, T]) -> Opens[P, T]:
        @asynccontextmanager
        async def told(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
            with span_below(name):
                async with opens(*args, **kwargs) as opened:
                    yield opened

        @wraps(opens)
        def chosen(*args: P.args, **kwargs: P.kwargs) -> AbstractAsyncContextManager[T]:
            return told(*args, **kwargs) if is_on() else opens(*args, **kwargs)

        return chosen

    return decorate
