"""The gateway's settings: arguments, then ``TOOLGATE_*`` in the environment, then files, then the default."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import quote

from platformdirs import user_data_path
from pydantic import (
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

from toolgate_service.errors import StartError, StorageError
from toolgate_service.mail.settings import MailServer, Sender, demand_all
from toolgate_service.metrics.address import MAX_PORT, Address, read_address
from toolgate_service.plan_file import MAX_RATE, PlanFileError, read_plans
from toolgate_service.plans import BUILT_IN, PlanName, Plans, plan_name
from toolgate_service.redis_url import RedisServer
from toolgate_service.secret_file import MIN_SECRET, former_secret, secret_path, stored_secret
from toolgate_service.settings_folder import SettingsFolder
from toolgate_service.storage.database import is_embedded
from toolgate_service.web.hosts import read_hosts
from toolgate_service.web.origins import is_web_address, read_origins
from toolgate_service.web.proxies import Network, read_networks

#: a year: nothing waits longer
MAX_SECONDS = 366 * 24 * 3600


def default_database_url() -> str:
    """Return the URL of the embedded database: a file in the user's data folder."""
    path = user_data_path("toolgate", appauthor=False) / "toolgate.db"
    return f"sqlite:///{quote(str(path))}"


def _from_text(read: Callable[[str], object]) -> Callable[[object], object]:
    return lambda value: read(value) if isinstance(value, str) else value


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


class Settings(BaseSettings):
    """What an operator may set.

    Attributes:
        database_url: ``sqlite:///PATH`` or ``postgresql://…``.
        migrate: whether a start brings an older schema up to date, or refuses it.
        secret: signs tokens and seals stored keys; one is created for the embedded database.
        secret_previous: opens what was sealed before the secret was changed, and what it signed counts until it runs out.
        secret_previous_leaked: whether what it signed counts no more.
        secret_next: is going to be the secret: what gateways that have it already sealed and signed counts.
        secrets_dir: a folder of files, each named as the variable it stands for.
        default_plan: the plan of new organizations.
        plans_file: overrides the plans; ``.toml`` or ``.json``.
        approval_ttl_seconds: how long a held check waits for a decision.
        approved_ttl_seconds: how long an approval may be used after the decision.
        approval_reminder_seconds: how long before a request runs out people are reminded of it.
        approval_watch_seconds: how often a gateway looks for requests that run out, or soon will.
        denial_memory_seconds: how long a denial answers the equal check.
        pending_per_agent: requests of one agent that may wait for a decision at the same time.
        denials_before_block: so many denials of one agent and action ...
        denial_window_seconds: ... within so long ...
        denial_block_seconds: ... block the pair for so long.
        provider_webhook_secret: verifies the payment provider's events; without it none are taken.
        provider_livemode: whether the provider's live events are taken, or those of its test mode.
        payment_grace_days: how long after a failed payment an organization stays active.
        login_threads: passwords hashed at the same time.
        login_queue: further passwords waiting; beyond that, 429.
        public_url: where people reach the gateway; links in mails begin with it.
        trusted_proxies: whose ``X-Forwarded-For`` is believed; a comma-separated list of addresses and networks.
        cors_origins: whose pages may call the API from a browser; a comma-separated list of origins, or ``*``.
        request_timeout_seconds: how long a request may take to arrive, and a connection may be idle.
        max_connections: connections at once; further ones get a 503.
        drain_seconds: how long a gateway that is told to end still takes requests, so that balancers turn away first.
        redis_url: where gateways on PostgreSQL share what they count, ``redis://…`` or ``rediss://…``; without it in the
            database alone.
        workers: processes that serve together on this machine.
        tls_cert: the file of a certificate, and of its issuers behind it; with it the gateway speaks https.
        tls_key: the file of the certificate's key.
        smtp_url: the mail server, ``smtp://USER:PASSWORD@HOST:PORT`` or ``smtps://…``; without it no mail is sent.
        mail_from: the sender of the gateway's mails.
        registration: who may register: anybody, the invited, or nobody.
        management_requests_per_minute: of each user.
        failed_authentications_per_minute: 401s of one address; further ones are 429s.
        upkeep_seconds: from one round of the upkeep to the next.
        test_log_bytes: how much of log entries each organization's test environment holds.
        prune_batch: how many rows the upkeep removes at once.
        webhooks_allow_private: whether webhooks may reach private networks and this machine, and by http.
        webhook_poll_seconds: how soon an event that another gateway wrote down is delivered at the latest.
        log_format: how lines on standard error are written: for people, or one JSON object each.
        log_level: from which level on.
        access_log: whether each request has a line.
        traces: whether requests are told to OpenTelemetry, by its own settings ``OTEL_*``.
        metrics_address: where figures for Prometheus are served, ``HOST:PORT``; without it they are not even counted.
        console: whether people find the console at ``/console``.
        console_hosts: further names by which browsers reach the console; a comma-separated list.
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
    approved_ttl_seconds: Annotated[int, Field(gt=0, le=MAX_SECONDS)] = 3600
    approval_reminder_seconds: Annotated[int, Field(gt=0, le=MAX_SECONDS)] = 3600
    approval_watch_seconds: Annotated[int, Field(gt=0, le=3600)] = 5
    denial_memory_seconds: Annotated[int, Field(ge=0, le=MAX_SECONDS)] = 300
    pending_per_agent: Annotated[int, Field(gt=0)] = 100
    denials_before_block: Annotated[int, Field(gt=0)] = 10
    denial_window_seconds: Annotated[int, Field(gt=0, le=MAX_SECONDS)] = 900
    denial_block_seconds: Annotated[int, Field(gt=0, le=MAX_SECONDS)] = 900
    provider_webhook_secret: SecretStr | None = None
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
    upkeep_seconds: Annotated[int, Field(gt=0, le=6 * 3600)] = 600
    test_log_bytes: Annotated[int, Field(gt=0, le=2**40)] = 50 * 1024 * 1024
    prune_batch: Annotated[int, Field(gt=0, le=10_000)] = 200
    webhooks_allow_private: bool = False
    webhook_poll_seconds: Annotated[float, Field(ge=0.05, le=3600)] = 1
    log_format: Literal["text", "json"] = "text"
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)] = "info"
    access_log: bool = False
    traces: bool = False
    metrics_address: Annotated[Address | None, NoDecode, BeforeValidator(_from_text(read_address))] = None
    console: bool = True
    console_hosts: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_from_text(read_hosts))] = ()
    _plans: Plans = PrivateAttr(default_factory=lambda: BUILT_IN)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # the signature is pydantic's
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # likewise; it passes over what it cannot read
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Say what goes before what."""
        return init_settings, env_settings, SettingsFolder(settings_cls)

    @field_validator("default_plan", mode="before")
    @classmethod
    def _known_plan(cls, value: object) -> object:
        return plan_name(str(value))

    @field_validator("secret", "secret_previous", "secret_next")
    @classmethod
    def _long_secret(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < MIN_SECRET:
            raise ValueError(f"too short; use at least {MIN_SECRET} random characters")
        return value

    @field_validator("provider_webhook_secret")
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
    def _can_send(cls, value: bool) -> bool:  # noqa: FBT001 - a validator's
        if value:
            try:
                import_module("toolgate_service.tracing.provider").demand_exporter()
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
        # Without the value: it may have a password in it.
        raise ValueError("no web address; write for instance https://toolgate.example.com")

    @model_validator(mode="after")
    def _whole_mail(self) -> Self:
        demand_all(self.smtp_url, self.mail_from, self.public_url)
        return self

    @model_validator(mode="after")
    def _both_for_tls(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            one, other = ("CERT", "KEY") if self.tls_key is None else ("KEY", "CERT")
            raise ValueError(
                f"TOOLGATE_TLS_{other}: is needed beside TOOLGATE_TLS_{one}; set both, or neither"
            )
        return self

    @model_validator(mode="after")
    def _metrics_of_each(self) -> Self:
        address = self.metrics_address
        if address is not None and address.port + self.workers - 1 > MAX_PORT:
            raise ValueError(
                f"TOOLGATE_METRICS_ADDRESS: each of {self.workers} workers has a port of its own, from {address.port} on, and "
                f"{MAX_PORT} is the last; choose a lower one"
            )
        return self

    @model_validator(mode="after")
    def _read_plans(self) -> Self:
        # Read once, here: a file that cannot be used is refused before anything is touched.
        if self.plans_file is not None:
            try:
                self._plans = read_plans(self.plans_file)
            except PlanFileError as error:
                raise ValueError(f"TOOLGATE_PLANS_FILE: {error}") from None
        return self

    @property
    def plans(self) -> Plans:
        """The plans, with what the operator's file overrides."""
        return self._plans

    def secret_bytes(self) -> bytes:
        """Return the secret, created in the user's configuration folder if none is set (decisions §9).

        Raises:
            StorageError: the file can be neither read nor created, or the database is no file and no secret is set.
        """
        if self.secret is not None:
            return self.secret.get_secret_value().encode()
        if not is_embedded(self.database_url):
            # Several gateways share a server, and must share the secret.
            raise StorageError(
                f"TOOLGATE_SECRET is not set; a gateway on PostgreSQL needs one of at least {MIN_SECRET} random characters"
            )
        return stored_secret(secret_path())

    def former_secrets(self) -> Sequence[bytes]:
        """Return the secrets that what was sealed before a rotation may still need.

        Raises:
            StorageError: the file of one cannot be read.
        """
        if self.secret_previous is not None:
            return (self.secret_previous.get_secret_value().encode(),)
        # A secret from the environment knows nothing of the file's.
        found = former_secret(secret_path()) if self.secret is None else None
        return () if found is None else (found,)

    def following_secrets(self) -> Sequence[bytes]:
        """Return the secret that gateways may have already that were restarted before this one."""
        return () if self.secret_next is None else (self.secret_next.get_secret_value().encode(),)


def load_settings(overrides: Mapping[str, str]) -> Settings:
    """Return the settings.

    Args:
        overrides: settings that go before the environment's, for instance ``default_plan``.

    Raises:
        StartError: one is wrong; the message names all that are.
    """
    try:
        return Settings(**overrides)  # type: ignore[arg-type]  # texts, validated by the model as the environment's are
    except ValidationError as error:
        raise StartError("; ".join(_told(problem) for problem in error.errors())) from None


def _told(problem: ErrorDetails) -> str:
    message = problem["msg"].removeprefix("Value error, ")
    # What concerns several settings names them itself.
    return f"TOOLGATE_{'_'.join(map(str, problem['loc'])).upper()}: {message}" if problem["loc"] else message
