"""A tool's own error, where a framework wraps it: the log tells of the tool's, and the framework goes on with its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from toolgate import GuardError

__all__ = ["Unwrapping"]


class Unwrapping:
    """One call of a tool: `inside` stands next to the tool, `outside` around what records it.

    Args:
        wrapper: What the framework makes of a tool's error, with that as its cause.
    """

    def __init__(self, wrapper: type[Exception]) -> None:
        self.inside = _Inside(wrapper)

    @contextmanager
    def outside(self) -> Iterator[None]:
        """The framework's error again; a refusal stays one.

        Raises:
            Exception: What the framework made of the tool's error.
        """
        try:
            yield
        except GuardError:
            raise
        except Exception as error:
            if self.inside.wrapped is None:
                raise
            raise self.inside.wrapped from error


class _Inside:
    """Raises the tool's own error."""

    def __init__(self, wrapper: type[Exception]) -> None:
        self._wrapper = wrapper
        self.wrapped: Exception | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, self._wrapper) and error.__cause__ is not None:
            self.wrapped = error
            raise error.__cause__
