"""The raw road's operations. FastAPI does not know these routes; each is described beside its code."""

from typing import Any

from toolgate_service.checks.documented import CHECK
from toolgate_service.logs.documented import LOG, LOGS

#: by path; all of them are POST
RAW: dict[str, dict[str, Any]] = {"/sdk/check": CHECK, "/sdk/log": LOG, "/sdk/logs": LOGS}
