"""Settings of the gateway.

A setting is read from the arguments, the ``TOOLGATE_*`` environment variables, the files of secrets, or the defaults.
The first of these sources that contains the setting is used. A former name of a setting is used only if no source
contains the present name.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import quote, urlsplit

from platformdirs import user_data_path
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from toolgate_service.core.addresses import (
    MAX_PORT,
    ListenAddress,
    Network,
    is_web_address,
    read_hosts,
    read_listen_address,
    read_networks,
    read_origins,
)
from toolgate_service.core.crypto import MIN_SECRET, former_secret, secret_path, stored_secret
from toolgate_service.core.errors import StartError, StorageError
from toolgate_service.core.mail_settings import MailServer, Sender, require_all
from toolgate_service.core.plans import (
    BUILT_IN,
    MAX_RATE,
    PlanFileError,
    PlanName,
    Plans,
    plan_name,
    read_plans,
)
from toolgate_service.core.settings_sources import (
    RenamedSettings,
    SettingsFolder,
    find_renamed,
    variable_of,
)
from toolgate_service.core.witness_settings import Witness, read_witnesses

REDIS_EXAMPLE = "redis://:PASSWORD@HOST:6379/0"


def _check_redis_url(value: SecretStr) -> SecretStr:
    try:
        from redis.asyncio import ConnectionPool
    except ModuleNotFoundError as error:
        raise ValueError(
            f"needs the extra 'redis' ({error.name!r} is missing); install it with: pip install 'toolgate[redis]'"
        ) from None
    url = value.get_secret_value()
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"redis", "rediss"} and bool(parts.hostname) and _is_number(parts.path[1:])
        if usable:
            ConnectionPool.from_url(url).make_connection()  # type: ignore[no-untyped-call]  # this method of redis-py has no type hints
    except Exception:  # noqa: BLE001 - the message of the library must not be shown, because it may contain the URL
        usable = False
    if not usable:
        # The error message must not contain the URL, because it may include a password.
        raise ValueError(
            f"is not the URL of a Redis server; write for example {REDIS_EXAMPLE}, or rediss://… for TLS"
        )
    return value


def _is_number(text: str) -> bool:
    return not text or (text.isascii() and text.isdecimal())


RedisServer = Annotated[SecretStr, AfterValidator(_check_redis_url)]


#: maximum value of settings that are durations in seconds: 366 days
MAX_SECONDS = 366 * 24 * 3600


def is_embedded(url: str) -> bool:
    """Return whether a database URL refers to an SQLite file and not to a database server."""
    return url.startswith("sqlite")


def default_database_url() -> str:
    """Return the URL of the default database: an SQLite file in the data folder of the user."""
    path = user_data_path("toolgate", appauthor=False) / "toolgate.db"
    return f"sqlite:///{quote(str(path))}"


def _read_metrics_address(text: str) -> ListenAddress:
    address = read_listen_address(text)
    try:
        import_module("prometheus_client")
    except ModuleNotFoundError:
        raise ValueError(
            "needs the extra 'metrics'; install it with: pip install 'toolgate[metrics]'"
        ) from None
    return address


def _from_text(read: Callable[[str], object]) -> Callable[[object], object]:
    return lambda value: read(value) if isinstance(value, str) else value


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


class Settings(BaseSettings):
    """Settings that the operator can change with ``TOOLGATE_*`` environment variables.

    Attributes:
        database_url: URL of the database: ``sqlite:///PATH`` or ``postgresql://…``.
        migrate: Behavior at startup if the database schema is outdated: migrate it (``auto``) or refuse to start
            (``check``).
        secret: Secret that signs tokens and encrypts stored keys. With an SQLite database, the gateway creates it
            automatically.
        secret_previous: Former secret. It still decrypts stored keys, and tokens signed with it are valid until they
            expire.
        secret_previous_leaked: Reject tokens that were signed with the former secret, because it was leaked.
        secret_next: Next secret, during a change of the secret. The gateway accepts the values and tokens of gateways
            that already use it.
        secrets_dir: Folder with one file per setting. The name of each file is that of the environment variable, and its
            content is the value.
        default_plan: Plan of new organizations.
        plans_file: ``.toml`` or ``.json`` file that overrides the built-in plans.
        approval_ttl_seconds: Time after which a pending approval request expires.
        approval_use_ttl_seconds: Time after the approver's decision within which the approved call must run.
        approval_reminder_seconds: Time before the expiry of an approval request at which approvers receive a reminder.
        approval_watch_seconds: Interval of the background jobs that expire approval requests and send reminders.
        denial_cache_seconds: Time after a rejection during which the same call is denied without a new approval
            request.
        pending_per_agent: Maximum number of pending approval requests of an agent.
        denials_before_block: Number of rejections within `denial_window_seconds` after which an agent's action is
            blocked.
        denial_window_seconds: Length of the window in which rejections are counted.
        denial_block_seconds: Time for which an action is blocked: its calls are denied without an approval request.
        stripe_webhook_secret: Secret that verifies events of the payment provider. Without it, all events are
            rejected.
        provider_livemode: Accept live events of the payment provider; if false, accept events of its test mode.
        payment_grace_days: Number of days after a failed payment until the organization is deactivated.
        login_threads: Maximum number of passwords that are hashed at the same time.
        login_queue: Maximum number of logins that wait for a hashing thread; further logins get a 429 response.
        public_url: URL with which users open the gateway. Links in e-mails start with it, and its host is part of the names
            of new transparency logs.
        trusted_proxies: Comma-separated addresses and networks whose ``X-Forwarded-For`` header is trusted.
        cors_origins: Comma-separated origins of web pages that may call the API from a browser, or ``*`` for all.
        request_timeout_seconds: Maximum time for receiving a request, and maximum idle time of a connection.
        max_connections: Maximum number of open connections; further connections get a 503 response.
        drain_seconds: Time between the stop signal and the shutdown, during which the readiness check fails and requests
            are still accepted.
        redis_url: URL of the Redis server, ``redis://…`` or ``rediss://…``, in which gateways with PostgreSQL count
            requests for rate limits. Without it, they count the requests in the database.
        workers: Number of gateway processes on this machine.
        tls_cert: File with the TLS certificate and the certificates of its issuers. With it, the gateway serves https.
        tls_key: File with the private key of the certificate.
        smtp_url: URL of the mail server, ``smtp://USER:PASSWORD@HOST:PORT`` or ``smtps://…``. Without it, no e-mail is
            sent.
        mail_from: Sender address of e-mails.
        registration: Who may register: everyone (``open``), invited people (``invite``), or no one (``closed``).
        management_requests_per_minute: Rate limit of the management API for each user.
        failed_authentications_per_minute: Maximum number of failed authentications of an IP address per
            minute; further requests get a 429 response.
        maintenance_interval_seconds: Interval of the maintenance jobs, which delete expired data.
        decision_context_days: Number of days for which the decision log contains the arguments of calls.
            `toolgate policy replay` needs these arguments. With 0, the decision log does not store arguments.
        transparency_key_file: PEM file with the Ed25519 key that signs the checkpoints of the transparency logs. Without it,
            each log has its own key, which is encrypted in the database.
        checkpoint_file: File in which the gateway remembers published checkpoints, to recognize a restored database. It
            must not be part of backups of the database. Without it, the gateway uses a file beside the database on
            SQLite, and no file on PostgreSQL.
        test_log_bytes: Maximum size in bytes of the log entries of each organization's test environment.
        operator_token: Token with which the operator creates scratch organizations, in which `toolgate verify` tests the
            gateway. Without it, the gateway has no routes for this purpose.
        prune_batch: Maximum number of rows that a maintenance job deletes in one transaction.
        webhooks_allow_private: Allow webhook URLs with http, and URLs in private networks or on the gateway's machine.
        webhook_poll_seconds: Maximum delay until this gateway delivers a webhook event that another gateway stored.
        witnesses: Comma-separated witnesses that cosign the checkpoints of transparency logs, each as
            ``URL VKEY``: its URL, a space and its verifier key.
        log_format: Format of log lines: ``text``, or ``json`` with one object per line.
        log_level: Minimum level of the log lines that the gateway writes.
        access_log: Write a log line for each request.
        traces: Send OpenTelemetry spans, which are configured with ``OTEL_*`` variables.
        metrics_address: ``HOST:PORT`` on which the gateway serves Prometheus metrics. Without it, no metrics are
            collected.
        console: Serve the web console at ``/console``.
        console_hosts: Comma-separated host names with which browsers open the console.
    """

    model_config = SettingsConfigDict(
        env_prefix="TOOLGATE_", env_ignore_empty=True, extra="ignore", hide_input_in_errors=True
    )

    database_url: str = Field(default_factory=default_database_url)
    migrate: Literal["auto", "check"] = "auto"
    secret: SecretStr | None = None
    secret_previous: SecretStr | None = None
    secret_previous_leaked: bool = False
    secret_next: SecretStr | None = None
    secrets_dir: Path | None = None
    default_plan: PlanName = "enterprise"
    plans_file: Path | None = None
    approval_ttl_seconds: Annotated[int, Field(gt=0, le=MAX_SECONDS)] = 24 * 3600
    approval_use_ttl_seconds: Annotated[int, Field(gt=0, le=MAX_SECONDS)] = 3600
    approval_reminder_seconds: Annotated[int, Field(gt=0, le=MAX_SECONDS)] = 3600
    approval_watch_seconds: Annotated[int, Field(gt=0, le=3600)] = 5
    denial_cache_seconds: Annotated[int, Field(ge=0, le=MAX_SECONDS)] = 300
    pending_per_agent: Annotated[int, Field(gt=0)] = 100
    denials_before_block: Annotated[int, Field(gt=0)] = 10
    denial_window_seconds: Annotated[int, Field(gt=0, le=MAX_SECONDS)] = 900
    denial_block_seconds: Annotated[int, Field(gt=0, le=MAX_SECONDS)] = 900
    stripe_webhook_secret: SecretStr | None = None
    provider_livemode: bool = True
    payment_grace_days: Annotated[int, Field(ge=0, le=365)] = 7
    login_threads: Annotated[int, Field(gt=0)] = 2
    login_queue: Annotated[int, Field(ge=0)] = 32
    public_url: str | None = None
    trusted_proxies: Annotated[tuple[Network, ...], NoDecode, BeforeValidator(_from_text(read_networks))] = ()
    cors_origins: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_from_text(read_origins))] = ()
    request_timeout_seconds: Annotated[int, Field(gt=0, le=3600)] = 30
    max_connections: Annotated[int, Field(gt=0, le=1_000_000)] = 4_000
    drain_seconds: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = 0
    redis_url: RedisServer | None = None
    workers: Annotated[int, Field(gt=0, le=1024)] = 1
    tls_cert: Path | None = None
    tls_key: Path | None = None
    registration: Literal["open", "invite", "closed"] = "open"
    management_requests_per_minute: Annotated[int, Field(gt=0, le=MAX_RATE)] = 600
    failed_authentications_per_minute: Annotated[int, Field(gt=0, le=MAX_RATE)] = 100
    smtp_url: MailServer | None = None
    mail_from: Sender | None = None
    maintenance_interval_seconds: Annotated[int, Field(gt=0, le=6 * 3600)] = 600
    decision_context_days: Annotated[int, Field(ge=0, le=3660)] = 30
    transparency_key_file: Path | None = None
    checkpoint_file: Path | None = None
    test_log_bytes: Annotated[int, Field(gt=0, le=2**40)] = 50 * 1024 * 1024
    operator_token: SecretStr | None = None
    prune_batch: Annotated[int, Field(gt=0, le=10_000)] = 200
    webhooks_allow_private: bool = False
    webhook_poll_seconds: Annotated[float, Field(ge=0.05, le=3600)] = 1
    witnesses: Annotated[tuple[Witness, ...], NoDecode, BeforeValidator(_from_text(read_witnesses))] = ()
    log_format: Literal["text", "json"] = "text"
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)] = "info"
    access_log: bool = False
    traces: bool = False
    metrics_address: Annotated[
        ListenAddress | None, NoDecode, BeforeValidator(_from_text(_read_metrics_address))
    ] = None
    console: bool = True
    console_hosts: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_from_text(read_hosts))] = ()
    _plans: Plans = PrivateAttr(default_factory=lambda: BUILT_IN)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # parameter required by pydantic
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # not used, because this source ignores unreadable files
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources of settings, in the order of their precedence."""
        return init_settings, env_settings, SettingsFolder(settings_cls), RenamedSettings(settings_cls)

    @field_validator("default_plan", mode="before")
    @classmethod
    def _check_plan(cls, value: object) -> object:
        return plan_name(str(value))

    @field_validator("secret", "secret_previous", "secret_next", "operator_token")
    @classmethod
    def _long_secret(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < MIN_SECRET:
            raise ValueError(f"is too short; use at least {MIN_SECRET} random characters")
        return value

    @field_validator("stripe_webhook_secret")
    @classmethod
    def _can_verify(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None:
            return None
        if not value.get_secret_value().strip():
            raise ValueError("is blank; copy the endpoint's signing secret from the provider, or unset it")
        try:
            import_module("stripe")
        except ModuleNotFoundError as error:
            raise ValueError(
                f"needs the extra 'billing' ({error.name!r} is missing); install it with: pip install 'toolgate[billing]'"
            ) from None
        return value

    @field_validator("traces")
    @classmethod
    def _can_send(cls, value: bool) -> bool:  # noqa: FBT001 - signature required by pydantic
        if value:
            try:
                import_module("toolgate_service.core.telemetry").require_exporter()
            except ModuleNotFoundError:
                raise ValueError(
                    "needs the extra 'traces'; install it with: pip install 'toolgate[traces]'"
                ) from None
        return value

    @field_validator("public_url")
    @classmethod
    def _web_address(cls, value: str | None) -> str | None:
        if value is None or is_web_address(value):
            return value and value.rstrip("/")
        # The error message must not contain the URL, because it may include a password.
        raise ValueError("is not a web address; write for example https://toolgate.example.com")

    @model_validator(mode="after")
    def _require_mail_settings(self) -> Self:
        require_all(self.smtp_url, self.mail_from, self.public_url)
        return self

    @model_validator(mode="after")
    def _both_for_tls(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            one, other = ("CERT", "KEY") if self.tls_key is None else ("KEY", "CERT")
            raise ValueError(
                f"TOOLGATE_TLS_{other}: is required with TOOLGATE_TLS_{one}; set both, or neither"
            )
        return self

    @model_validator(mode="after")
    def _metrics_of_each(self) -> Self:
        address = self.metrics_address
        if address is not None and address.port + self.workers - 1 > MAX_PORT:
            raise ValueError(
                f"TOOLGATE_METRICS_ADDRESS: {self.workers} workers need consecutive ports from {address.port} on, but "
                f"the highest port is {MAX_PORT}; choose a lower port"
            )
        return self

    @model_validator(mode="after")
    def _read_plans(self) -> Self:
        # Read the plan file during the validation, so that an invalid file is reported before the gateway starts.
        if self.plans_file is not None:
            try:
                self._plans = read_plans(self.plans_file)
            except PlanFileError as error:
                raise ValueError(f"TOOLGATE_PLANS_FILE: {error}") from None
        return self

    @property
    def plans(self) -> Plans:
        """All plans: the built-in plans with the changes from the operator's plan file."""
        return self._plans

    def secret_bytes(self) -> bytes:
        """Return the secret from the setting or, if it is not set, from the file in the user's configuration folder.

        If the file does not exist, it is created with a new secret.

        Raises:
            StorageError: The file cannot be read or created, or the gateway uses PostgreSQL and no secret is set.
        """
        if self.secret is not None:
            return self.secret.get_secret_value().encode()
        if not is_embedded(self.database_url):
            # Do not create a file with a secret: all gateways with the same PostgreSQL database need the same secret,
            # but a file exists on one machine only.
            raise StorageError(
                f"TOOLGATE_SECRET is not set; a gateway with PostgreSQL needs a secret of at least {MIN_SECRET} random characters"
            )
        return stored_secret(secret_path())

    def former_secrets(self) -> Sequence[bytes]:
        """Return the former secrets with which stored values may still be encrypted.

        Raises:
            StorageError: The file that contains the former secret cannot be read.
        """
        if self.secret_previous is not None:
            return (self.secret_previous.get_secret_value().encode(),)
        # Ignore the file of the former secret if `TOOLGATE_SECRET` is set, because only embedded gateways use the file.
        found = former_secret(secret_path()) if self.secret is None else None
        return () if found is None else (found,)

    def following_secrets(self) -> Sequence[bytes]:
        """Return the next secret as a sequence with one item; an empty sequence if it is not set.

        During a rotation of the secret, gateways that were already restarted use the next secret. The other gateways
        need the next secret to decrypt values and accept tokens of the restarted gateways.
        """
        return () if self.secret_next is None else (self.secret_next.get_secret_value().encode(),)


def load_settings(overrides: Mapping[str, str]) -> Settings:
    """Read and validate all settings.

    `overrides` maps field names, for example ``default_plan``, to values that take precedence over the environment.

    Raises:
        StartError: At least one setting is invalid. The message lists all invalid settings.
    """
    try:
        return Settings(**overrides)  # type: ignore[arg-type]  # the model converts and validates the texts
    except ValidationError as error:
        folder = overrides.get("secrets_dir") or os.environ.get("TOOLGATE_SECRETS_DIR")
        renamed = {one.name: one.former for one in find_renamed(os.environ, folder) if not one.is_superseded}
        problems = (_format_problem(problem, renamed) for problem in error.errors())
        raise StartError("; ".join(problems)) from None


def _format_problem(problem: ErrorDetails, renamed: Mapping[str, str]) -> str:
    message = problem["msg"].removeprefix("Value error, ")
    if not problem["loc"]:
        # A validation error about several settings has no location. Return its message alone, because it already
        # contains the names of the settings.
        return message
    name = "_".join(map(str, problem["loc"]))
    return f"{variable_of(renamed.get(name, name))}: {message}"
