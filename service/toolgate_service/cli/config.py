"""`toolgate config`: list the settings, and check whether a gateway could start with them. Nothing is changed.

Secrets and passwords are hidden. Environment variables that begin with `TOOLGATE_` but are not settings are reported.
"""

import asyncio
import os
import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args
from urllib.parse import quote, unquote

from pydantic import SecretStr
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from toolgate_service.core.clock import utcnow
from toolgate_service.core.crypto import MIN_SECRET, Vault, secret_path
from toolgate_service.core.errors import StartError, StorageError
from toolgate_service.core.mail_settings import SmtpServer
from toolgate_service.core.settings import Settings, is_embedded, load_settings
from toolgate_service.core.settings_sources import (
    PREFIX,
    RENAMED,
    RenamedSetting,
    find_renamed,
    read_settings_folder,
    variable_of,
)
from toolgate_service.core.text_safety import HIDDEN, masked_url, password_in
from toolgate_service.db.database import open_database
from toolgate_service.db.migrate import Schema, schema_of
from toolgate_service.db.sqlite import sqlite_path
from toolgate_service.mail import NotSent, SmtpMailer
from toolgate_service.secret_check import has_no_secret, opens_sealed, other_secret
from toolgate_service.server.tls import read_certificate


def display_value(name: str, text: str) -> str:
    """Return the value of a setting for display. Secrets and passwords are hidden.

    `name` is the name of the setting's field in `Settings`.
    """
    if name.endswith("_url"):
        return masked_url(text)
    if is_secret(name):
        return HIDDEN
    return masked_url(text) if "://" in text else text


def is_secret(name: str) -> bool:
    """Return True if the value of a setting is a secret. `name` is the name of the setting's field in `Settings`."""
    return _holds_secret(Settings.model_fields[name].annotation)


def _holds_secret(annotation: Any) -> bool:
    return annotation is SecretStr or any(_holds_secret(part) for part in get_args(annotation))


#: Minimum length of secrets that are hidden in messages. Shorter ones could be parts of ordinary words.
_SHORTEST = 4
#: Regular expression that finds the names of settings in messages.
_NAMES = rf"\b(?:{'|'.join(map(variable_of, Settings.model_fields))})\b"


@dataclass(frozen=True, slots=True)
class SettingValue:
    """Setting with its value and the source of the value, for display.

    Attributes:
        variable: Environment variable of the setting, such as ``TOOLGATE_DATABASE_URL``.
        value: Value of the setting, hidden if it is a secret; None if the setting has no value.
        source: Source of the value, such as the environment or a default.
    """

    variable: str
    value: str | None
    source: Literal["default", "file", "environment", "option"]


@dataclass(frozen=True, slots=True)
class SettingTexts:
    """Texts of the settings before validation, by their source. The keys are the field names of `Settings`.

    Attributes:
        options: Settings from command line options.
        environment: Settings from environment variables.
        files: Settings from files in the folder ``TOOLGATE_SECRETS_DIR``.
    """

    options: Mapping[str, str]
    environment: Mapping[str, str]
    files: Mapping[str, str]

    @classmethod
    def by(cls, options: Mapping[str, str], variables: Mapping[str, str]) -> "SettingTexts":
        """Collect the settings from command line options, environment variables and files.

        Raises:
            StartError: The folder ``TOOLGATE_SECRETS_DIR`` cannot be read.
        """
        environment = texts_in(variables)
        folder = environment.get("secrets_dir")
        files = read_settings_folder(folder, Settings.model_fields) if folder else {}
        former = [one for one in find_renamed(variables, folder) if not one.is_superseded]
        return cls(
            options,
            {**environment, **{one.name: one.value for one in former if one.source == "environment"}},
            {**files, **{one.name: one.value for one in former if one.source == "file"}},
        )

    def secrets(self) -> Sequence[str]:
        """Return all secrets and passwords that the settings contain, from the longest to the shortest."""
        found: set[str] = set()
        for name, value in (*self.environment.items(), *self.files.items()):
            password = password_in(value)
            found |= {value} if is_secret(name) else set()
            found |= {password, unquote(password)} if password else set()
        return sorted((one for one in found if len(one) >= _SHORTEST), key=len, reverse=True)


def list_settings(given: SettingTexts) -> Sequence[SettingValue]:
    """Return all settings for display, in the order of the fields of `Settings`."""
    return [_setting_value(name, given) for name in Settings.model_fields]


def texts_in(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the settings in environment variables, by field name.

    As in the gateway, names are case-insensitive and empty values are ignored.
    """
    by_name = {name.upper(): value for name, value in environment.items() if value}
    texts = {name: by_name.get(variable_of(name)) for name in Settings.model_fields}
    return {name: text for name, text in texts.items() if text is not None}


def _setting_value(name: str, given: SettingTexts) -> SettingValue:
    if name in given.options:
        return SettingValue(variable_of(name), display_value(name, given.options[name]), "option")
    if name in given.environment:
        return SettingValue(variable_of(name), display_value(name, given.environment[name]), "environment")
    if name in given.files:
        return SettingValue(variable_of(name), display_value(name, given.files[name]), "file")
    return SettingValue(variable_of(name), _display_default(_default(name)), "default")


def _default(name: str) -> Any:
    return Settings.model_fields[name].get_default(call_default_factory=True)


def _display_default(value: Any) -> str | None:
    if value is None or isinstance(value, SecretStr) or value == ():
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


State: TypeAlias = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check of the configuration.

    Attributes:
        check: Subject of the check, such as ``database``.
        state: ``wrong`` if a gateway could not start or work; ``warning`` for a less serious problem.
        message: Result in words.
        hint: Fix for the problem; None if there is nothing to fix.
    """

    check: str
    state: State
    message: str
    hint: str | None = None


def wrong_finding(check: str, error: object) -> Finding:
    """Return a finding for an error. The part of the message after the first semicolon becomes the hint."""
    message, _, hint = str(error).partition("; ")
    return Finding(check, "wrong", message, hint or None)


def hide_secrets(finding: Finding, secrets: Iterable[str]) -> Finding:
    """Return a copy of a finding in which each of the secrets is replaced by an ellipsis.

    The names of settings stay readable, even if a secret equals a part of a name, such as ``SECRET``. If several
    secrets begin at the same character, the first one in `secrets` is replaced.
    """
    # The pattern matches secrets before names, so that a secret that begins with a name is hidden completely.
    pattern = re.compile("|".join((f"(?P<secret>{'|'.join(map(re.escape, secrets)) or '(?!)'})", _NAMES)))

    def hide(found: re.Match[str]) -> str:
        return found[0] if found["secret"] is None else HIDDEN

    hint = finding.hint and pattern.sub(hide, finding.hint)
    return replace(finding, message=pattern.sub(hide, finding.message), hint=hint)


#: Similarity (0 to 1) from which an unknown name counts as a misspelled setting.
ALIKE = 0.8
#: Names of environment variables that Kubernetes adds to every container if a service is named "toolgate".
_OF_KUBERNETES = re.compile(r"TOOLGATE_(SERVICE_(HOST|PORT)(_.+)?|PORT(_\d+_(TCP|UDP)(_.+)?)?)")


def find_unknown_names(
    environment: Iterable[str], files: Iterable[str], others: Collection[str]
) -> Iterator[Finding]:
    """Yield a finding for each environment variable and each file that has a ``TOOLGATE_*`` name but is not a setting.

    Args:
        environment: Names of all environment variables. Upper and lower case are equivalent.
        files: Names of all files in the folder ``TOOLGATE_SECRETS_DIR``. Only names in upper case are settings.
        others: Names of environment variables of the SDK and the command line, which are not reported.
    """
    known = {variable_of(name) for name in Settings.model_fields}
    renamed = set(map(variable_of, RENAMED))
    for name in sorted(environment):
        spelt = name.upper()
        if spelt not in known | renamed | set(others) and not _OF_KUBERNETES.fullmatch(spelt):
            yield from _unknown_name_finding(name, repr(name), known)
    for name in sorted(set(files) - known - renamed):
        yield from _unknown_name_finding(name, f"the file {name!r}", known)


def _renamed_finding(one: RenamedSetting) -> Finding:
    message, _, hint = str(one).partition("; ")
    return Finding("variables", "warning", message, hint)


def _unknown_name_finding(name: str, label: str, known: Collection[str]) -> Iterator[Finding]:
    spelt = name.upper()
    if not spelt.startswith(PREFIX):
        return
    # Compare the names without the prefix `TOOLGATE_`, which would make all names similar.
    bare = {one.removeprefix(PREFIX): one for one in known}
    near = get_close_matches(spelt.removeprefix(PREFIX), bare, n=1, cutoff=ALIKE)
    message = f"{label} is not a setting of the gateway"
    if near:
        yield Finding("variables", "wrong", message, f"did you mean {bare[near[0]]!r}?")
    else:
        yield Finding("variables", "warning", f"{message} and has no effect")


USE = "set TOOLGATE_DATABASE_URL to sqlite:///PATH with a file in a directory to which the gateway can write"
_VERSION = text("SHOW server_version")


async def check_database(settings: Settings, vault: Vault | None) -> Sequence[Finding]:
    """Check that the database can be used, that its schema is current, and that the secret decrypts its data.

    Args:
        settings: Settings with the URL of the database.
        vault: Vault with the gateway's secret; None if there is no secret.
    """
    try:
        if is_embedded(settings.database_url):
            return _check_file(sqlite_path(settings.database_url), settings, vault)
        database = open_database(settings.database_url)
        try:
            async with database.opened() as connection:
                version = (await connection.execute(_VERSION)).scalar_one()
                return await connection.run_sync(_findings, f"PostgreSQL {version}", settings, vault)
        finally:
            await database.close()
    except StorageError as error:
        return [wrong_finding("database", error)]
    except SQLAlchemyError as error:
        # Do not show the driver's message, because it may contain the URL with its password.
        message = f"cannot use the database of TOOLGATE_DATABASE_URL: {type(error).__name__}"
        return [Finding("database", "wrong", message)]


def _check_file(path: Path, settings: Settings, vault: Vault | None) -> Sequence[Finding]:
    try:
        if problem := _file_problem(path):
            return [Finding("database", "wrong", f"cannot use the database {str(path)!r}: {problem}", USE)]
        if not path.exists():
            message = f"the database {str(path)!r} does not exist yet; the gateway creates it when it starts"
            return [Finding("database", "ok", message)]
    except OSError as error:
        return [Finding("database", "wrong", f"cannot use the database {str(path)!r}: {error.strerror}", USE)]
    # Create no files: without `immutable`, SQLite creates the `-wal` and `-shm` files of a database in WAL mode if they
    # are missing. If both files exist, a gateway is running, and the connection must use them.
    has_companions = [path.with_name(f"{path.name}{suffix}").exists() for suffix in ("-wal", "-shm")]
    how = "mode=ro" if all(has_companions) else "mode=ro&immutable=1"
    engine = create_engine(
        "sqlite://", creator=lambda: sqlite3.connect(f"file:{quote(str(path))}?{how}", uri=True)
    )
    try:
        with engine.connect() as connection:
            return _findings(connection, f"SQLite {sqlite3.sqlite_version}, {str(path)!r}", settings, vault)
    except DBAPIError as error:
        return [Finding("database", "wrong", f"cannot use the database {str(path)!r}: {error.orig}", USE)]
    finally:
        engine.dispose()


def _file_problem(path: Path) -> str | None:
    """Return the reason why a gateway cannot use or create this database file; None if it can."""
    if path.is_dir():
        return "the path is a directory, not a file"
    if path.exists():
        return None if os.access(path, os.R_OK | os.W_OK) else "no permission to read and write the file"
    folder = next(parent for parent in path.parents if parent.exists())
    if not folder.is_dir():
        return f"{str(folder)!r} is not a directory"
    may_write = os.access(folder, os.W_OK | os.X_OK)
    return None if may_write else f"no permission to write to the directory {str(folder)!r}"


def _findings(
    connection: Connection, what: str, settings: Settings, vault: Vault | None
) -> Sequence[Finding]:
    schema = schema_of(connection)
    findings = [_schema_finding(what, schema, settings)]
    if schema.current is not None and (vault is not None or has_no_secret(settings)):
        try:
            fits = opens_sealed(connection, vault)
        except SQLAlchemyError:
            # The tables are missing or different, because the schema is too new or does not belong to a gateway.
            # `_schema_finding` has already reported this.
            return findings
        if not fits:
            findings.append(Finding("secret", "wrong", *other_secret(settings, missing=vault is None)))
    return findings


def _schema_finding(what: str, schema: Schema, settings: Settings) -> Finding:
    if not schema.known:
        if schema.usable:
            return Finding(
                "database",
                "warning",
                f"{what}; a newer version of Toolgate created the schema {schema.current}, which this version can use",
            )
        return Finding(
            "database",
            "wrong",
            f"{what}; this version of Toolgate does not support the schema {schema.current}",
            "install a newer version of Toolgate",
        )
    if not schema.pending:
        return Finding("database", "ok", f"{what}; the schema {schema.current} is up to date")
    state = f"the schema {schema.current} is outdated" if schema.current else "the database has no schema yet"
    if settings.migrate == "check":
        return Finding("database", "wrong", f"{what}; {state}", "run 'toolgate db upgrade'")
    return Finding(
        "database", "ok", f"{what}; {state}, and the gateway upgrades it to {schema.newest} at the next start"
    )


#: Maximum seconds to wait for a connection to the Redis server, and for its response.
REDIS_TIMEOUT = 5.0


class Report(NamedTuple):
    """Result of `toolgate config check`: all settings, and the findings of all checks."""

    settings: Sequence[SettingValue]
    findings: Sequence[Finding]

    @property
    def is_good(self) -> bool:
        """True if a gateway could start with these settings."""
        return all(finding.state != "wrong" for finding in self.findings)


def show(overrides: Mapping[str, str]) -> Sequence[SettingValue]:
    """Return all settings that a gateway started in this environment would use.

    Args:
        overrides: Settings that take precedence over environment variables.

    Raises:
        StartError: The folder ``TOOLGATE_SECRETS_DIR`` cannot be read.
    """
    return list_settings(SettingTexts.by(overrides, os.environ))


def check(overrides: Mapping[str, str], others: Collection[str]) -> Report:
    """Check the settings, and the database, secret, files and servers that they refer to. Nothing is changed.

    Args:
        overrides: Settings that take precedence over environment variables.
        others: Names of ``TOOLGATE_*`` environment variables that only the SDK or the command line uses. They are not
            reported as unknown settings.
    """
    given = SettingTexts(overrides, texts_in(os.environ), {})
    findings = list(find_unknown_names(os.environ, _names_in(given.environment.get("secrets_dir")), others))
    try:
        given = SettingTexts.by(overrides, os.environ)
        findings += map(_renamed_finding, find_renamed(os.environ, given.environment.get("secrets_dir")))
        settings = load_settings(overrides)
    except StartError as error:
        findings.insert(0, Finding("settings", "wrong", str(error)))
    else:
        findings.insert(0, Finding("settings", "ok", "valid"))
        findings += _find_missing_packages()
        findings += asyncio.run(_check_settings(settings))
    secrets = given.secrets()
    return Report(list_settings(given), [hide_secrets(finding, secrets) for finding in findings])


def _find_missing_packages() -> Sequence[Finding]:
    """Return a finding if a Python package that `toolgate serve` imports is missing."""
    try:
        import_module("toolgate_service.server.run")
    except ImportError as error:
        hint = "install the packages with: pip install 'toolgate[service]'"
        return [Finding("packages", "wrong", f"the gateway's packages cannot be imported: {error}", hint)]
    return []


def _names_in(folder: str | None) -> Sequence[str]:
    try:
        return [path.name for path in Path(folder).expanduser().iterdir()] if folder else []
    except OSError:
        # Ignore the error here, because reading the settings later reports it.
        return []


async def _check_settings(settings: Settings) -> Sequence[Finding]:
    secret, vault = _check_secret(settings)
    findings = [secret, *await check_database(settings, vault)]
    if settings.plans_file is not None:
        # The plan file needs no further check, because the validation of the settings has already read it.
        findings.append(Finding("plans", "ok", f"the plan file {str(settings.plans_file)!r} is valid"))
    if settings.tls_cert is not None and settings.tls_key is not None:
        findings.append(_check_tls(settings.tls_cert, settings.tls_key))
    if settings.redis_url is not None:
        findings.append(await _check_redis(settings.redis_url.get_secret_value()))
    if settings.smtp_url is not None and settings.mail_from is not None:
        mailer = SmtpMailer(SmtpServer.from_url(settings.smtp_url.get_secret_value()), settings.mail_from)
        findings.append(await _check_mail(mailer))
    return findings


def _check_secret(settings: Settings) -> tuple[Finding, Vault | None]:
    path = secret_path()
    if settings.secret is None and is_embedded(settings.database_url):
        if not path.exists():
            message = (
                f"the secret file {str(path)!r} does not exist yet; the gateway creates it when it starts"
            )
            return Finding("secret", "ok", message), None
        where = f"the file {str(path)!r}"
    else:
        where = "TOOLGATE_SECRET"
    try:
        # The file with the secret exists, so this call reads the secret and does not create a new one.
        vault = Vault.of(settings)
    except StorageError as error:
        return wrong_finding("secret", error), None
    former = ", and a former secret is set" if settings.former_secrets() else ""
    message = f"the secret in {where} has at least {MIN_SECRET} characters{former}"
    return Finding("secret", "ok", message), vault


def _check_tls(certificate: Path, key: Path) -> Finding:
    try:
        ends = read_certificate(certificate, key).not_valid_after_utc
    except StartError as error:
        return wrong_finding("tls", error)
    if ends < utcnow():
        return Finding("tls", "wrong", f"the certificate expired on {ends:%Y-%m-%d}", "renew the certificate")
    return Finding("tls", "ok", f"the certificate matches the key and is valid until {ends:%Y-%m-%d}")


async def _check_redis(url: str) -> Finding:
    from redis.asyncio import Redis
    from redis.exceptions import RedisError

    # An error of Redis may contain the password. It does not need to be hidden here: `check` hides all secrets.
    server = Redis.from_url(url, socket_timeout=REDIS_TIMEOUT, socket_connect_timeout=REDIS_TIMEOUT)
    try:
        version = (await server.info("server")).get("redis_version", "unknown")
    except (RedisError, OSError, ValueError) as error:
        return Finding("redis", "wrong", f"the Redis server of TOOLGATE_REDIS_URL cannot be used: {error}")
    finally:
        await server.aclose()
    return Finding("redis", "ok", f"the Redis server has the version {version}")


async def _check_mail(mailer: SmtpMailer) -> Finding:
    try:
        await mailer.check_connection()
    except NotSent as error:
        return Finding(
            "mail", "wrong", f"cannot use the mail server {mailer.server.host}:{mailer.server.port}: {error}"
        )
    return Finding(
        "mail", "ok", f"the mail server {mailer.server.host}:{mailer.server.port} accepts connections"
    )
