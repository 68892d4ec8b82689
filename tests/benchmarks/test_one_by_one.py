"""The gateway that writes one log entry a transaction, to compare with."""

import pytest
from load.one_by_one import limit

from toolgate_service.logs.writer import LogWriter


def test_every_writer_takes_one_entry_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However the gateway makes its writer, a batch is one entry."""
    monkeypatch.setattr(LogWriter, "__init__", LogWriter.__init__)
    usual = LogWriter(None)._max_batch
    limit()
    assert (LogWriter(None)._max_batch, LogWriter(None, max_batch=usual)._max_batch) == (1, 1)
    assert usual > 64
