"""Fast path of POST /sdk/log: small requests of clients that were admitted lately, answered when they are on disk.

Only valid entries are taken here. Every other request takes the usual path, and is counted once all the same.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from toolgate_service.errors import ApiError, StorageFault
from toolgate_service.exact_json import Json
from toolgate_service.gateway import Gateway
from toolgate_service.hotpath.admission import ARRIVED, Early, tenant_headers
from toolgate_service.hotpath.arrivals import Arrived, ArrivesSoon, Ask
from toolgate_service.hotpath.quick import Desk, client_of, is_admitted, is_plain, written
from toolgate_service.hotpath.standing import Standing
from toolgate_service.logs.endpoint import answer_of
from toolgate_service.logs.entries import NewEntry, Outcome
from toolgate_service.logs.reading import read_entry
from toolgate_service.web.at_once import Found, Later, Peer, Written
from toolgate_service.web.bodies import read_object
from toolgate_service.web.edge import Rules, request_id_of
from toolgate_service.web.headers import RawHeader
from toolgate_service.web.sdk_fields import SdkFields, idempotency_key

PATH = b"/sdk/log"


class LogsAtOnce:
    """Takes log entries without a task of their own, where a look-up needs no waiting.

    Args:
        gateway: the gateway.
        desk: looks at requests.
        rules: the edge's.
    """

    def __init__(self, gateway: Gateway, desk: Desk, rules: Rules) -> None:
        self._gateway = gateway
        self._desk = desk
        self._rules = rules

    def __call__(self, headers: Sequence[RawHeader], body: bytes, peer: Peer) -> Later | None:
        """Return the answer that will be given, or None for what takes the usual path.

        Args:
            headers: the request's, names in lower case.
            body: the whole body.
            peer: who sent it.
        """
        try:
            request = _request_of(self._gateway, headers, body, peer, self._rules)
            if request is None:
                return None
            standing = self._desk.standing(request.ask.key_digest, request.ask.agent_id, request.ask.action)
            entry = None if standing is None else _entry(self._gateway, request, standing)
            # Before the request is counted: refused, it is counted on the usual path.
            if standing is None or entry is None or not self._gateway.log_writer.has_room:
                return None
            rate = self._desk.count(standing)
            if rate is None:
                return None
            added = tenant_headers(standing) | rate.headers()
            future = self._gateway.log_writer.append_soon(entry)
        except Exception:  # noqa: BLE001 - the usual path meets the same error and answers it
            return None
        return future, lambda: _told(future, request.id, added, self._rules)


class LogsSoon:
    """Takes log entries without a task of their own, once the database has authenticated and counted them.

    Args:
        gateway: the gateway.
        reader: the gateway's.
        rules: the edge's.
    """

    def __init__(self, gateway: Gateway, reader: ArrivesSoon, rules: Rules) -> None:
        self._gateway = gateway
        self._reader = reader
        self._rules = rules

    def __call__(self, headers: Sequence[RawHeader], body: bytes, peer: Peer) -> Later | None:
        """Return the answer that will be given, or None for what takes the usual path.

        Args:
            headers: the request's, names in lower case.
            body: the whole body.
            peer: who sent it.
        """
        try:
            request = _request_of(self._gateway, headers, body, peer, self._rules)
        except Exception:  # noqa: BLE001 - the usual path meets the same error and answers it
            return None
        if request is None:
            return None
        future: asyncio.Future[Written | Found] = asyncio.get_running_loop().create_future()
        asked = self._reader.arrive_soon(request.ask)
        asked.add_done_callback(lambda _: self._go_on(asked, request, future))
        return future, future.result

    def _go_on(
        self,
        asked: "asyncio.Future[Arrived | None]",
        request: "_Request",
        future: "asyncio.Future[Written | Found]",
    ) -> None:
        try:
            arrived = asked.result()
        except StorageFault as fault:
            future.set_result({ARRIVED: Early(request.ask, fault)})
            return
        except (Exception, asyncio.CancelledError):  # noqa: BLE001 - the usual path asks again and answers the error
            future.set_result({})
            return
        taken = self._taken(arrived, request)
        if taken is None:
            future.set_result({ARRIVED: Early(request.ask, arrived)})
            return
        writing, added = taken
        writing.add_done_callback(lambda _: future.set_result(_told(writing, request.id, added, self._rules)))

    def _taken(
        self, arrived: Arrived | None, request: "_Request"
    ) -> "tuple[asyncio.Future[Outcome], Mapping[bytes, bytes]] | None":
        if arrived is None:
            return None
        standing, rate = arrived
        if rate is None or rate.exceeded:
            return None
        try:
            entry = _entry(self._gateway, request, standing)
            if entry is None:
                return None
            return self._gateway.log_writer.append_soon(entry), tenant_headers(standing) | rate.headers()
        except Exception:  # noqa: BLE001 - the usual path meets the same error and answers it
            return None


class _Request(NamedTuple):
    """A request that may be answered here, before it is authenticated."""

    id: str
    ask: Ask
    address: str | None
    fields: dict[str, Json]
    #: as the header has it
    idempotency_key: str | None


def _request_of(
    gateway: Gateway, headers: Sequence[RawHeader], raw: bytes, peer: Peer, rules: Rules
) -> _Request | None:
    given = dict(headers)
    if not is_plain(given, headers, rules):
        return None
    client = client_of(given, headers, peer, rules)
    if client not in gateway.recent_keys:
        return None
    digest, address = client
    fields = read_object(raw)
    agent_id, key = fields.get("agent_id"), given.get(b"idempotency-key")
    ask = Ask(digest, "actions", agent_id if isinstance(agent_id, str) else "")
    return _Request(
        request_id_of(given), ask, address, fields, None if key is None else key.decode("latin-1")
    )


def _entry(gateway: Gateway, request: _Request, standing: Standing) -> NewEntry | None:
    """Return the entry of a request; None for another agent's, an unknown agent's, or from outside the allowed networks."""
    if not is_admitted(standing, request.address):
        return None
    key = idempotency_key(request.idempotency_key)
    plan, limit = gateway.plans[standing.plan], gateway.settings.test_log_bytes
    entry = read_entry(SdkFields(request.fields), standing, plan, request.address, key, test_log_bytes=limit)
    known = standing.agent_id is not None or key is not None
    return entry if known and standing.key_agent_id in {None, entry.agent_id} else None


def _told(
    future: "asyncio.Future[Outcome]", request_id: str, added: Mapping[bytes, bytes], rules: Rules
) -> Written:
    try:
        return written(answer_of(future.result()), request_id, added, rules)
    except ApiError as error:
        return written(error, request_id, added, rules)
