"""Log entries that are handed to the writer the moment they have arrived, and answered when they are on disk."""

import asyncio
from collections.abc import Mapping, Sequence

from toolgate_service.errors import ApiError
from toolgate_service.gateway import Gateway
from toolgate_service.hotpath.admission import given_key, whose
from toolgate_service.hotpath.http import Call
from toolgate_service.hotpath.quick import Desk, is_plain
from toolgate_service.hotpath.standing import Standing
from toolgate_service.logs.endpoint import answer_of
from toolgate_service.logs.entries import NewEntry, Outcome
from toolgate_service.logs.reading import read_entry
from toolgate_service.organizations.keys import key_digest
from toolgate_service.web.at_once import Later, Peer, Written
from toolgate_service.web.edge import Rules, request_id_of
from toolgate_service.web.headers import RawHeader
from toolgate_service.web.sdk_fields import SdkFields, idempotency_key

PATH = b"/sdk/log"


class LogsAtOnce:
    """Takes log entries without a task of their own.

    Only what is an entry. Whatever is wrong with a request is told on the road of all requests, before which nothing
    has been counted or written here.

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
        scope = {"headers": headers, "client": peer}
        try:
            self._desk.reveal(given, scope)
            read = self._read(Call(scope, body))
            # Before the request is counted: refused, it is counted on the road of all requests.
            if read is None or not self._gateway.log_writer.has_room:
                return None
            standing, entry = read
            rate = self._desk.count(standing)
            if rate is None:
                return None
            added = whose(standing) | rate.headers()
            future = self._gateway.log_writer.append_soon(entry)
        except Exception:  # noqa: BLE001 - whatever it is, the road of all requests meets it again, and tells it
            return None
        request_id = request_id_of(given)
        return future, lambda: self._written(future, request_id, added)

    def _read(self, call: Call) -> tuple[Standing, NewEntry] | None:
        digest = key_digest(given_key(call.header(b"x-api-key")))
        body, problem = call.fields()
        agent_id = body.get("agent_id")
        standing = self._desk.standing(digest, agent_id if isinstance(agent_id, str) else "", "")
        if problem is not None or standing is None:
            return None
        key = idempotency_key(call.header(b"idempotency-key"))
        plan, limit = self._gateway.plans[standing.plan], self._gateway.settings.test_log_bytes
        entry = read_entry(SdkFields(body), standing, plan, call.peer, key, test_log_bytes=limit)
        known = standing.agent_id is not None or key is not None
        return (standing, entry) if known and standing.key_agent_id in {None, entry.agent_id} else None

    def _written(
        self, future: "asyncio.Future[Outcome]", request_id: str, added: Mapping[bytes, bytes]
    ) -> Written:
        try:
            return self._desk.write(answer_of(future.result()), request_id, added)
        except ApiError as error:
            return self._desk.write(error, request_id, added)
