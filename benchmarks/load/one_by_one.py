"""The gateway, except that each log entry is a transaction of its own: `python -m load.one_by_one serve …`."""

from __future__ import annotations

from typing import Any

from toolgate_cli import main
from toolgate_service.logs.writer import LogWriter

_made_with = LogWriter.__init__


def _one_a_batch(self: LogWriter, *given: Any, **options: Any) -> None:
    _made_with(self, *given, **options | {"max_batch": 1})


def limit() -> None:
    """Let every log writer of this process write one entry at a time, however it is made."""
    setattr(LogWriter, "__init__", _one_a_batch)  # noqa: B010 - mypy lets no method be assigned


if __name__ == "__main__":
    limit()
    main()
