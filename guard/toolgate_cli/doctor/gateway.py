"""Checks of the gateway: its address, its clock, the API key, the agent, and the stored login."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from toolgate._http.messages import Request, Response, TransportError
from toolgate._http.transport import HttpSender
from toolgate.errors import ConfigurationError
from toolgate.settings import load_settings, masked
from toolgate_cli.client import ManagementError, SdkSurface, read_answer
from toolgate_cli.doctor.local import Finding, Surroundings, from_error, network_of

_HEALTH_SECONDS = 10.0

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
        answer = wire.send(Request("GET", f"{around.url}/health", {}), _HEALTH_SECONDS)
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


#: an agent that nobody has: asked after it, the gateway tells whether it takes the key
_NOBODY = "00000000-0000-7000-8000-000000000000"
_PATH = "/sdk/permissions"


def check_key(around: Surroundings) -> Iterator[Finding]:
    """Yield what the gateway says to the key and of the agent; nothing is recorded by that."""
    if around.url is None or around.api_key is None:
        return
    try:
        settings = load_settings(around.url, around.api_key, around.agent_id or _NOBODY, 10)
    except ConfigurationError:
        # Told already.
        return
    try:
        with SdkSurface(settings) as gateway:
            answer = gateway.permissions(settings.agent_id or _NOBODY)
        known = answer.status != HTTPStatus.NOT_FOUND
        permissions = read_answer(answer, "GET", _PATH) if known else None
    except ManagementError as error:
        yield _refused(error, masked(around.api_key))
        return
    yield Finding("key works", "ok", f"the gateway takes {masked(around.api_key)}")
    if around.agent_id is None:
        return
    if not isinstance(permissions, list):
        environment = "test" if around.api_key.startswith("test_") else "production"
        says = f"the key's organization has no agent {around.agent_id!r} in {environment}, or the key is another agent's"
        yield Finding("agent works", "wrong", says, "set TOOLGATE_AGENT_ID to an id of: toolgate agents list")
    elif not permissions:
        cure = "see: toolgate agents show AGENT, and toolgate permissions grant AGENT ACTION"
        yield Finding("agent works", "warning", "the agent may do nothing, or is switched off", cure)
    else:
        yield Finding("agent works", "ok", f"the agent has permissions for {len(permissions):,} actions")


def _refused(error: ManagementError, shown: str) -> Finding:
    if error.status == HTTPStatus.UNAUTHORIZED:
        cure = "set TOOLGATE_API_KEY to a valid one of an active organization; see: toolgate keys show"
        return Finding("key works", "wrong", f"the gateway refuses the key {shown}: {error.detail}", cure)
    if error.unanswered:
        return Finding("key works", "unknown", "not asked: the gateway does not answer")
    return Finding(
        "key works", "wrong", str(error), "look at the gateway's own log, or try again in a moment"
    )


def check_login(around: Surroundings) -> Iterator[Finding]:
    """Yield what is to be said of the login."""
    if around.login_error is not None:
        yield Finding("login", "wrong", around.login_error, "run: toolgate login, which replaces it")
        return
    if around.login is None:
        yield Finding("login", "ok", "nobody is logged in; only people need to be")
        return
    who = f"{around.login.email} at {around.login.url}"
    try:
        with around.login.management() as management:
            management.get("/auth/me")
    except ManagementError as error:
        if error.is_login_over:
            yield Finding("login", "wrong", f"the login of {who} has ended", "run: toolgate login")
        else:
            says = f"whether the login of {who} works is not known: {error}"
            yield Finding("login", "unknown", says)
        return
    yield Finding("login", "ok", who)
    if around.api_key is not None:
        says = "an API key is set where somebody is logged in: an agent that runs here can use the login"
        yield Finding("login", "warning", says, "run agents as another user, or run: toolgate logout")
