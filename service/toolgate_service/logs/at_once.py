"""Log entries that are handed to the writer the moment they have arrived, and answered when they are on disk.

Only what is an entry. Whatever is wrong with a request is told on the road of all requests, and is counted once all the
same.
"""

import asyncio
from collections.abc import Mapping, Sequence

from starlette.types import Scope

from toolgate_service.errors import ApiError, StorageFault
from toolgate_service.exact_json import Json
from toolgate_service.gateway import Gateway
from toolgate_service.hotpath.admission import ARRIVED, given_key, whose
from toolgate_service.hotpath.arrivals import Arrived, ArrivesSoon, Ask
from toolgate_service.hotpath.http import Call
from toolgate_service.hotpath.quick import Desk, is_plain, reveal, written
from toolgate_service.hotpath.standing import Standing
from toolgate_service.logs.endpoint import answer_of
from toolgate_service.logs.entries import NewEntry, Outcome
from toolgate_service.logs.reading import read_entry
from toolgate_service.organizations import networks
from toolgate_service.organizations.keys import key_digest
from toolgate_service.web.at_once import Found, Later, Peer, Written
from toolgate_service.web.edge import Rules, request_id_of
from toolgate_service.web.headers import RawHeader
from toolgate_service.web.sdk_fields import SdkFields, idempotency_key

PATH = b"/sdk/log"


class LogsAtOnce:
    """Takes log entries without a task of their own, where whose they are is known without waiting.

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
        """Return the answer that will be given, or None for what takes the road of all requests.

        Args:
            headers: the request's, names in lower case.
            body: the whole body.
            peer: who sent it.
        """
        given = dict(headers)
        if not is_plain(given, self._rules):
            return None
        scope: Scope = {"headers": headers, "client": peer}
        try:
            reveal(given, scope, self._rules)
            call = Call(scope, body)
            ask, fields = _read(call)
            standing = self._desk.standing(ask.key_digest, ask.agent_id, ask.action)
            entry = None if standing is None else _entry(self._gateway, call, fields, standing)
            # Before the request is counted: refused, it is counted on the road of all requests.
            if standing is None or entry is None or not self._gateway.log_writer.has_room:
                return None
            rate = self._desk.count(standing)
            if rate is None:
                return None
            added = whose(standing) | rate.headers()
            future = self._gateway.log_writer.append_soon(entry)
        except Exception:  # noqa: BLE001 - whatever it is, the road of all requests meets it again, and tells it
            return None
        request_id = request_id_of(given)
        return future, lambda: _told(future, request_id, added, self._rules)


class LogsSoon:
    """Takes log entries without a task of their own, once the database has said whose they are, and has counted them.

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
        """Return the answer that will be given, or None for what takes the road of all requests.

        Args:
            headers: the request's, names in lower case.
            body: the whole body.
            peer: who sent it.
        """
        given = dict(headers)
        if not is_plain(given, self._rules):
            return None
        scope: Scope = {"headers": headers, "client": peer}
        try:
            reveal(given, scope, self._rules)
            call = Call(scope, body)
            ask, fields = _read(call)
        except Exception:  # noqa: BLE001 - whatever it is, the road of all requests meets it again, and tells it
            return None
        future: asyncio.Future[Written | Found] = asyncio.get_running_loop().create_future()
        asked = self._reader.arrive_soon(ask)
        request_id = request_id_of(given)
        asked.add_done_callback(lambda _: self._go_on(asked, call, fields, request_id, future))
        return future, future.result

    def _go_on(
        self,
        asked: "asyncio.Future[Arrived | None]",
        call: Call,
        fields: dict[str, Json],
        request_id: str,
        future: "asyncio.Future[Written | Found]",
    ) -> None:
        try:
            arrived = asked.result()
        except StorageFault as fault:
            future.set_result({ARRIVED: fault})
            return
        except (Exception, asyncio.CancelledError):  # noqa: BLE001 - asked again it may be told; or the error is, there
            future.set_result({})
            return
        taken = self._taken(arrived, call, fields)
        if taken is None:
            future.set_result({ARRIVED: arrived})
            return
        writing, added = taken
        writing.add_done_callback(lambda _: future.set_result(_told(writing, request_id, added, self._rules)))

    def _taken(
        self, arrived: Arrived | None, call: Call, fields: dict[str, Json]
    ) -> "tuple[asyncio.Future[Outcome], Mapping[bytes, bytes]] | None":
        if arrived is None:
            return None
        standing, rate = arrived
        if rate is None or rate.exceeded:
            return None
        try:
            entry = _entry(self._gateway, call, fields, standing)
            if entry is None:
                return None
            return self._gateway.log_writer.append_soon(entry), whose(standing) | rate.headers()
        except Exception:  # noqa: BLE001 - whatever it is, the road of all requests meets it again, and tells it
            return None


def _read(call: Call) -> tuple[Ask, dict[str, Json]]:
    digest = key_digest(given_key(call.header(b"x-api-key")))
    body, problem = call.fields()
    if problem is not None:
        raise problem
    agent_id = body.get("agent_id")
    return Ask(digest, "actions", agent_id if isinstance(agent_id, str) else ""), body


def _entry(gateway: Gateway, call: Call, fields: dict[str, Json], standing: Standing) -> NewEntry | None:
    """Return the entry that a request is; None if it is another agent's, nobody's, or from outside the allowed networks."""
    if standing.ip_allow_list is not None and not networks.admits(standing.ip_allow_list, call.peer):
        return None
    key = idempotency_key(call.header(b"idempotency-key"))
    plan, limit = gateway.plans[standing.plan], gateway.settings.test_log_bytes
    entry = read_entry(SdkFields(fields), standing, plan, call.peer, key, test_log_bytes=limit)
    known = standing.agent_id is not None or key is not None
    return entry if known and standing.key_agent_id in {None, entry.agent_id} else None


def _told(
    future: "asyncio.Future[Outcome]", request_id: str, added: Mapping[bytes, bytes], rules: Rules
) -> Written:
    try:
        return written(answer_of(future.result()), request_id, added, rules)
    except ApiError as error:
        return written(error, request_id, added, rules)
