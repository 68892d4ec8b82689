"""Checks of this machine: settings, private files, installed packages, and the gateway's operating-system user."""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

from toolgate._files import PrivateFileError
from toolgate._http.network import Network
from toolgate._identity import valid_id
from toolgate._settings import load_settings, masked, renamed_variables
from toolgate.errors import ConfigurationError
from toolgate_cli.credentials import StoredLogin

State: TypeAlias = Literal["ok", "warning", "wrong", "unknown"]

#: Valid placeholder values. `load_settings` validates all settings at once, so a check of one setting passes these
#: values for the other settings.
_ANY_URL, _ANY_KEY, _ANY_ID = "https://gateway.example.com", "ak_", "-"

#: bits of a file's mode that give the group and other users access to the file
_OTHERS: Final = 0o077

PACKAGES: Final = ("toolgate", "toolgate_service", "toolgate_integrations")
_COMMAND: Final = "toolgate_cli:main"
#: files of the packages in the list of files of a distribution
_FILE: Final = re.compile(rf'^"?({"|".join(PACKAGES)})(?:/|\.py\b)', re.MULTILINE)

#: files in which Linux lists all sockets
_SOCKET_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
#: code of the state "listening" in the files of `_SOCKET_TABLES`
_LISTENING: Final = "0A"
_SEPARATION_CURE: Final = (
    "run the gateway as another user or on another machine; until then an attacker who controls an agent "
    "can read the "
    "gateway's secret and its database"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check of ``toolgate doctor``.

    Attributes:
        check: name of the check, such as "url".
        state: severity of the result; `unknown` if the check was not possible.
        says: the result in one line.
        cure: the fix, or None if no fix is needed.
    """

    check: str
    state: State
    says: str
    cure: str | None = None

    def as_dict(self) -> dict[str, str | None]:
        """Return the finding as a dictionary for the JSON output."""
        return asdict(self)


def finding_from_error(check: str, error: Exception) -> Finding:
    """Return a finding for a configuration error.

    The message of the error has the form `problem; fix`. The problem is stored in `says`, and the fix in `cure`.
    """
    says, _, cure = str(error).partition("; ")
    return Finding(check, "wrong", says, cure or None)


def hide_secrets(finding: Finding, secrets: Iterable[str]) -> Finding:
    """Return a copy of the finding in which an ellipsis replaces every secret."""
    says, cure = finding.says, finding.cure
    for secret in filter(None, secrets):
        says = says.replace(secret, "…")
        cure = cure and cure.replace(secret, "…")
    return replace(finding, says=says, cure=cure)


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """The user's stored login, and the settings of an agent that the user would start in this environment.

    A setting that is missing or cannot be used is None.

    Attributes:
        url: the gateway's address.
        api_key: the API key, which is secret.
        agent_id: the agent's id.
        login: the stored login.
        login_error: the reason why the stored login cannot be used, or None.
        findings: results of the checks of these settings.
    """

    url: str | None
    api_key: str | None = field(repr=False)
    agent_id: str | None
    login: StoredLogin | None
    login_error: str | None
    findings: tuple[Finding, ...]

    @property
    def secrets(self) -> list[str]:
        """Return the secrets (API keys and the login token) that the output must not contain."""
        given = [self.api_key, os.environ.get("TOOLGATE_API_KEY"), self.login.token if self.login else None]
        return [secret for secret in given if secret]


def read_local_settings(url: str | None) -> LocalSettings:
    """Read the environment variables and the stored login, and check the settings in them.

    Args:
        url: the gateway's address. If it is None, TOOLGATE_URL is used, or else the address in the stored login.
    """
    login = login_error = None
    try:
        login = StoredLogin.load()
    except PrivateFileError as error:
        login_error = str(error)
    address = url or os.environ.get("TOOLGATE_URL") or (login.url if login else None)
    key, agent_id = os.environ.get("TOOLGATE_API_KEY"), os.environ.get("TOOLGATE_AGENT_ID")
    findings = [
        _check_url(address),
        _check_key(key, is_logged_in=login is not None),
        _check_agent(agent_id),
        *_check_other_settings(),
    ]
    usable = {finding.check for finding in findings if finding.state != "wrong"}
    return LocalSettings(
        url=(address or "").rstrip("/") or None if "url" in usable else None,
        api_key=key or None if "key" in usable else None,
        agent_id=agent_id or None if "agent" in usable else None,
        login=login,
        login_error=login_error,
        findings=tuple(findings),
    )


def load_network(url: str) -> Network:
    """Return the certificates and the proxy that an agent would use to connect to a gateway.

    Raises:
        ConfigurationError: the certificates or the proxy cannot be used.
    """
    return load_settings(url, _ANY_KEY, _ANY_ID, 1).network


def _check_url(url: str | None) -> Finding:
    if not url:
        return Finding(
            "url", "wrong", "no gateway is set", "set TOOLGATE_URL, or run: toolgate login --url URL"
        )
    try:
        settings = load_settings(url, _ANY_KEY, _ANY_ID, 1)
    except ConfigurationError as error:
        # Only errors about the gateway's address are reported here. An error that mentions TOOLGATE_HTTP is about that
        # variable, and `_check_other_settings` reports it.
        return (
            Finding("url", "ok", url) if "TOOLGATE_HTTP" in str(error) else finding_from_error("url", error)
        )
    return Finding("url", "ok", settings.url)


def _check_key(key: str | None, *, is_logged_in: bool) -> Finding:
    if not key:
        cure = "set TOOLGATE_API_KEY; to show the key, run: toolgate keys show"
        state: State = "warning" if is_logged_in else "wrong"
        return Finding("key", state, "no API key is set; agents need one", cure)
    try:
        load_settings(_ANY_URL, key, _ANY_ID, 1)
    except ConfigurationError as error:
        if "TOOLGATE_HTTP" not in str(error):
            return finding_from_error("key", error)
    if masked(key) == "…":
        cure = "copy the key into TOOLGATE_API_KEY again; a key begins with ak_ or test_"
        return Finding(
            "key", "warning", "the value of TOOLGATE_API_KEY does not have the form of an API key", cure
        )
    return Finding("key", "ok", masked(key))


def _check_agent(agent_id: str | None) -> Finding:
    if not agent_id:
        cure = (
            "set TOOLGATE_AGENT_ID, unless your code passes the agent ids itself; see: toolgate agents list"
        )
        return Finding("agent", "warning", "no agent id is set", cure)
    try:
        return Finding("agent", "ok", valid_id(agent_id, "TOOLGATE_AGENT_ID"))
    except ConfigurationError as error:
        return finding_from_error("agent", error)


def _check_other_settings() -> list[Finding]:
    findings = [
        Finding(
            "settings",
            "warning",
            f"{former} is deprecated and accepted until version 0.2",
            f"set {name} instead",
        )
        for former, name in renamed_variables().items()
    ]
    try:
        load_settings(_ANY_URL, _ANY_KEY, _ANY_ID)
    except ConfigurationError as error:
        findings.append(finding_from_error("settings", error))
    return findings


def check_files() -> Iterator[Finding]:
    """Check that only the user can read Toolgate's files on this machine."""
    if os.name != "posix":
        yield Finding("files", "unknown", "file permissions are not checked on this system")
        return
    wrong = [finding for folder in _private_folders() for finding in _check_folder(folder)]
    wrong += [finding for path in _outbox_files() for finding in _check_mode(path, "file", "600")]
    yield from wrong
    if not wrong:
        yield Finding("files", "ok", "only you can read Toolgate's files")


def _private_folders() -> list[Path]:
    """Return the existing folders in which Toolgate stores logins, secrets, log entries and other data."""
    from platformdirs import user_config_path, user_data_path, user_state_path

    ours = [path("toolgate", appauthor=False) for path in (user_config_path, user_data_path, user_state_path)]
    candidates = [*ours, ours[-1] / "outbox", Path.home() / ".config" / "toolgate"]
    return [folder for folder in dict.fromkeys(candidates) if folder.is_dir()]


def _outbox_files() -> list[Path]:
    """Return the files of the outbox (the local queue of log entries) at the path in TOOLGATE_OUTBOX."""
    value = os.environ.get("TOOLGATE_OUTBOX")
    if not value:
        return []
    # In version 0.1, TOOLGATE_OUTBOX was the path of a single file with the suffix .db.
    path = Path(value).expanduser()
    folder = path.with_suffix("") if path.suffix == ".db" else path
    return [each for each in (path, *sorted(folder.glob("*"))) if each.is_file()]


def _check_folder(folder: Path) -> Iterator[Finding]:
    try:
        yield from _check_mode(folder, "folder", "700")
        for path in sorted(folder.iterdir()):
            if path.is_symlink():
                yield Finding(
                    "files",
                    "wrong",
                    f"{str(path)!r} is a symbolic link",
                    "replace the link with the file itself",
                )
            elif path.is_file():
                yield from _check_mode(path, "file", "600")
    except OSError as error:
        says = f"cannot read the folder {str(folder)!r}: {error.strerror}"
        yield Finding("files", "wrong", says, "make yourself the owner of the folder, or remove the folder")


def _check_mode(path: Path, kind: str, mode: str) -> Iterator[Finding]:
    found = path.lstat()
    if found.st_uid != os.geteuid():
        yield Finding("files", "wrong", f"the {kind} {str(path)!r} belongs to another user", "remove it")
    elif found.st_mode & _OTHERS:
        says = f"other users can use the {kind} {str(path)!r} (its mode is {stat.S_IMODE(found.st_mode):04o})"
        cure = f"chmod {mode} {path}; if other users may have read the {kind}, log in again or replace its secrets"
        yield Finding("files", "wrong", says, cure)


def check_installation() -> Iterator[Finding]:
    """Check that Python imports the packages of this distribution, and not other packages with the same names."""
    wrong = [*find_foreign_owners(), *find_foreign_imports()]
    yield from wrong
    if not wrong:
        yield Finding(
            "installation", "ok", f"only the distribution 'toolgate' contains {', '.join(PACKAGES)}"
        )


def find_foreign_owners() -> Iterator[Finding]:
    """Yield findings for other installed distributions that contain a package with the name of a Toolgate package."""
    owners = [(found, each) for each in distributions() if (found := _packages_of(each))]
    for name in PACKAGES:
        names = {each.metadata["Name"] for found, each in owners if name in found}
        for other in sorted(owner for owner in names if owner.lower() != "toolgate"):
            says = f"the installed distribution {other!r} also contains the package {name!r}; Python may import the wrong one"
            yield Finding(
                "installation", "wrong", says, f"pip uninstall {other}, then install toolgate again"
            )


def _packages_of(installed: Distribution) -> set[str]:
    # `packages_distributions` parses all metadata and paths: seconds in an environment with hundreds of distributions.
    if declared := (installed.read_text("top_level.txt") or "").split():
        return {name for name in PACKAGES if name in declared}
    record = installed.read_text("RECORD")
    if record is None:
        record = "\n".join(str(file) for file in installed.files or ())
    return set(_FILE.findall(record))


def find_foreign_imports() -> Iterator[Finding]:
    """Yield a finding for each Toolgate package that Python would not import from the installed distribution."""
    try:
        ours = distribution("toolgate")
    except PackageNotFoundError:
        yield Finding(
            "installation", "wrong", "no distribution 'toolgate' is installed", "pip install 'toolgate[cli]'"
        )
        return
    commands = [entry.value for entry in ours.entry_points if entry.group == "console_scripts"]
    if _COMMAND not in commands:
        says = "the installed distribution 'toolgate' belongs to another project"
        yield Finding("installation", "wrong", says, "pip uninstall toolgate, then install Toolgate again")
        return
    for name in PACKAGES:
        expected, found = _installed_path(ours, name), _imported_path(name)
        if expected is not None and found != expected:
            says = f"{name!r} is imported from {str(found)!r} and not from {str(expected)!r}"
            yield Finding(
                "installation",
                "wrong",
                says,
                "rename or remove the file or folder that Python finds first on sys.path",
            )


def _installed_path(ours: Distribution, name: str) -> Path | None:
    # An editable installation does not list the files of its packages, so its paths are unknown.
    listed = [file for file in ours.files or () if str(file) == f"{name}/__init__.py"]
    return Path(str(ours.locate_file(listed[0]))).resolve() if listed else None


def _imported_path(name: str) -> Path | None:
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).resolve() if spec is not None and spec.origin else None


def check_users(settings: LocalSettings) -> Iterator[Finding]:
    """Check that the gateway and this user's agents run as different operating-system users."""
    if settings.url is None:
        return
    parts = urlsplit(settings.url)
    if not _is_this_machine(parts.hostname or ""):
        yield Finding("users", "ok", "the gateway runs on another machine")
        return
    port = parts.port or (443 if parts.scheme == "https" else 80)
    listeners = find_listening_users(port)
    if listeners is None:
        yield Finding("users", "unknown", "this system does not show which user runs the gateway")
    elif not listeners:
        yield Finding(
            "users",
            "unknown",
            f"it is unknown which user runs the gateway: no process of this machine listens on port {port}",
        )
    elif os.geteuid() in {0, *listeners}:
        says = "the gateway and the agent run as the same operating-system user, so the agent can bypass the gateway: the gateway is a guardrail, not a security boundary"
        yield Finding("users", "warning", says, _SEPARATION_CURE)
    else:
        yield Finding("users", "ok", "the gateway runs as another operating-system user")


def find_listening_users(port: int) -> set[int] | None:
    """Return the ids of the operating-system users whose processes listen on a TCP port of this machine.

    The result is None if the list of sockets cannot be read.
    """
    tables = [table for table in _SOCKET_TABLES if table.exists()]
    try:
        rows = [line.split() for table in tables for line in table.read_text().splitlines()[1:]]
    except OSError:
        return None
    if not tables:
        return None
    return {
        int(row[7]) for row in rows if row[3] == _LISTENING and int(row[1].rpartition(":")[2], 16) == port
    }


def _is_this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
