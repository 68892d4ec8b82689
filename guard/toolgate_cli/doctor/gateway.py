"""Whether a gateway answers at the address, and whether its clock is this machine's."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from toolgate._http.messages import Request, Response, TransportError
from toolgate._http.transport import HttpSender
from toolgate.errors import ConfigurationError
from toolgate_cli.doctor.findings import Finding, from_error
from toolgate_cli.doctor.surroundings import Surroundings, network_of

_DEADLINE = 10.0

#: seconds that two clocks may differ before records of what happened when mislead
MOST_SKEW = 30.0

#: what a transport's fault says → what that means, what to do, whether it is about TLS
_FAULTS = (
    ("expired", "its certificate has expired", "have it renewed, and look at this machine's clock", "tls"),
    ("not yet valid", "its certificate is not valid yet", "look at this machine's clock", "tls"),
    ("mismatch", "its certificate is for another name", "set TOOLGATE_URL to a name in the certificate", "tls"),
    ("not valid for", "its certificate is for another name", "set TOOLGATE_URL to a name in the certificate", "tls"),
    ("certificate_verify_failed", "nobody whom this machine trusts vouches for its certificate",
     "set SSL_CERT_FILE to the certificate of the authority that does", "tls"),
    ("wrong_version", "it speaks no TLS", "set TOOLGATE_URL to its https port, or to http:// on this machine", "tls"),
    ("record layer", "it speaks no TLS", "set TOOLGATE_URL to its https port, or to http:// on this machine", "tls"),
    ("ssl", "no TLS connection comes about", "look at the gateway's certificate and at SSL_CERT_FILE", "tls"),
    ("refused", "nothing listens there", "start the gateway, or set TOOLGATE_URL to where it listens", "gateway"),
    ("name or service", "no machine has that name", "set TOOLGATE_URL to the right host", "gateway"),
    ("name resolution", "the name cannot be looked up", "look at the host's name and at this machine's DNS", "gateway"),
    ("nodename", "no machine has that name", "set TOOLGATE_URL to the right host", "gateway"),
    ("no address", "no machine has that name", "set TOOLGATE_URL to the right host", "gateway"),
)  # fmt: skip


def check_gateway(around: Surroundings) -> Iterator[Finding]:
    """Yield what the address answers to a question that needs no key."""
    if around.url is None:
        yield Finding("gateway", "unknown", "not asked: there is no address")
        return
    try:
        network = network_of(around.url)
    except ConfigurationError as error:
        yield from_error("gateway", error)
        return
    wire = HttpSender(around.url, network=network)
    try:
        began = datetime.now(UTC)
        answer = wire.send(Request("GET", f"{around.url}/health", {}), _DEADLINE)
        ended = datetime.now(UTC)
    except TransportError as error:
        yield _fault(str(error))
        return
    except ConfigurationError as error:
        yield Finding(
            "gateway", "wrong", str(error), "look at the proxies and certificates of the environment"
        )
        return
    finally:
        wire.close()
    found = _gateway(answer)
    yield found
    if found.state == "ok":
        if around.url.startswith("https:"):
            yield Finding("tls", "ok", "its certificate is trusted")
        yield _clock(answer.headers.get("date"), began, ended)


def _fault(said: str) -> Finding:
    for word, what, cure, check in _FAULTS:
        if word in said.lower():
            return Finding(check, "wrong", f"{what} ({said})", cure)
    cure = "look whether TOOLGATE_URL, its port and http or https are right, and at firewalls and proxies between"
    return Finding("gateway", "wrong", f"it does not answer ({said})", cure)


def _gateway(answer: Response) -> Finding:
    if HTTPStatus.MULTIPLE_CHOICES <= answer.status < HTTPStatus.BAD_REQUEST:
        where = answer.headers.get("location", "elsewhere")
        cure = "set TOOLGATE_URL to the gateway's own address; redirects are never followed"
        return Finding("gateway", "wrong", f"it redirects to {where}", cure)
    try:
        told = json.loads(answer.body)
        version = told["version"] if told["status"] == "ok" else None
    except (ValueError, TypeError, KeyError, RecursionError):
        version = None
    if (
        answer.status != HTTPStatus.OK
        or not isinstance(version, str)
        or "x-api-version" not in answer.headers
    ):
        says = f"what answers there, with status {answer.status}, is no Toolgate gateway"
        return Finding(
            "gateway", "wrong", says, "set TOOLGATE_URL to the gateway's own address, with no path behind it"
        )
    return Finding("gateway", "ok", f"Toolgate {version}")


def _clock(date: str | None, began: datetime, ended: datetime) -> Finding:
    try:
        theirs = parsedate_to_datetime(date or "")
    except ValueError:
        return Finding("clock", "unknown", "the gateway does not say what time it is")
    theirs = theirs if theirs.tzinfo else theirs.replace(tzinfo=UTC)
    # The header has whole seconds, cut off; the answer was written between the two moments here.
    ahead = (began - theirs).total_seconds() - 1
    behind = (theirs - ended).total_seconds()
    if max(ahead, behind) <= MOST_SKEW:
        return Finding("clock", "ok", "this machine's clock agrees with the gateway's")
    skew, where = (ahead, "ahead of") if ahead > behind else (behind, "behind")
    cure = "have both machines set their clocks by NTP"
    return Finding("clock", "wrong", f"this machine's clock is {skew:,.0f} s {where} the gateway's", cure)
