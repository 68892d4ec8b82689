"""Checks that are taken the moment they have arrived (decisions §4).

Decided from an SQLite file they wait for nothing, and on PostgreSQL for one round trip. Only what is plainly allowed or blocked. Everything else — a person must approve, a limit is reached, the request is
wrong — takes the road of all requests, and is counted once all the same.
"""

import asyncio
from collections.abc import Mapping, Sequence

from toolgate_service.checks.decide import Blocked, Permitted, decide
from toolgate_service.checks.endpoint import ALLOWED, blocked_answer
from toolgate_service.checks.question import Question, read_question
from toolgate_service.errors import StorageFault
from toolgate_service.hotpath.admission import ARRIVED
from toolgate_service.hotpath.arrivals import Arrived, ArrivesSoon, Ask
from toolgate_service.hotpath.quick import Desk, comes_from_within, is_plain
from toolgate_service.hotpath.rates import Rate
from toolgate_service.hotpath.standing import Standing
from toolgate_service.ids import new_id
from toolgate_service.organizations.keys import key_digest
from toolgate_service.web.at_once import Found, Later, Peer, Written
from toolgate_service.web.bodies import read_object
from toolgate_service.web.edge import Rules, request_id_of
from toolgate_service.web.headers import RawHeader
from toolgate_service.web.sdk_fields import idempotency_key

PATH = b"/sdk/check"

#: a request's headers by their names in lower case
_Given = Mapping[bytes, bytes]


class ChecksAtOnce:
    """Answers checks without a task of their own: it saves more than half of what a check costs.

    Args:
        desk: looks at requests.
        rules: the edge's.
    """

    def __init__(self, desk: Desk, rules: Rules) -> None:
        self._desk = desk
        self._rules = rules
        self._common = _common(rules)

    def __call__(self, headers: Sequence[RawHeader], body: bytes, peer: Peer) -> Written | None:
        """Return the answer, or None for what takes the road of all requests.

        Args:
            headers: the request's, names in lower case.
            body: the whole body.
            peer: who sent it.
        """
        given = dict(headers)
        if not is_plain(given, self._rules) or len(given) != len(headers):
            return None
        try:
            return self._decided(given, headers, body, peer)
        except Exception:  # noqa: BLE001 - whatever it is, the road of all requests meets it again, and tells it
            return None

    def _decided(self, given: _Given, headers: Sequence[RawHeader], raw: bytes, peer: Peer) -> Written | None:
        digest, question = _read(given, raw)
        standing = self._desk.standing(digest, question.agent_id, question.action)
        kept = None if standing is None else standing.ip_allow_list
        if kept is not None and not comes_from_within(kept, given, headers, peer, self._rules):
            return None
        answer = None if standing is None else _answer(standing, question)
        # Counted last: what is not answered here is counted on the road of all requests.
        rate = None if standing is None or answer is None else self._desk.count(standing)
        if standing is None or answer is None or rate is None:
            return None
        return _written(given, standing, rate, self._common, answer)


class ChecksSoon:
    """Answers checks once the database has said whose they are, and has counted them.

    Args:
        reader: the gateway's.
        rules: the edge's.
    """

    def __init__(self, reader: ArrivesSoon, rules: Rules) -> None:
        self._reader = reader
        self._rules = rules
        self._common = _common(rules)

    def __call__(self, headers: Sequence[RawHeader], body: bytes, peer: Peer) -> Later | None:
        """Return the answer that will be given, or None for what takes the road of all requests.

        Args:
            headers: the request's, names in lower case.
            body: the whole body.
            peer: who sent it.
        """
        given = dict(headers)
        if not is_plain(given, self._rules) or len(given) != len(headers):
            return None
        try:
            digest, question = _read(given, body)
        except Exception:  # noqa: BLE001 - whatever it is, the road of all requests meets it again, and tells it
            return None
        future = self._reader.arrive_soon(Ask(digest, "actions", question.agent_id, question.action))

        def finish() -> Written | Found:
            try:
                arrived = future.result()
            except StorageFault as fault:
                return {ARRIVED: fault}
            except (Exception, asyncio.CancelledError):  # noqa: BLE001 - asked again it may be told; or the error is, there
                return {}
            kept = None if arrived is None else arrived[0].ip_allow_list
            if kept is not None and not comes_from_within(kept, given, headers, peer, self._rules):
                return {ARRIVED: arrived}
            return self._decided(given, question, arrived) or {ARRIVED: arrived}

        return future, finish

    def _decided(self, given: _Given, question: Question, arrived: Arrived | None) -> Written | None:
        if arrived is None:
            return None
        standing, rate = arrived
        if rate is None or rate.exceeded:
            return None
        answer = _answer(standing, question)
        return None if answer is None else _written(given, standing, rate, self._common, answer)


def _common(rules: Rules) -> bytes:
    return rules.headers.lines((b"content-type", b"application/json"))


def _read(given: _Given, raw: bytes) -> tuple[str, Question]:
    digest = key_digest(given[b"x-api-key"].decode("latin-1"))
    question = read_question(read_object(raw), raw)
    if b"idempotency-key" in given:
        idempotency_key(given[b"idempotency-key"].decode("latin-1"))
    return digest, question


def _answer(standing: Standing, question: Question) -> bytes | None:
    verdict = decide(standing, question.agent_id, question.action, question.context)
    if isinstance(verdict, Blocked):
        return blocked_answer(verdict)
    return ALLOWED if isinstance(verdict, Permitted) and question.approval_id is None else None


def _written(given: _Given, standing: Standing, rate: Rate, common: bytes, answer: bytes) -> Written:
    # In one go: written as other answers are, it takes a tenth of the whole check.
    return 200, _ANSWER % (
        new_id().encode(),
        standing.organization_id.encode(),
        standing.environment.encode(),
        *rate[:3],
        request_id_of(given).encode(),
        len(answer),
        common,
        answer,
    )


_ANSWER = (
    b"x-decision-id: %b\r\n"
    b"x-toolgate-organization: %b\r\n"
    b"x-toolgate-environment: %b\r\n"
    b"x-ratelimit-limit: %d\r\n"
    b"x-ratelimit-remaining: %d\r\n"
    b"x-ratelimit-reset: %d\r\n"
    b"x-request-id: %b\r\n"
    b"content-length: %d\r\n"
    b"%b\r\n%b"
)
