"""Where lines go, and from which level on."""

import logging

from toolgate_service.reporting.access import ACCESS
from toolgate_service.reporting.formats import JsonFormat, TextFormat
from toolgate_service.settings import Settings


def report_to_stderr(settings: Settings) -> None:
    """Tell what the gateway does by itself, and what fails, where the operator looks; may be called again.

    The level is that of the gateway's own lines. Of the libraries only warnings are told: at lower levels some tell
    what they send, headers and all.

    Args:
        settings: which form and which level.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormat() if settings.log_format == "json" else TextFormat())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    logging.getLogger("toolgate").setLevel(level)
    # One road for all lines: whatever had a handler of its own writes no form of its own.
    for name in ("toolgate", "toolgate.gateway", "uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    logging.getLogger("uvicorn").setLevel(max(level, logging.WARNING))
    logging.getLogger(ACCESS).setLevel(logging.INFO)
    # Python's own warnings come as several lines: not among objects of one line each.
    logging.captureWarnings(settings.log_format == "json")
