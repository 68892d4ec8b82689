"""Log lines on standard error that contain the id of the request, as text or as one JSON object per line."""

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from toolgate_service.core.clock import wire
from toolgate_service.core.settings import Settings

#: id of the current HTTP request; None in background jobs
REQUEST: ContextVar[str | None] = ContextVar("toolgate.request", default=None)

#: key in the ASGI scope under which the authentication stores the id of the organization
ORGANIZATION = "toolgate.organization"

#: attribute of a `LogRecord` that contains additional fields for JSON log lines
FIELDS = "toolgate_fields"

#: translation table that escapes the characters that start a new line or control a terminal
_ESCAPED = {one: repr(chr(one))[1:-1] for one in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)}
_ESCAPED_IN_LINES = {one: escaped for one, escaped in _ESCAPED.items() if chr(one) not in "\n\t"}


class TextFormat(logging.Formatter):
    """Formatter for log lines as text: time, level and message.

    The id of the request is appended unless the message already contains it.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is defined by the standard library
        """Format the log line and escape control characters, so that a logged value cannot forge a second line."""
        line = super().formatMessage(record).translate(_ESCAPED)
        request = REQUEST.get()
        return line if request is None or request in line else f"{line} (request {request})"

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name is defined by the standard library
        """Format a traceback and escape all control characters except newline and tab."""
        return super().formatException(ei).translate(_ESCAPED_IN_LINES)


class JsonFormat(logging.Formatter):
    """Formatter for log lines as JSON.

    Each line is an object with ``time``, ``level``, ``logger``, ``message`` and optional further fields.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Format a log record as one line of JSON."""
        fields: dict[str, Any] = {
            "time": wire(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname,
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        request = REQUEST.get()
        if request is not None:
            fields["request_id"] = request
        fields |= _trace()
        fields |= getattr(record, FIELDS, {})
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = self.formatStack(record.stack_info)
        # Keep the default `ensure_ascii=True`, so that the encoding of the terminal or log collector does not matter.
        return json.dumps(fields, default=str)


def _trace() -> dict[str, str]:
    """Return the ids of the current OpenTelemetry trace and span; an empty dictionary if there is no current span."""
    # Do not import OpenTelemetry here, because it is an optional dependency that is imported only if traces are
    # enabled.
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return {}
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return {}
    return {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"}


def configure_logging(settings: Settings) -> None:
    """Configure logging to standard error, with the format and level of the settings. Repeated calls are allowed.

    The level in the settings applies only to the loggers of the gateway. The level for libraries is always WARNING,
    because some libraries log request headers at lower levels.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormat() if settings.log_format == "json" else TextFormat())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    logging.getLogger("toolgate").setLevel(level)
    # Let all loggers propagate to the handler of the root logger, so that all lines have the same format.
    for name in ("toolgate", "toolgate.gateway", "uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    logging.getLogger("uvicorn").setLevel(max(level, logging.WARNING))
    logging.getLogger("toolgate.access").setLevel(logging.INFO)
    # In the JSON format, log Python's warnings, so that each becomes one object on one line. By default, Python would
    # print them as several lines of text.
    logging.captureWarnings(settings.log_format == "json")
