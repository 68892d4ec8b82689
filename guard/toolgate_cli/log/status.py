"""Responses of the gateway about a transparency log."""

import time
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from pydantic import AwareDatetime, BaseModel

from toolgate._http.exchange import Response
from toolgate._http.retry import retry_after
from toolgate_cli.client import GatewayClient, GatewayError, parse_model, read_response

STATUS_PATH: Final = "/api/transparency"
EXPORT_PATH: Final = "/api/transparency/export"

#: maximum requests for the receipt of a row that is not sealed yet; the gateway seals a log about once per second
_MAX_ATTEMPTS: Final = 10
_MAX_WAIT: Final = 5.0


class Status(BaseModel):
    """State of a transparency log, as the gateway's API returns it."""

    origin: str
    vkey: str
    size: int
    root: str
    sealed_at: AwareDatetime
    pending: int
    problem: str | None
    witnesses: list[str]


def parse_status(raw: Any) -> Status:
    """Return the state of a log from its JSON.

    Raises:
        GatewayError: the JSON is not the state of a log.
    """
    return parse_model(Status, raw, "state of the log")


def read_content(response: Response, path: str) -> bytes:
    """Return the body of a response with status 200.

    Raises:
        GatewayError: the response has another status.
    """
    if response.status == HTTPStatus.OK:
        return response.body
    read_response(response, "GET", path)
    raise GatewayError(f"the gateway answered GET {path!r} with {response.status}", status=response.status)


def fetch_receipt(client: GatewayClient, collection: str, row_id: str, environment: str) -> bytes:
    """Return the receipt of a row, and wait until the gateway has sealed the row.

    Args:
        client: client of a user.
        collection: name of the collection in the path, such as ``approvals``.
        row_id: complete id of the row.
        environment: environment of the row.

    Raises:
        GatewayError: the row or its leaf does not exist, or the row is not sealed in time.
    """
    path = f"/api/{collection}/{row_id}/receipt?environment={environment}"
    for _ in range(_MAX_ATTEMPTS):
        response = client.send("GET", path)
        if response.status != HTTPStatus.CONFLICT:
            return read_content(response, path)
        wait = retry_after(response.headers.get("retry-after"), datetime.now(UTC))
        time.sleep(min(_MAX_WAIT, wait or 0))
    raise GatewayError(f"the row is not in the log yet; try again later (GET {path!r})")
