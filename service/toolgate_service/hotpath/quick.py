"""What the quick answers to checks and log entries have in common."""

from collections.abc import Mapping, Sequence

from starlette.types import Scope

from toolgate_service.errors import ApiError
from toolgate_service.hotpath.admission import given_key
from toolgate_service.hotpath.arrivals import requests_a_minute
from toolgate_service.hotpath.http import Answer, peer_of
from toolgate_service.hotpath.rates import CountsNow, Rate
from toolgate_service.hotpath.recent_keys import Client
from toolgate_service.hotpath.sqlite.reader import SqliteReader
from toolgate_service.hotpath.standing import Standing
from toolgate_service.organizations import networks
from toolgate_service.organizations.keys import key_digest
from toolgate_service.plans import Plan
from toolgate_service.web.at_once import Peer, Written
from toolgate_service.web.edge import Rules
from toolgate_service.web.headers import RawHeader
from toolgate_service.web.proxies import FORWARDED_FOR
from toolgate_service.web.replies import Reply

#: with one of these a request is not what it seems until somebody has looked closer
_UNUSUAL = frozenset((b"content-encoding", b"transfer-encoding", b"expect", b"upgrade"))


def is_plain(given: Mapping[bytes, bytes], headers: Sequence[RawHeader], rules: Rules) -> bool:
    """Say whether a request is as plain as it looks.

    Args:
        given: its headers by their names.
        headers: all of them.
        rules: the edge's.
    """
    return len(given) == len(headers) and not rules.origins and _UNUSUAL.isdisjoint(given)


def client_of(given: Mapping[bytes, bytes], headers: Sequence[RawHeader], peer: Peer, rules: Rules) -> Client:
    """Return the digest of a request's key, and its client's address; behind a trusted proxy, the one it reports.

    Args:
        given: the request's headers by their names.
        headers: all of them.
        peer: the connection's other end.
        rules: the edge's.

    Raises:
        KeyError: there is no key.
    """
    digest = key_digest(given_key(given[b"x-api-key"].decode("latin-1")))
    scope: Scope = {"headers": headers, "client": peer}
    if rules.proxies and FORWARDED_FOR in given:
        rules.proxies.reveal_client(scope)
    return digest, peer_of(scope)


class Desk:
    """Where a request with an API key is looked at without having to wait.

    Args:
        reader: the gateway's.
        windows: the gateway's.
        plans: all plans by name.
    """

    def __init__(self, reader: SqliteReader, windows: CountsNow, plans: Mapping[str, Plan]) -> None:
        self._reader = reader
        self._windows = windows
        self._plans = plans

    def standing(self, digest: str, agent_id: str, action: str) -> Standing | None:
        """Return what is true at this moment; None for a key or an organization that counts for nothing."""
        standing = self._reader.standing_now(digest, agent_id, action)
        return standing if standing is not None and standing.organization_is_active else None

    def count(self, standing: Standing) -> Rate | None:
        """Count a request that is about to be answered; None, and not counted, beyond the limit."""
        limit = requests_a_minute(standing, self._plans)
        rate = self._windows.count_now(standing.organization_id, f"{standing.environment}/actions", limit)
        return None if rate.exceeded else rate


def is_admitted(standing: Standing, address: str | None) -> bool:
    """Say whether a request comes from one of its organization's allowed networks, if it has any.

    Args:
        standing: the request's.
        address: its client's.
    """
    return standing.ip_allow_list is None or networks.admits(standing.ip_allow_list, address)


def written(
    answer: Answer | ApiError, request_id: str, added: Mapping[bytes, bytes], rules: Rules
) -> Written:
    """Write an answer as the usual road does.

    Args:
        answer: what it says.
        request_id: its request's.
        added: headers that belong on whatever answer the request gets, names in lower case.
        rules: the edge's.
    """
    headers: list[RawHeader]
    if isinstance(answer, ApiError):
        reply = Reply({"detail": answer.reply_detail}, answer.status_code, answer.headers)
        status, headers, body = answer.status_code, reply.raw_headers, bytes(reply.body)
    else:
        status, body = answer.status, answer.body
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        headers += (answer.headers or {}).items()
    return status, _lines(rules.headers.complete(headers, request_id, added)) + b"\r\n" + body


def _lines(headers: Sequence[RawHeader]) -> bytes:
    return b"".join([b"%b: %b\r\n" % pair for pair in headers])
