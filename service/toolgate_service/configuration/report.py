"""All settings and all findings."""

import asyncio
import os
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from toolgate_service.clock import utcnow
from toolgate_service.configuration.database import look_at_database
from toolgate_service.configuration.findings import Finding, without, wrong
from toolgate_service.configuration.listing import Given, Listed, given_in, listed
from toolgate_service.configuration.unknown import unknown
from toolgate_service.errors import StartError, StorageError
from toolgate_service.mail.smtp import NotSent, SmtpMailer
from toolgate_service.secret_file import MIN_SECRET, secret_path
from toolgate_service.serving.tls import fitting
from toolgate_service.settings import Settings, load_settings
from toolgate_service.storage.database import is_embedded
from toolgate_service.vault import Vault

#: seconds that a Redis server may take to answer
PATIENCE = 5.0


class Report(NamedTuple):
    """What `toolgate config check` shows."""

    settings: Sequence[Listed]
    findings: Sequence[Finding]

    @property
    def is_good(self) -> bool:
        """Whether a gateway could work with it."""
        return all(finding.state != "wrong" for finding in self.findings)


def show(overrides: Mapping[str, str]) -> Sequence[Listed]:
    """Return every setting, as it would be for a gateway that is started here.

    Args:
        overrides: settings that go before the environment's.

    Raises:
        StartError: the folder of settings cannot be read.
    """
    return listed(Given.by(overrides, os.environ))


def check(overrides: Mapping[str, str], others: Collection[str]) -> Report:
    """Return every setting, and look at whatever they name. Nothing is changed or made.

    Args:
        overrides: settings that go before the environment's.
        others: variables that are somebody else's to read.
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
    """Import the modules of `toolgate serve`, which a missing package would stop."""
    try:
        import_module("toolgate_service.server")
    except ImportError as error:
        cure = "install it with: pip install 'toolgate[service]'"
        return [Finding("packages", "wrong", f"the gateway cannot be imported: {error}", cure)]
    return []


def _names_in(folder: str | None) -> Sequence[str]:
    try:
        return [path.name for path in Path(folder).expanduser().iterdir()] if folder else []
    except OSError:
        # What reads the settings says so.
        return []


async def _look_around(settings: Settings) -> Sequence[Finding]:
    secret, vault = _look_at_secret(settings)
    findings = [secret, *await look_at_database(settings, vault)]
    if settings.plans_file is not None:
        # Settings that are valid have read it.
        findings.append(Finding("plans", "ok", f"{str(settings.plans_file)!r} can be read"))
    if settings.tls_cert is not None and settings.tls_key is not None:
        findings.append(_look_at_tls(settings.tls_cert, settings.tls_key))
    if settings.redis_url is not None:
        findings.append(await _look_at_redis(settings.redis_url.get_secret_value()))
    if settings.smtp_url is not None and settings.mail_from is not None:
        mailer = SmtpMailer.from_url(settings.smtp_url.get_secret_value(), settings.mail_from)
        findings.append(await asyncio.to_thread(_look_at_mail, mailer))
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
        # A file that is there is only read.
        vault = Vault.of(settings)
    except StorageError as error:
        return wrong("secret", error), None
    former = ", and a former one" if settings.former_secrets() else ""
    return Finding("secret", "ok", f"{where}{former}, at least {MIN_SECRET} characters"), vault


def _look_at_tls(certificate: Path, key: Path) -> Finding:
    try:
        ends = fitting(certificate, key).not_valid_after_utc
    except StartError as error:
        return wrong("tls", error)
    if ends < utcnow():
        return Finding("tls", "wrong", f"the certificate ran out on {ends:%Y-%m-%d}", "renew it")
    return Finding("tls", "ok", f"certificate and key fit; good until {ends:%Y-%m-%d}")


async def _look_at_redis(url: str) -> Finding:
    from redis.asyncio import Redis
    from redis.exceptions import RedisError

    # A look is no reason to wait for long, and a server's own words hold no secret of ours.
    server = Redis.from_url(url, socket_timeout=PATIENCE, socket_connect_timeout=PATIENCE)
    try:
        version = (await server.info("server")).get("redis_version", "unknown")
    except (RedisError, OSError, ValueError) as error:
        return Finding("redis", "wrong", f"the Redis server cannot be used: {error}")
    finally:
        await server.aclose()
    return Finding("redis", "ok", f"version {version}")


def _look_at_mail(mailer: SmtpMailer) -> Finding:
    try:
        mailer.knock()
    except NotSent as error:
        return Finding("mail", "wrong", f"{mailer.host}:{mailer.port}: {error}")
    return Finding("mail", "ok", f"{mailer.host}:{mailer.port} lets us in")
