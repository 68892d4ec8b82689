"""``toolgate doctor``: find problems that prevent agents on this machine from working, or weaken their security.

This module contains the command and the checks of the gateway: its address, TLS, its clock, the API key, the agent,
active freezes, and the stored login.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Annotated, Any, Final

import typer

from toolgate._guard import Guard
from toolgate._http.exchange import Request, Response, TransportError
from toolgate._http.transport import HttpSender
from toolgate._settings import MEMORY, Settings, load_settings, masked
from toolgate.errors import ConfigurationError, GuardError
from toolgate_cli.client import GatewayClient, GatewayError, parse_model
from toolgate_cli.doctor_local import (
    Finding,
    LocalSettings,
    check_files,
    check_installation,
    check_users,
    finding_from_error,
    hide_secrets,
    load_network,
    read_local_settings,
)
from toolgate_cli.options import GatewayUrl
from toolgate_cli.output import print_json, sanitize
from toolgate_cli.permissions import Permission

_HEALTH_SECONDS: Final = 10.0
#: maximum difference in seconds between the clocks of this machine and of the gateway; a larger difference makes the
#: times of log entries misleading
_MAX_CLOCK_DIFFERENCE: Final = 30.0
#: valid id that belongs to no agent; used to check the API key if TOOLGATE_AGENT_ID is not set
_UNKNOWN_AGENT: Final = "00000000-0000-7000-8000-000000000000"
_PERMISSIONS_PATH: Final = "/sdk/permissions"
#: maximum number of the agent's actions for which the command sends a check, to find freezes
_MAX_CHECKED_ACTIONS: Final = 20

#: Transport errors. Each row contains four texts: a part of the error's message (in lower case), the meaning of the
#: error, the fix, and the name of the check that reports the error.
_TRANSPORT_ERRORS: Final = (
    ("expired", "the gateway's certificate has expired",
     "renew the certificate, and check this machine's clock", "tls"),
    ("not yet valid", "the gateway's certificate is not valid yet", "check this machine's clock", "tls"),
    ("mismatch", "the gateway's certificate is for another host name",
     "set TOOLGATE_URL to a name in the certificate", "tls"),
    ("not valid for", "the gateway's certificate is for another host name",
     "set TOOLGATE_URL to a name in the certificate", "tls"),
    ("certificate_verify_failed", "the gateway's certificate is not signed by a trusted authority",
     "set SSL_CERT_FILE to a file with the certificate of the authority that signed the gateway's certificate", "tls"),
    ("wrong_version", "the server at this address does not use TLS",
     "set TOOLGATE_URL to the gateway's https port, or to http:// on this machine", "tls"),
    ("record layer", "the server at this address does not use TLS",
     "set TOOLGATE_URL to the gateway's https port, or to http:// on this machine", "tls"),
    ("ssl", "no TLS connection can be established", "check the gateway's certificate and SSL_CERT_FILE", "tls"),
    ("refused", "no program listens at this address", (
        "start the gateway, or set TOOLGATE_URL to the gateway's address"
    ), "gateway"),
    ("name or service", "unknown host name", "set TOOLGATE_URL to the right host", "gateway"),
    ("name resolution", "the host name cannot be resolved", "check the host name and this machine's DNS", "gateway"),
    ("nodename", "unknown host name", "set TOOLGATE_URL to the right host", "gateway"),
    ("no address", "unknown host name", "set TOOLGATE_URL to the right host", "gateway"),
)  # fmt: skip


def check_gateway(settings: LocalSettings) -> Iterator[Finding]:
    """Check that a Toolgate gateway responds at the configured address; the API key is not sent."""
    if settings.url is None:
        yield Finding("gateway", "unknown", "not checked: no valid gateway address is set")
        return
    try:
        network = load_network(settings.url)
    except ConfigurationError as error:
        yield finding_from_error("gateway", error)
        return
    sender = HttpSender(settings.url, network=network)
    try:
        began = datetime.now(UTC)
        response = sender.send(Request("GET", f"{settings.url}/health", {}), _HEALTH_SECONDS)
        ended = datetime.now(UTC)
    except TransportError as error:
        yield _explain_transport_error(str(error))
        return
    except ConfigurationError as error:
        yield Finding("gateway", "wrong", str(error), "check the proxies and certificates in the environment")
        return
    finally:
        sender.close()
    found = _check_health(response)
    yield found
    if found.state == "ok":
        if settings.url.startswith("https:"):
            yield Finding("tls", "ok", "the gateway's certificate is trusted")
        yield _check_clock(response.headers.get("date"), began, ended)


def check_key(settings: LocalSettings) -> Iterator[Finding]:
    """Check that the gateway accepts the API key, and that the agent exists and has permissions.

    The check creates no log entry.
    """
    if settings.url is None or settings.api_key is None:
        return
    try:
        agent = load_settings(settings.url, settings.api_key, settings.agent_id or _UNKNOWN_AGENT, 10)
    except ConfigurationError:
        # `read_local_settings` has already reported the invalid setting.
        return
    permissions = None
    try:
        with GatewayClient.for_agent(agent) as client:
            permissions = client.get(_PERMISSIONS_PATH, {"agent_id": agent.agent_id})
    except GatewayError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            yield _explain_key_error(error, masked(settings.api_key))
            return
    yield Finding("key works", "ok", f"the gateway accepts the API key {masked(settings.api_key)}")
    if settings.agent_id is None:
        return
    if not isinstance(permissions, list):
        environment = "test" if settings.api_key.startswith("test_") else "production"
        says = (
            f"the key's organization has no agent {settings.agent_id!r} in {environment}, or the key belongs to "
            "another agent"
        )
        yield Finding(
            "agent works",
            "wrong",
            says,
            "set TOOLGATE_AGENT_ID to the id of an agent; to list the ids, run: toolgate agents list",
        )
    elif not permissions:
        cure = "see: toolgate agents show AGENT, and toolgate permissions create AGENT ACTION"
        yield Finding("agent works", "warning", "the agent has no permissions, or is disabled", cure)
    else:
        yield Finding("agent works", "ok", f"the agent has permissions for {len(permissions):,} actions")
        yield from _check_freezes(agent, permissions)


def _check_freezes(agent: Settings, permissions: list[Any]) -> Iterator[Finding]:
    """Check for active freezes that cover actions of the agent, with dry runs, because an agent cannot list freezes."""
    frozen: dict[str, str] = {}
    try:
        actions = [parse_model(Permission, each, "permission").action for each in permissions]
        with Guard(agent.url, agent.api_key, agent.agent_id, timeout=agent.timeout, outbox=MEMORY) as guard:
            for action in actions[:_MAX_CHECKED_ACTIONS]:
                decision = guard.check(action, dry_run=True)
                if decision.reason_code == "frozen":
                    frozen[action] = decision.reason or ""
    except (GatewayError, GuardError) as error:
        yield Finding(
            "freezes", "unknown", f"whether a freeze covers the agent's actions is unknown: {error}"
        )
        return
    if frozen:
        action, reason = next(iter(frozen.items()))
        others = f" and {len(frozen) - 1} more actions" if len(frozen) > 1 else ""
        says = f"a freeze denies the agent's calls of {action}{others} ({reason})"
        cure = (
            "an admin lifts the freeze with: toolgate unfreeze FREEZE; to list the ids, run: toolgate freezes"
        )
        yield Finding("freezes", "warning", says, cure)


def check_login(settings: LocalSettings) -> Iterator[Finding]:
    """Check that the gateway accepts the stored login."""
    if settings.login_error is not None:
        yield Finding(
            "login", "wrong", settings.login_error, "log in again to replace the stored login: toolgate login"
        )
        return
    if settings.login is None:
        yield Finding("login", "ok", "no user is logged in; agents do not need a login")
        return
    label = f"{settings.login.email} at {settings.login.url}"
    try:
        with settings.login.client() as client:
            client.get("/auth/me")
    except GatewayError as error:
        if error.is_unauthorized:
            yield Finding(
                "login", "wrong", f"the login of {label} has expired or was revoked", "run: toolgate login"
            )
        else:
            yield Finding("login", "unknown", f"whether the login of {label} works is unknown: {error}")
        return
    yield Finding("login", "ok", label)
    if settings.api_key is not None:
        says = "an API key is set and you are logged in: an agent that runs as this user can use your login"
        yield Finding(
            "login", "warning", says, "run agents as another operating-system user, or run: toolgate logout"
        )


def _explain_transport_error(message: str) -> Finding:
    for part, meaning, cure, check in _TRANSPORT_ERRORS:
        if part in message.lower():
            return Finding(check, "wrong", f"{meaning} ({message})", cure)
    cure = "check TOOLGATE_URL, its port and scheme, and firewalls and proxies"
    return Finding("gateway", "wrong", f"the gateway does not respond ({message})", cure)


def _check_health(response: Response) -> Finding:
    if HTTPStatus.MULTIPLE_CHOICES <= response.status < HTTPStatus.BAD_REQUEST:
        location = response.headers.get("location", "another address")
        cure = "set TOOLGATE_URL to the gateway's own address; redirects are never followed"
        return Finding("gateway", "wrong", f"the address redirects to {location}", cure)
    try:
        health = json.loads(response.body)
        version = health["version"] if health["status"] == "ok" else None
    except (ValueError, TypeError, KeyError, RecursionError):
        version = None
    if (
        response.status != HTTPStatus.OK
        or not isinstance(version, str)
        or "x-api-version" not in response.headers
    ):
        says = f"the response, with status {response.status}, is not from a Toolgate gateway"
        return Finding(
            "gateway", "wrong", says, "set TOOLGATE_URL to the gateway's own address, without a path"
        )
    return Finding("gateway", "ok", f"Toolgate {version}")


def _check_clock(date: str | None, began: datetime, ended: datetime) -> Finding:
    try:
        theirs = parsedate_to_datetime(date or "")
    except ValueError:
        return Finding(
            "clock",
            "unknown",
            ("the gateway's response has no valid Date header, so the clocks cannot be compared"),
        )
    theirs = theirs if theirs.tzinfo else theirs.replace(tzinfo=UTC)
    # The time in the Date header is rounded down to a whole second. The rounding alone can make this machine's clock
    # seem up to one second ahead, so one second is subtracted.
    ahead = (began - theirs).total_seconds() - 1
    behind = (theirs - ended).total_seconds()
    if max(ahead, behind) <= _MAX_CLOCK_DIFFERENCE:
        return Finding("clock", "ok", "this machine's clock agrees with the gateway's")
    seconds, direction = (ahead, "ahead of") if ahead > behind else (behind, "behind")
    says = f"this machine's clock is {seconds:,.0f} s {direction} the gateway's"
    return Finding("clock", "wrong", says, "synchronize both clocks with NTP")


def _explain_key_error(error: GatewayError, key: str) -> Finding:
    if error.is_unauthorized:
        cure = "set TOOLGATE_API_KEY to a valid key of an active organization; see: toolgate keys show"
        return Finding("key works", "wrong", f"the gateway refuses the key {key}: {error.detail}", cure)
    if error.unavailable:
        return Finding("key works", "unknown", "not checked: the gateway does not respond")
    return Finding("key works", "wrong", str(error), "check the gateway's own log, or try again in a moment")


_STATES: Final = {"ok": "ok     ", "warning": "warning", "wrong": "WRONG  ", "unknown": "unknown"}


def doctor(
    url: GatewayUrl = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON, in ASCII.")] = False,
) -> None:
    """Check settings, gateway, key, agent, freezes, login, files and installation; status 1 if something is wrong.

    Changes nothing, and never prints a key or a token.
    """
    settings = read_local_settings(url)
    findings = [hide_secrets(finding, settings.secrets) for finding in _run_checks(settings)]
    if as_json:
        print_json([finding.as_dict() for finding in findings])
    else:
        for finding in findings:
            typer.echo(f"{_STATES[finding.state]}  {finding.check:<12}  {sanitize(finding.says)}")
            if finding.cure:
                typer.echo(f"{'':23}→ {sanitize(finding.cure)}")
    if any(finding.state == "wrong" for finding in findings):
        raise typer.Exit(1)


def _run_checks(settings: LocalSettings) -> Iterator[Finding]:
    yield from settings.findings
    gateway = list(check_gateway(settings))
    yield from gateway
    if any(finding.check == "gateway" and finding.state == "ok" for finding in gateway):
        # The API key must not be sent to any other server. It is therefore checked only after a Toolgate gateway has
        # responded.
        yield from check_key(settings)
    yield from check_login(settings)
    yield from check_files()
    yield from check_installation()
    yield from check_users(settings)
