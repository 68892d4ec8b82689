"""Checks of this machine: settings, files, installed packages, and users of the operating system."""

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import Distribution, PackageNotFoundError, distribution, packages_distributions
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from toolgate._files import PrivateFileError
from toolgate._http.network import Network
from toolgate.errors import ConfigurationError
from toolgate.identity import valid_id
from toolgate.settings import load_settings, masked
from toolgate_cli.credentials import StoredLogin

State: TypeAlias = Literal["ok", "warning", "wrong", "unknown"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        check: what was looked at.
        state: whether it is as it must be.
        says: what was found.
        cure: what to do, where something is to be done.
    """

    check: str
    state: State
    says: str
    cure: str | None = None

    def as_dict(self) -> dict[str, str | None]:
        """Return what a script reads."""
        return asdict(self)


def from_error(check: str, error: Exception) -> Finding:
    """Return what a configuration's error says: what is wrong stands before its first semicolon, behind it the cure."""
    says, _, cure = str(error).partition("; ")
    return Finding(check, "wrong", says, cure or None)


def without_secrets(finding: Finding, secrets: Iterable[str]) -> Finding:
    """Return a finding in which no secret stands, whoever quoted it."""
    says, cure = finding.says, finding.cure
    for secret in filter(None, secrets):
        says = says.replace(secret, "…")
        cure = cure and cure.replace(secret, "…")
    return replace(finding, says=says, cure=cure)


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


_OTHERS = 0o077


def check_files() -> Iterator[Finding]:
    """Yield what is wrong with the rights of files, or that nothing is."""
    if os.name != "posix":
        yield Finding("files", "unknown", "this system's rights of files are not looked at")
        return
    wrong = [finding for folder in folders() for finding in _folder(folder)]
    wrong += [finding for path in _outbox() for finding in _one(path, "file", "600")]
    yield from wrong
    if not wrong:
        yield Finding("files", "ok", "what is kept here is its owner's alone")


def folders() -> list[Path]:
    """Return the folders in which logins, secrets, records and data are kept, those that there are."""
    from platformdirs import user_config_path, user_data_path, user_state_path

    ours = [path("toolgate", appauthor=False) for path in (user_config_path, user_data_path, user_state_path)]
    candidates = [*ours, Path.home() / ".config" / "toolgate"]
    return [folder for folder in dict.fromkeys(candidates) if folder.is_dir()]


def _outbox() -> list[Path]:
    # One that has a place of its own; the usual place is one of the folders.
    named = os.environ.get("TOOLGATE_OUTBOX")
    path = Path(named).expanduser() if named else None
    beside = (
        [] if path is None else [path, *(path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm"))]
    )
    return [each for each in beside if each.is_file()]


def _folder(folder: Path) -> Iterator[Finding]:
    try:
        yield from _one(folder, "folder", "700")
        for path in sorted(folder.iterdir()):
            if path.is_symlink():
                yield Finding(
                    "files", "wrong", f"{str(path)!r} is a symbolic link", "remove it, and put the file there"
                )
            elif path.is_file():
                yield from _one(path, "file", "600")
    except OSError as error:
        says = f"the folder {str(folder)!r} cannot be looked into: {error.strerror}"
        yield Finding("files", "wrong", says, "give it back to yourself, or remove it")


def _one(path: Path, kind: str, right: str) -> Iterator[Finding]:
    found = path.lstat()
    if found.st_uid != os.geteuid():
        yield Finding("files", "wrong", f"the {kind} {str(path)!r} belongs to another user", "remove it")
    elif found.st_mode & _OTHERS:
        mode = stat.S_IMODE(found.st_mode)
        says = f"other users can use the {kind} {str(path)!r} (its mode is {mode:04o})"
        cure = f"chmod {right} {path}; if they may have read it, log in again or change what it holds"
        yield Finding("files", "wrong", says, cure)


NAMES = ("toolgate", "toolgate_service", "toolgate_integrations")
_COMMAND = "toolgate_cli:main"


def check_installation() -> Iterator[Finding]:
    """Yield whoever else owns our import names, or that nobody does."""
    wrong = [*_others(), *_not_ours()]
    yield from wrong
    if not wrong:
        yield Finding("installation", "ok", f"{', '.join(NAMES)} are this distribution's alone")


def _others() -> Iterator[Finding]:
    owners = packages_distributions()
    for name in NAMES:
        for other in sorted({owner for owner in owners.get(name, ()) if owner.lower() != "toolgate"}):
            says = f"the distribution {other!r} owns the import name {name!r} as well: which is imported is chance"
            yield Finding(
                "installation", "wrong", says, f"pip uninstall {other}, then install toolgate again"
            )


def _not_ours() -> Iterator[Finding]:
    try:
        ours = distribution("toolgate")
    except PackageNotFoundError:
        yield Finding(
            "installation", "wrong", "no distribution 'toolgate' is installed", "pip install 'toolgate[cli]'"
        )
        return
    commands = [entry.value for entry in ours.entry_points if entry.group == "console_scripts"]
    if _COMMAND not in commands:
        says = "the distribution that is called 'toolgate' is another project's"
        yield Finding("installation", "wrong", says, "pip uninstall toolgate, then install this one")
        return
    for name in NAMES:
        expected, found = _installed(ours, name), _imported(name)
        if expected is not None and found != expected:
            says = f"{name!r} is imported from {str(found)!r} and not from {str(expected)!r}"
            yield Finding(
                "installation", "wrong", says, "rename or remove what stands in its way on sys.path"
            )


def _installed(ours: Distribution, name: str) -> Path | None:
    # An editable installation lists no files of its packages.
    listed = [file for file in ours.files or () if str(file) == f"{name}/__init__.py"]
    return Path(str(ours.locate_file(listed[0]))).resolve() if listed else None


def _imported(name: str) -> Path | None:
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).resolve() if spec is not None and spec.origin else None


_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS = "0A"
_CURE = (
    "run the gateway as another user or on another machine; until then whoever takes over an agent can read the "
    "gateway's secret and its database"
)


def check_users(around: Surroundings) -> Iterator[Finding]:
    """Yield whether whoever is this user could be the gateway."""
    if around.url is None:
        return
    parts = urlsplit(around.url)
    if not _is_this_machine(parts.hostname or ""):
        yield Finding("users", "ok", "the gateway's address is another machine's")
        return
    port = parts.port or (443 if parts.scheme == "https" else 80)
    listeners = listening_users(port)
    if listeners is None:
        yield Finding("users", "unknown", "whose process the gateway is cannot be seen on this system")
    elif not listeners:
        yield Finding(
            "users", "unknown", "whose process the gateway is cannot be seen: nobody here listens there"
        )
    elif os.geteuid() in {0, *listeners}:
        says = "gateway and agent are the same operating-system user: a guardrail, no boundary"
        yield Finding("users", "warning", says, _CURE)
    else:
        yield Finding("users", "ok", "the gateway is another operating-system user's")


def listening_users(port: int) -> set[int] | None:
    """Return the ids of the users who listen on a port of this machine, or None where that cannot be seen."""
    try:
        lines = [line for table in _TABLES if table.exists() for line in table.read_text().splitlines()[1:]]
    except OSError:
        return None
    if not any(table.exists() for table in _TABLES):
        return None
    rows = [line.split() for line in lines]
    return {int(row[7]) for row in rows if row[3] == _LISTENS and int(row[1].rpartition(":")[2], 16) == port}


def _is_this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
