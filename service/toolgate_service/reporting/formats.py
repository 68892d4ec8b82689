"""How lines are written: for people, or one JSON object each for whatever collects them."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from toolgate_service.clock import wire
from toolgate_service.reporting.context import REQUEST

#: the attribute of a record that holds fields of its own, by name
FIELDS = "toolgate_fields"

#: what would begin another line, or tell a terminal what to do, as Python escapes it
_ESCAPED = {one: repr(chr(one))[1:-1] for one in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)}
_ESCAPED_IN_LINES = {one: escaped for one, escaped in _ESCAPED.items() if chr(one) not in "\n\t"}


class TextFormat(logging.Formatter):
    """Moment, level, message, and the request, unless the message names it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the standard library's name
        """Write a line, without what belongs behind it; others' words in it make no second one."""
        line = super().formatMessage(record).translate(_ESCAPED)
        request = REQUEST.get()
        return line if request is None or request in line else f"{line} (request {request})"

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the standard library's name
        """Write a traceback, in which others' words may stand too."""
        return super().formatException(ei).translate(_ESCAPED_IN_LINES)


class JsonFormat(logging.Formatter):
    """One object a line: ``time``, ``level``, ``logger``, ``message``, and what else is known."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a line."""
        told: dict[str, Any] = {
            "time": wire(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname,
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        request = REQUEST.get()
        if request is not None:
            told["request_id"] = request
        told |= _trace()
        told |= getattr(record, FIELDS, {})
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            told["stack"] = self.formatStack(record.stack_info)
        # Nothing but ASCII: whatever the terminal's or the collector's encoding is.
        return json.dumps(told, default=str)


def _trace() -> dict[str, str]:
    """Return the trace and the span that are under way, if OpenTelemetry is there."""
    # Whoever traces has loaded it: it is not looked for otherwise.
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return {}
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return {}
    return {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"}
