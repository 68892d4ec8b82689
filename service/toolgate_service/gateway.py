"""Container of the objects that all requests of one gateway process share."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from toolgate_service.auth_store import AuthStore
from toolgate_service.billing.events import ProviderSignature
from toolgate_service.budgets.repository import BudgetCache
from toolgate_service.budgets.service import refuse_unknown_zones
from toolgate_service.checks.checker import Checker
from toolgate_service.context import AppContext
from toolgate_service.core.concurrency import BodyParser
from toolgate_service.core.settings import Settings
from toolgate_service.db.database import Database, Usage
from toolgate_service.db.health import Readiness
from toolgate_service.db.pubsub import NotificationHandler
from toolgate_service.db.sqlite import SqliteDatabase
from toolgate_service.decisions.recorder import DecisionRecorder, DecisionStore
from toolgate_service.jobs.scheduler import Scheduler
from toolgate_service.logs.writer import LogStore, LogWriter
from toolgate_service.maintenance import frequent_jobs, maintenance_jobs
from toolgate_service.organizations.ip_allowlist import AllowlistAlerts
from toolgate_service.outbound.sender import Sender
from toolgate_service.policies.shadow import ShadowObserver
from toolgate_service.rate_limit.auth_failures import AuthFailures
from toolgate_service.rate_limit.limiter import RateLimiter
from toolgate_service.rules.repository import RuleCache
from toolgate_service.rules.service import refuse_missing_library
from toolgate_service.secret_check import refuse_other_secret
from toolgate_service.slack.client import Replies
from toolgate_service.slack.messages import slack_message
from toolgate_service.transparency.sealer import Sealer
from toolgate_service.webhooks.events import configure
from toolgate_service.webhooks.worker import Worker

if TYPE_CHECKING:
    from toolgate_service.core.metrics import Metrics


class Gateway(AppContext):
    """Dependencies of the services, plus rate limiter, log writer, readiness check, background jobs and notifications.

    Raises:
        StorageError: The database URL or the secret is invalid.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        secret = settings.stripe_webhook_secret
        self.provider_signature = ProviderSignature(secret.get_secret_value()) if secret else None
        self.parser = BodyParser()
        self.auth_failures = AuthFailures(settings.failed_authentications_per_minute)
        self.allowlist_alerts = AllowlistAlerts(self.database)
        self.rate_limiter, self.auth_store, self.log_store, decision_store = _open_stores(
            self.database, settings
        )
        self.metrics = _open_metrics(settings)
        self.rules = RuleCache(self.database)
        self.budgets = BudgetCache(self.database)
        self.log_writer = LogWriter(self.log_store, self.metrics)
        self.shadow = ShadowObserver(self.database)
        self.decisions = DecisionRecorder(
            decision_store, self.metrics, self.shadow, stores_contexts=settings.decision_context_days > 0
        )
        self.checker = Checker(
            self.database, settings, self.auth_store, self.rules, self.budgets, self.decisions
        )
        self.sealer = Sealer.of(self.database, settings, self.vault, _checkpoint_file(self.database))
        self.readiness = Readiness(self.database)
        jobs = maintenance_jobs(self.database, settings, self.plans)
        self.maintenance = Scheduler(
            self.database, settings.maintenance_interval_seconds, jobs, self.readiness.problem
        )
        self.frequent_jobs = Scheduler(
            self.database,
            settings.approval_watch_seconds,
            frequent_jobs(self.database, settings),
            self.readiness.problem,
            exclusive=False,
        )
        sender = Sender(allow_private=settings.webhooks_allow_private)
        self.webhooks = Worker(
            self.database, self.vault, sender, settings.webhook_poll_seconds, slack_message
        )
        self.slack = Replies(sender, allow_private=settings.webhooks_allow_private)
        configure(self.database, self.plans, self.webhooks.wake)
        notifications = NotificationHandler(self.notifier, self.webhooks.wake_later)
        self.listener = self.database.listener(notifications.on_notify, notifications.on_connection_change)
        self.stalled_sessions = self.database.stalled_sessions()

    async def start(self) -> None:
        """Open and migrate the database, and start the background jobs.

        Raises:
            StorageError: The database cannot be used; the secret does not decrypt the stored values; a rule has a
                condition, but the library that evaluates conditions is not installed; or the time zone of a budget is
                unknown.
        """
        await self.database.start(migrate=self.settings.migrate == "auto")
        await refuse_other_secret(self.database, self.settings, self.vault)
        await refuse_missing_library(self.database)
        await refuse_unknown_zones(self.database)
        await self.auth_store.open()
        await self.rate_limiter.open()
        await self.log_writer.start()
        self.sealer.start()
        self.maintenance.start()
        self.frequent_jobs.start()
        self.webhooks.start()
        if self.listener is not None:
            self.listener.start()
        if self.stalled_sessions is not None:
            self.stalled_sessions.start()

    def begin_shutdown(self) -> None:
        """Report the gateway as not ready, and end long polls. Everything else continues until `stop`."""
        self.readiness.is_shutting_down = True
        self.notifier.close()

    async def stop(self) -> None:
        """Stop the background jobs, write the waiting log entries and decisions, and close all connections."""
        if self.listener is not None:
            await self.listener.stop()
        if self.stalled_sessions is not None:
            await self.stalled_sessions.stop()
        # Stop the replies to Slack before the webhook worker, because they use the worker's HTTP connections.
        await self.slack.stop()
        await self.webhooks.stop()
        await self.maintenance.stop()
        await self.frequent_jobs.stop()
        await self.readiness.stop()
        if self.mail is not None:
            await self.mail.close()
        # Stop the recorder of decisions before the log writer, because the recorder uses the connections of the log
        # store.
        await self.decisions.stop()
        await self.shadow.stop()
        await self.log_writer.stop()
        await self.sealer.stop()
        await self.rate_limiter.close()
        await self.auth_store.close()
        await self.database.close()
        self.passwords.close()
        self.parser.close()

    def connection_usage(self) -> Mapping[str, Usage]:
        """Return the numbers of busy and idle database connections, by the name of their pool."""
        found = {
            "requests": self.auth_store.usage(),
            "windows": self.rate_limiter.usage(),
            "entries": self.log_store.usage(),
        }
        return {
            **self.database.usage(),
            **{name: usage for name, usage in found.items() if usage is not None},
        }


def _checkpoint_file(database: Database) -> Path | None:
    """Return the default of the setting `checkpoint_file`: a file beside the SQLite database; None for PostgreSQL."""
    if isinstance(database, SqliteDatabase):
        return database.path.with_name(f"{database.path.name}-checkpoints")
    return None


def _open_stores(
    database: Database, settings: Settings
) -> tuple[RateLimiter, AuthStore, LogStore, DecisionStore]:
    """Create the rate limiter, auth store, log store and decision store for a database. They are not connected yet."""
    plans = settings.plans
    if isinstance(database, SqliteDatabase):
        from toolgate_service.auth_store.sqlite import SqliteAuthStore
        from toolgate_service.decisions.store_sqlite import SqliteDecisionStore
        from toolgate_service.logs.store_sqlite import SqliteLogStore
        from toolgate_service.rate_limit.limiter import MemoryRateLimiter
        from toolgate_service.rate_limit.sqlite import SqliteRateLimiter

        local = SqliteRateLimiter(database) if settings.workers > 1 else MemoryRateLimiter()
        log = SqliteLogStore(database)
        return local, SqliteAuthStore(database, local, plans), log, SqliteDecisionStore(log)
    from toolgate_service.auth_store.postgres import PostgresAuthStore
    from toolgate_service.db.postgres import PostgresDatabase
    from toolgate_service.decisions.store_postgres import PostgresDecisionStore
    from toolgate_service.logs.store_postgres import PostgresLogStore
    from toolgate_service.rate_limit.postgres import PostgresRateLimiter

    if not isinstance(database, PostgresDatabase):
        raise TypeError(f"the gateway does not support databases of the type {type(database).__name__}")
    counted, log_store = PostgresRateLimiter(database), PostgresLogStore(database)
    decisions = PostgresDecisionStore(log_store)
    if settings.redis_url is None:
        # The auth store itself counts each request with an API key, in the statement that reads the key. The rate
        # limiter counts only the requests of users.
        return counted, PostgresAuthStore(database, plans), log_store, decisions
    from toolgate_service.rate_limit.redis import RedisRateLimiter

    shared = RedisRateLimiter(settings.redis_url.get_secret_value(), counted)
    return shared, PostgresAuthStore(database, plans, shared), log_store, decisions


def _open_metrics(settings: Settings) -> "Metrics | None":
    if settings.metrics_address is None:
        return None
    # Import the module only if metrics are enabled, because it requires the optional dependency `prometheus-client`.
    from toolgate_service.core.metrics import Metrics

    return Metrics()
