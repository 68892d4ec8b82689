"""The settings that an agent of this user would have, and the login that commands have."""

import os
from dataclasses import dataclass, field

from toolgate._files import PrivateFileError
from toolgate._http.network import Network
from toolgate.errors import ConfigurationError
from toolgate.identity import valid_id
from toolgate.settings import load_settings, masked
from toolgate_cli.doctor.findings import Finding, from_error
from toolgate_cli.stored_login import StoredLogin

#: in place of what is not looked at just now
_SOME_URL, _SOME_KEY, _SOME_ID = "https://gateway.example.com", "ak_", "-"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What was found before anybody was asked.

    Attributes:
        url: the gateway's address, or None where none can be used.
        api_key: the API key, likewise; never shown.
        agent_id: the agent, likewise.
        login: the stored login, likewise.
        login_error: why it cannot be used.
        findings: what is to be said of them.
    """

    url: str | None
    api_key: str | None = field(repr=False)
    agent_id: str | None
    login: StoredLogin | None
    login_error: str | None
    findings: tuple[Finding, ...]

    @property
    def secrets(self) -> list[str]:
        """What no finding may show."""
        given = [self.api_key, os.environ.get("TOOLGATE_API_KEY"), self.login.token if self.login else None]
        return [secret for secret in given if secret]


def look_around(url: str | None) -> Surroundings:
    """Read the settings and the login.

    Args:
        url: an address that goes before the environment's.
    """
    login, login_error = _login()
    address = url or os.environ.get("TOOLGATE_URL") or (login.url if login else None)
    key, agent_id = os.environ.get("TOOLGATE_API_KEY"), os.environ.get("TOOLGATE_AGENT_ID")
    findings = [
        _url(address),
        _key(key, logged_in=login is not None),
        _agent(agent_id),
        *_rest(),
    ]
    usable = {finding.check for finding in findings if finding.state != "wrong"}
    return Surroundings(
        url=(address or "").rstrip("/") or None if "url" in usable else None,
        api_key=key or None if "key" in usable else None,
        agent_id=agent_id or None if "agent" in usable else None,
        login=login,
        login_error=login_error,
        findings=tuple(findings),
    )


def network_of(url: str) -> Network:
    """Return how an agent would reach a gateway: the environment's authorities, certificates and proxies.

    Raises:
        ConfigurationError: they cannot be used.
    """
    return load_settings(url, _SOME_KEY, _SOME_ID, 1).network


def _login() -> tuple[StoredLogin | None, str | None]:
    try:
        return StoredLogin.find(), None
    except PrivateFileError as error:
        return None, str(error)


def _url(url: str | None) -> Finding:
    if not url:
        return Finding(
            "url", "wrong", "no gateway is named", "set TOOLGATE_URL, or run: toolgate login --url URL"
        )
    try:
        settings = load_settings(url, _SOME_KEY, _SOME_ID, 1)
    except ConfigurationError as error:
        # What is wrong with TOOLGATE_HTTP is told apart.
        return from_error("url", error) if "TOOLGATE_HTTP" not in str(error) else Finding("url", "ok", url)
    return Finding("url", "ok", settings.url)


def _key(key: str | None, *, logged_in: bool) -> Finding:
    if not key:
        cure = "set TOOLGATE_API_KEY; a key is shown by: toolgate keys show"
        return Finding(
            "key", "warning" if logged_in else "wrong", "no API key is set, which agents need", cure
        )
    try:
        load_settings(_SOME_URL, key, _SOME_ID, 1)
    except ConfigurationError as error:
        if "TOOLGATE_HTTP" not in str(error):
            return from_error("key", error)
    if masked(key) == "…":
        cure = "copy TOOLGATE_API_KEY again; a key begins with ak_ or test_"
        return Finding("key", "warning", "the API key does not look like one", cure)
    return Finding("key", "ok", masked(key))


def _agent(agent_id: str | None) -> Finding:
    if not agent_id:
        cure = "set TOOLGATE_AGENT_ID, unless the code names its agents; see: toolgate agents list"
        return Finding("agent", "warning", "no agent is named", cure)
    try:
        return Finding("agent", "ok", valid_id(agent_id, "TOOLGATE_AGENT_ID"))
    except ConfigurationError as error:
        return from_error("agent", error)


def _rest() -> list[Finding]:
    try:
        load_settings(_SOME_URL, _SOME_KEY, _SOME_ID)
    except ConfigurationError as error:
        return [from_error("settings", error)]
    return []
