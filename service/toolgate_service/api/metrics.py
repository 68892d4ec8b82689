"""Prometheus metrics at `GET /metrics`.

A middleware counts the requests. The state of the gateway is read when Prometheus requests the metrics.

This module needs the optional dependency `prometheus-client`, and is imported only if `TOOLGATE_METRICS_ADDRESS` is
set.
"""

import asyncio
import platform
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from time import perf_counter
from typing import NamedTuple, TypeAlias

from prometheus_client import Counter, make_asgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import bindparam, text
from sqlmodel.ext.asyncio.session import AsyncSession
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolgate_service.api.middleware import CLIENT_CLOSED_REQUEST, ROUTE_GROUPS, route_group
from toolgate_service.checks.headers import OUTCOME
from toolgate_service.core.metrics import Metrics
from toolgate_service.core.settings import is_embedded
from toolgate_service.db.database import Database, now
from toolgate_service.db.models import Timestamp
from toolgate_service.db.retry import RETRIES
from toolgate_service.gateway import Gateway
from toolgate_service.http.responses import ErrorReply

PATH = "/metrics"
#: maximum number of rows that a metrics query counts, so that the query stays fast in a large database
MAX_COUNTED = 10_000
#: Timeout in seconds for the metrics queries. After the timeout, the response omits the metrics that they compute.
DATABASE_TIMEOUT = 2.0

_OK = 200
_STARTED = time.monotonic()

Values: TypeAlias = Mapping[tuple[str, ...], float]


class MetricsMiddleware:
    """Middleware that counts requests and checks, and measures the time until a response starts."""

    def __init__(self, inner: ASGIApp, metrics: Metrics) -> None:
        self._inner = inner
        self._checks = _CachedCounter(metrics.checks)
        self._requests = _CachedCounter(metrics.requests)
        self._durations = {route: metrics.request_durations.labels(route) for route in ROUTE_GROUPS}
        for route in ROUTE_GROUPS:
            self._requests.child(route, _OK)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        began = perf_counter()
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            # Measure until the response starts, not until it ends: the client determines how long a stream or export
            # takes.
            if message["type"] == "http.response.start":
                started = True
                self._count(scope, message["status"], perf_counter() - began)
            await send(message)

        await self._inner(scope, receive, sending)
        if not started:
            self._count(scope, CLIENT_CLOSED_REQUEST, perf_counter() - began)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = route_group(scope["path"])
        self._requests.child(route, status).inc()
        self._durations[route].observe(seconds)
        if OUTCOME in scope:
            self._checks.child(scope[OUTCOME], status).inc()
        elif route == "check" and status != _OK:
            self._checks.child("refused", status).inc()


class _CachedCounter:
    """Cache of a Prometheus counter's children by label values.

    Without the cache, each request would call `Counter.labels`, which takes longer than the increment itself.
    """

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._children: dict[tuple[str, int], Counter] = {}

    def child(self, label: str, status: int) -> Counter:
        """Return the child counter for these values of the two labels."""
        child = self._children.get((label, status))
        if child is None:
            child = self._children[label, status] = self._counter.labels(label, str(status))
        return child


class MetricsApp:
    """ASGI application that serves `GET /metrics` and nothing else."""

    def __init__(self, gateway: Gateway, metrics: Metrics) -> None:
        self._gateway = gateway
        self._state = GatewayCollector(gateway, metrics)
        metrics.registry.register(self._state)
        self._exposition = make_asgi_app(metrics.registry)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["path"] != PATH:
            await ErrorReply("Not Found", 404)(scope, receive, send)
        elif scope["method"] not in {"GET", "HEAD"}:
            await ErrorReply("Method Not Allowed", 405, {"Allow": "GET, HEAD"})(scope, receive, send)
        else:
            readiness = self._gateway.readiness
            ready = not readiness.is_shutting_down and await readiness.problem() is None
            self._state.refresh(ready=ready, backlog=await read_backlog(self._gateway.database))
            await self._exposition(scope, receive, send)


class GatewayCollector(Collector):
    """Prometheus collector that reads the current state of the gateway's components at each scrape."""

    def __init__(self, gateway: Gateway, metrics: Metrics) -> None:
        self._gateway = gateway
        self._metrics = metrics
        self._ready = False
        self._backlog: Backlog | None = None

    def refresh(self, *, ready: bool, backlog: "Backlog | None") -> None:
        """Store the values that can only be read asynchronously, because `collect` is synchronous.

        Args:
            ready: True if the gateway is ready.
            backlog: Pending work in the database. None if the database did not respond; `collect` then omits these
                metrics.
        """
        self._ready = ready
        self._backlog = backlog

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics of the gateway's current state."""
        yield from self._process()
        yield from self._deliveries()
        if self._backlog is not None:
            yield from self._database_rows(self._backlog)
        yield from self._connections()

    def _process(self) -> Iterator[Metric]:
        gateway = self._gateway
        database = "sqlite" if is_embedded(gateway.settings.database_url) else "postgresql"
        build = {"version": version("toolgate"), "python": platform.python_version(), "database": database}
        yield _gauge(
            "toolgate_build_info",
            "Always 1; the labels contain the versions of Toolgate and Python, and the kind of database",
            {tuple(build.values()): 1},
            tuple(build),
        )
        yield _gauge(
            "toolgate_ready",
            ("1 if the gateway is ready, as GET /health/ready reports, otherwise 0"),
            self._ready,
        )
        connections = sum(1 for _ in self._metrics.connections)
        yield _gauge("toolgate_connections_open", "Open client connections", connections)
        yield _gauge(
            "toolgate_long_polls_waiting",
            "HTTP requests that wait for the decision about an approval request",
            gateway.notifier.watched,
        )
        yield _gauge(
            "toolgate_log_entries_waiting", "Log entries that wait to be stored", gateway.log_writer.waiting
        )
        decisions = gateway.decisions
        yield _gauge(
            "toolgate_decisions_waiting", "Decision records that wait to be stored", decisions.waiting
        )
        yield _counter(
            "toolgate_decisions_written",
            "Decision records that were stored after the response",
            {(): decisions.written},
            (),
        )
        yield _counter(
            "toolgate_decisions_dropped",
            "Decision records that were lost, because the queue was full or the database failed",
            {(): decisions.dropped},
            (),
        )
        yield _counter(
            "toolgate_shadow_checks_dropped",
            "Checks that were not compared with a shadow policy, because of an error or because too many "
            "checks waited",
            {(): self._gateway.shadow.dropped + decisions.observer_errors},
            (),
        )

    def _deliveries(self) -> Iterator[Metric]:
        attempts: Values = {(result,): n for result, n in self._gateway.webhooks.attempts.items()}
        yield _counter(
            "toolgate_webhook_attempts", "Attempts to deliver an event to a webhook", attempts, ("result",)
        )
        mail = self._gateway.mail
        if mail is not None:
            ended: Values = {(result,): n for result, n in mail.results.items()}
            yield _counter(
                "toolgate_mails",
                "E-mails by result: sent, or not sent after all attempts",
                ended,
                ("result",),
            )
            yield _gauge("toolgate_mails_waiting", "E-mails that wait to be sent", mail.pending)

    def _database_rows(self, backlog: "Backlog") -> Iterator[Metric]:
        yield _gauge(
            "toolgate_webhook_deliveries_pending",
            ("Webhook deliveries that are neither delivered nor failed"),
            backlog.deliveries,
        )
        yield _gauge(
            "toolgate_webhook_lag_seconds",
            "Seconds since the oldest pending webhook delivery was due",
            backlog.lag,
        )
        yield _gauge("toolgate_approvals_pending", "Approval requests that are pending", backlog.approvals)
        yield _gauge(
            "toolgate_maintenance_age_seconds",
            "Seconds since a gateway last began a maintenance round, or since this gateway started",
            backlog.maintenance,
        )

    def _connections(self) -> Iterator[Metric]:
        gateway = self._gateway
        pools = gateway.connection_usage()
        states: dict[tuple[str, ...], float] = {}
        for pool, usage in pools.items():
            states |= {(pool, "busy"): usage.busy, (pool, "idle"): usage.idle}
            if usage.waiting is not None:
                states[pool, "waiting"] = usage.waiting
        yield _gauge(
            "toolgate_database_connections",
            "Database connections that are busy or idle, and tasks that wait for one",
            states,
            ("pool", "state"),
        )
        yield _counter(
            "toolgate_transactions_retried",
            "Transactions that were repeated after a conflict with another transaction",
            {(): RETRIES["retried"]},
            (),
        )
        listener = gateway.listener
        yield _gauge(
            "toolgate_notifications_lost",
            "1 if this gateway does not receive PostgreSQL notifications (LISTEN) from other gateways",
            listener is not None and not listener.is_connected,
        )
        yield _gauge(
            "toolgate_redis_unavailable",
            "1 if Redis is configured but unavailable, so that the gateway counts requests in the database",
            gateway.rate_limiter.is_degraded,
        )
        yield _gauge(
            "toolgate_transparency_logs_unsealed",
            "Transparency logs to which the gateway currently cannot append leaves",
            len(gateway.sealer.problems),
        )


def _counter(name: str, description: str, values: Values, labels: tuple[str, ...]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, description, labels=labels)
    for label_values, value in values.items():
        family.add_metric(label_values, value)
    return family


def _gauge(
    name: str, description: str, values: Values | float, labels: tuple[str, ...] = ()
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, description, labels=labels)
    for label_values, value in (values if isinstance(values, Mapping) else {(): values}).items():
        family.add_metric(label_values, value)
    return family


class Backlog(NamedTuple):
    """Amount of pending work in the database, for all organizations together.

    Attributes:
        deliveries: Number of pending webhook deliveries, including those that wait for a retry; at most `MAX_COUNTED`.
        lag: Seconds since the oldest pending delivery became due; 0 if none is due.
        approvals: Number of pending approval requests; at most `MAX_COUNTED`.
        maintenance: Seconds since a gateway last started the maintenance job. If the job has never run, seconds since
            this process started.
    """

    deliveries: int
    lag: float
    approvals: int
    maintenance: float


# Lower bound for `next_attempt_at`, which excludes no row. Without a lower bound, SQLite would not use the index.
_BEGINNING = {"moment": datetime(1970, 1, 1, tzinfo=UTC)}
_MOMENT = bindparam("moment", type_=Timestamp)
_LIMIT = {"most": MAX_COUNTED}
_DELIVERIES = text(
    "SELECT count(*) FROM (SELECT 1 FROM deliveries WHERE status = 'pending' AND next_attempt_at > :moment "
    "LIMIT :most) AS found"
).bindparams(_MOMENT)
_OLDEST = (
    text(
        "SELECT next_attempt_at FROM deliveries WHERE status = 'pending' AND next_attempt_at > :moment "
        "ORDER BY next_attempt_at LIMIT 1"
    )
    .bindparams(_MOMENT)
    .columns(next_attempt_at=Timestamp)
)
# The inner query also selects approved requests, because SQLite uses the partial index, which contains pending and
# approved requests, only for exactly this condition. There are few approved requests: they expire after an hour if no
# call uses them.
_APPROVALS = text(
    "SELECT count(*) FROM (SELECT status FROM approvals WHERE status IN ('pending', 'approved') "
    "AND expires_at > :moment LIMIT :most) AS found WHERE status = 'pending'"
).bindparams(_MOMENT)
_MAINTENANCE = text("SELECT beaten_at FROM heartbeats WHERE job = 'upkeep'").columns(beaten_at=Timestamp)


async def read_backlog(database: Database) -> Backlog | None:
    """Return the amount of pending work in the database; None if a query fails or exceeds `DATABASE_TIMEOUT`."""
    try:
        async with asyncio.timeout(DATABASE_TIMEOUT), database.reading() as session:
            return await _read_backlog(session)
    except Exception:  # noqa: BLE001 - `/health/ready` reports the cause
        return None


async def _read_backlog(session: AsyncSession) -> Backlog:
    connection = await session.connection()
    deliveries = (await connection.execute(_DELIVERIES, _BEGINNING | _LIMIT)).scalar_one()
    oldest = (await connection.execute(_OLDEST, _BEGINNING)).scalar_one_or_none()
    approvals = (await connection.execute(_APPROVALS, {"moment": now(session)} | _LIMIT)).scalar_one()
    lag = 0.0 if oldest is None else max(0.0, (now(session) - oldest).total_seconds())
    started = (await connection.execute(_MAINTENANCE)).scalar_one_or_none()
    since_start = time.monotonic() - _STARTED
    age = since_start if started is None else max(0.0, (now(session) - started).total_seconds())
    return Backlog(deliveries, lag, approvals, age)
