"""Log lines about a database that cannot be used: one for each kind of work, and one when it works again."""

import logging

import pytest

from toolgate_service.core.errors import StorageFault
from toolgate_service.db.health import OutageLog


def test_repeated_failures_are_one_line_until_the_database_works(caplog: pytest.LogCaptureFixture) -> None:
    log = OutageLog()
    with caplog.at_level(logging.INFO, logger="toolgate.gateway"):
        log.ended()
        for _ in range(500):
            log.failed("requests", StorageFault("PostgreSQL: 57P01"))
            log.failed("batches of log entries", StorageFault("PostgreSQL: 57P01"))
        log.ended()
        log.ended()
        log.failed("requests", StorageFault("PostgreSQL: 57P01"))
    lines = [
        (record.levelname, record.getMessage().partition(" fail because")[0]) for record in caplog.records
    ]
    assert lines == [
        ("ERROR", "requests"),
        ("ERROR", "batches of log entries"),
        (
            "INFO",
            "the database works again; numbers of failures during the outage: 500 batches of log entries, 500 requests",
        ),
        ("ERROR", "requests"),
    ]
    assert not any(record.exc_info for record in caplog.records)


def test_an_unexpected_error_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    OutageLog().failed("requests", ZeroDivisionError())
    assert caplog.records[0].exc_info is not None
