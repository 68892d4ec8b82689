"""`toolgate config`: list the settings, and check whether a gateway could start with them. Nothing is changed."""

import asyncio
import os
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from toolgate_service.cli.findings import Finding, unknown, without, wrong
from toolgate_service.cli.settings_list import Given, Listed, given_in, listed
from toolgate_service.core.clock import utcnow
from toolgate_service.core.crypto import MIN_SECRET, Vault, secret_path
from toolgate_service.core.errors import StartError, StorageError
from toolgate_service.core.mail_settings import SmtpServer
from toolgate_service.core.settings import Settings, is_embedded, load_settings
from toolgate_service.db.database import open_database
from toolgate_service.db.migrate import Schema, schema_of
from toolgate_service.db.sqlite import sqlite_path
from toolgate_service.mail import NotSent, SmtpMailer
from toolgate_service.secret_check import has_no_secret, opens_sealed, other_secret
from toolgate_service.server.tls import read_certificate

USE = "name a file in a directory you may write with TOOLGATE_DATABASE_URL=sqlite:///PATH"
_VERSION = text("SHOW server_version")


async def look_at_database(settings: Settings, vault: Vault | None) -> Sequence[Finding]:
    """Report whether the database is usable, whether its schema is current, and whether the secret matches its data.

    Args:
        settings: Settings with the URL of the database.
        vault: Vault created from the secret; None if there is no secret.
    """
    try:
        if is_embedded(settings.database_url):
            return _look_at_file(sqlite_path(settings.database_url), settings, vault)
        database = open_database(settings.database_url)
        try:
            async with database.opened() as connection:
                version = (await connection.execute(_VERSION)).scalar_one()
                return await connection.run_sync(_findings, f"PostgreSQL {version}", settings, vault)
        finally:
            await database.close()
    except StorageError as error:
        return [wrong("database", error)]
    except SQLAlchemyError as error:
        # Omit the driver's message, which may contain the URL.
        return [Finding("database", "wrong", f"cannot use the database: {type(error).__name__}")]


def _look_at_file(path: Path, settings: Settings, vault: Vault | None) -> Sequence[Finding]:
    try:
        if problem := _unusable(path):
            return [Finding("database", "wrong", f"cannot use the database {str(path)!r}: {problem}", USE)]
        if not path.exists():
            return [Finding("database", "ok", f"{str(path)!r} is not there yet; the first start makes it")]
    except OSError as error:
        return [Finding("database", "wrong", f"cannot use the database {str(path)!r}: {error.strerror}", USE)]
    # A read-only connection in WAL mode creates the `-wal` and `-shm` files if they are missing. If both exist, a
    # gateway is running, and the connection can use them. Otherwise `immutable` prevents their creation.
    beside = [path.with_name(f"{path.name}{suffix}").exists() for suffix in ("-wal", "-shm")]
    how = "mode=ro" if all(beside) else "mode=ro&immutable=1"
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


def _unusable(path: Path) -> str | None:
    """Return the reason why a gateway cannot use or create this database file, or None if it can."""
    if path.is_dir():
        return "it is a directory"
    if path.exists():
        return None if os.access(path, os.R_OK | os.W_OK) else "it cannot be read and written"
    folder = next(parent for parent in path.parents if parent.exists())
    if not folder.is_dir():
        return f"{str(folder)!r} is not a directory"
    return (
        None if os.access(folder, os.W_OK | os.X_OK) else f"the directory {str(folder)!r} cannot be written"
    )


def _findings(
    connection: Connection, what: str, settings: Settings, vault: Vault | None
) -> Sequence[Finding]:
    schema = schema_of(connection)
    findings = [_judged(what, schema, settings)]
    if schema.current is not None and (vault is not None or has_no_secret(settings)):
        try:
            fits = opens_sealed(connection, vault)
        except SQLAlchemyError:
            # The schema is not a gateway's, or is too new. The first finding already reports this.
            return findings
        if not fits:
            findings.append(Finding("secret", "wrong", *other_secret(settings, missing=vault is None)))
    return findings


def _judged(what: str, schema: Schema, settings: Settings) -> Finding:
    if not schema.known:
        if schema.usable:
            return Finding(
                "database", "warning", f"{what}; schema {schema.current}, a newer version's, usable"
            )
        return Finding(
            "database",
            "wrong",
            f"{what}; schema {schema.current}, which this version does not know",
            "upgrade this installation",
        )
    if not schema.pending:
        return Finding("database", "ok", f"{what}; schema {schema.current}, up to date")
    stands = f"schema {schema.current}" if schema.current else "no schema yet"
    if settings.migrate == "check":
        return Finding("database", "wrong", f"{what}; {stands}", "run 'toolgate db upgrade'")
    return Finding("database", "ok", f"{what}; {stands}, the start brings it to {schema.newest}")


#: timeout in seconds of the connection to the Redis server and of its response
PATIENCE = 5.0


class Report(NamedTuple):
    """Result of `toolgate config check`: all settings, and the findings of the checks."""

    settings: Sequence[Listed]
    findings: Sequence[Finding]

    @property
    def is_good(self) -> bool:
        """Whether a gateway could start with these settings."""
        return all(finding.state != "wrong" for finding in self.findings)


def show(overrides: Mapping[str, str]) -> Sequence[Listed]:
    """Return all settings of a gateway that would be started in this environment.

    Args:
        overrides: Settings that take precedence over environment variables.

    Raises:
        StartError: The folder ``TOOLGATE_SECRETS_DIR`` cannot be read.
    """
    return listed(Given.by(overrides, os.environ))


def check(overrides: Mapping[str, str], others: Collection[str]) -> Report:
    """Return all settings, and check the database, secret, files and servers that they name. Nothing is changed.

    Args:
        overrides: Settings that take precedence over environment variables.
        others: Names of ``TOOLGATE_*`` variables that are not settings of the gateway but of the SDK or command line.
    """
    given = Given(overrides, given_in(os.environ), {})
    findings = list(unknown(os.environ, _names_in(given.environment.get("secrets_dir")), others))
    try:
        given = Given.by(overrides, os.environ)
        settings = load_settings(overrides)
    except StartError as error:
        findings.insert(0, Finding("settings", "wrong", str(error)))
    else:
        findings.insert(0, Finding("settings", "ok", "valid"))
        findings += _find_missing_packages()
        findings += asyncio.run(_look_around(settings))
    secrets = given.secrets()
    return Report(listed(given), [without(finding, secrets) for finding in findings])


def _find_missing_packages() -> Sequence[Finding]:
    """Import the modules that `toolgate serve` needs, and report a missing package."""
    try:
        import_module("toolgate_service.server.run")
    except ImportError as error:
        cure = "install it with: pip install 'toolgate[service]'"
        return [Finding("packages", "wrong", f"the gateway cannot be imported: {error}", cure)]
    return []


def _names_in(folder: str | None) -> Sequence[str]:
    try:
        return [path.name for path in Path(folder).expanduser().iterdir()] if folder else []
    except OSError:
        # The code that reads the settings reports this error.
        return []


async def _look_around(settings: Settings) -> Sequence[Finding]:
    secret, vault = _look_at_secret(settings)
    findings = [secret, *await look_at_database(settings, vault)]
    if settings.plans_file is not None:
        # No check is necessary here, since the validation of the settings has already read the file.
        findings.append(Finding("plans", "ok", f"{str(settings.plans_file)!r} can be read"))
    if settings.tls_cert is not None and settings.tls_key is not None:
        findings.append(_look_at_tls(settings.tls_cert, settings.tls_key))
    if settings.redis_url is not None:
        findings.append(await _look_at_redis(settings.redis_url.get_secret_value()))
    if settings.smtp_url is not None and settings.mail_from is not None:
        mailer = SmtpMailer(SmtpServer.from_url(settings.smtp_url.get_secret_value()), settings.mail_from)
        findings.append(await _check_mail(mailer))
    return findings


def _look_at_secret(settings: Settings) -> tuple[Finding, Vault | None]:
    path = secret_path()
    if settings.secret is None and is_embedded(settings.database_url):
        if not path.exists():
            return Finding("secret", "ok", f"{str(path)!r} is not there yet; the first start makes it"), None
        where = f"in {str(path)!r}"
    else:
        where = "TOOLGATE_SECRET"
    try:
        # The secret's file exists, so this call only reads it and creates none.
        vault = Vault.of(settings)
    except StorageError as error:
        return wrong("secret", error), None
    former = ", and a former one" if settings.former_secrets() else ""
    return Finding("secret", "ok", f"{where}{former}, at least {MIN_SECRET} characters"), vault


def _look_at_tls(certificate: Path, key: Path) -> Finding:
    try:
        ends = read_certificate(certificate, key).not_valid_after_utc
    except StartError as error:
        return wrong("tls", error)
    if ends < utcnow():
        return Finding("tls", "wrong", f"the certificate ran out on {ends:%Y-%m-%d}", "renew it")
    return Finding("tls", "ok", f"certificate and key fit; good until {ends:%Y-%m-%d}")


async def _look_at_redis(url: str) -> Finding:
    from redis.asyncio import Redis
    from redis.exceptions import RedisError

    # The error message may be shown: `check` hides the settings' secrets in all findings.
    server = Redis.from_url(url, socket_timeout=PATIENCE, socket_connect_timeout=PATIENCE)
    try:
        version = (await server.info("server")).get("redis_version", "unknown")
    except (RedisError, OSError, ValueError) as error:
        return Finding("redis", "wrong", f"the Redis server cannot be used: {error}")
    finally:
        await server.aclose()
    return Finding("redis", "ok", f"version {version}")


async def _check_mail(mailer: SmtpMailer) -> Finding:
    try:
        await mailer.check_connection()
    except NotSent as error:
        return Finding("mail", "wrong", f"{mailer.server.host}:{mailer.server.port}: {error}")
    return Finding("mail", "ok", f"{mailer.server.host}:{mailer.server.port} lets us in")
