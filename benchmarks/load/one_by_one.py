"""The gateway, except that each log entry is a transaction of its own: `python -m load.one_by_one serve …`."""

from __future__ import annotations

from toolgate_cli import main
from toolgate_service.logs.writer import LogStore, LogWriter

_made_with = LogWriter.__init__


def _one_a_batch(self: LogWriter, store: LogStore, **_: int) -> None:
    _made_with(self, store, max_batch=1)


def limit() -> None:
    """Let every log writer of this process write one entry at a time, however it is made."""
    setattr(LogWriter, "__init__", _one_a_batch)  # noqa: B010 - mypy lets no method be assigned


if __name__ == "__main__":
    limit()
    main()
