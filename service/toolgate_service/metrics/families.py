"""The figures as Prometheus names them: made when somebody asks, of numbers that were counted in place."""

import platform
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import NamedTuple, TypeAlias

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from toolgate_service.gateway import Gateway
from toolgate_service.hotpath.stores import RedisCounted, usage_of
from toolgate_service.metrics.figures import Figures, Histogram
from toolgate_service.metrics.looks import Waiting, waiting
from toolgate_service.storage.database import is_embedded
from toolgate_service.storage.races import RETRIES

#: what Prometheus has read for ever
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SUCCESS = 200


#: figures by their labels' values
Labelled: TypeAlias = Mapping[tuple[str, ...], float]


class Seen(NamedTuple):
    """What was looked at for one answer.

    Attributes:
        ready: whether the gateway can work.
        waiting: what waits in the database; None if it did not say.
    """

    ready: bool
    waiting: Waiting | None


class Exposition:
    """Writes a gateway's figures.

    Args:
        gateway: whose.
        figures: what it has counted.
    """

    def __init__(self, gateway: Gateway, figures: Figures) -> None:
        self._gateway = gateway
        self._figures = figures
        # The process's own: memory, processor time, open files.
        self._of_process = CollectorRegistry()
        ProcessCollector(registry=self._of_process)
        GCCollector(registry=self._of_process)

    async def text(self) -> bytes:
        """Return the figures as they are now."""
        readiness = self._gateway.readiness
        ready = not readiness.leaving and await readiness.problem() is None
        seen = Seen(ready, await waiting(self._gateway.database))
        registry = CollectorRegistry()
        registry.register(_Families(self._gateway, self._figures, seen))
        return generate_latest(registry) + generate_latest(self._of_process)


class _Families(Collector):
    def __init__(self, gateway: Gateway, figures: Figures, seen: Seen) -> None:
        self._gateway = gateway
        self._figures = figures
        self._seen = seen

    def collect(self) -> Iterable[Metric]:
        """Return all of them."""
        yield from self._of_gateway()
        yield from self._of_requests()
        yield from self._of_log()
        yield from self._of_webhooks()
        yield from self._of_mail()
        yield from self._of_database()
        yield from self._of_sharing()

    def _of_gateway(self) -> Iterator[Metric]:
        database = "sqlite" if is_embedded(self._gateway.settings.database_url) else "postgresql"
        labels = {"version": version("toolgate"), "python": platform.python_version(), "database": database}
        yield _gauge(
            "toolgate_build_info", "What serves; always 1", {tuple(labels.values()): 1}, tuple(labels)
        )
        yield _gauge(
            "toolgate_ready", "Whether the gateway can work, as GET /health/ready says", self._seen.ready
        )
        connections = sum(1 for _ in self._figures.connections)
        yield _gauge("toolgate_connections_open", "Connections of clients", connections)
        yield _gauge(
            "toolgate_long_polls_waiting",
            "Requests that wait for a person's decision",
            self._gateway.hub.watched,
        )

    def _of_requests(self) -> Iterator[Metric]:
        answers = self._figures.answers
        yield _counter(
            "toolgate_requests",
            "Requests by what was answered",
            {(route, str(status)): n for route, one in answers.items() for status, n in one.statuses.items()},
            ("route", "status"),
        )
        durations = HistogramMetricFamily(
            "toolgate_request_duration_seconds", "From a request to the head of its answer", labels=["route"]
        )
        for route, one in answers.items():
            durations.add_metric([route], one.durations.cumulated(), one.durations.total)
        yield durations
        checks: dict[tuple[str, ...], float] = {
            (outcome, str(_SUCCESS)): n for outcome, n in self._figures.checks.items()
        }
        refused = {status: n for status, n in answers["check"].statuses.items() if status != _SUCCESS}
        checks |= {("refused", str(status)): n for status, n in refused.items()}
        yield _counter("toolgate_checks", "Checks by their outcome", checks, ("outcome", "status"))

    def _of_log(self) -> Iterator[Metric]:
        figures = self._figures
        entries: Labelled = {(outcome,): n for outcome, n in figures.entries.items()}
        yield _counter("toolgate_log_entries", "Log entries by what became of them", entries, ("outcome",))
        yield _histogram("toolgate_log_batch_entries", "Log entries committed together", figures.batches)
        yield _histogram("toolgate_log_commit_duration_seconds", "How long a commit took", figures.commits)
        yield _gauge(
            "toolgate_log_entries_waiting",
            "Log entries that wait to be written",
            self._gateway.log_writer.waiting,
        )

    def _of_webhooks(self) -> Iterator[Metric]:
        attempts: Labelled = {(result,): n for result, n in self._gateway.webhooks.attempts.items()}
        yield _counter("toolgate_webhook_attempts", "Attempts to deliver an event", attempts, ("result",))
        waits = self._seen.waiting
        if waits is None:
            return
        yield _gauge(
            "toolgate_webhook_deliveries_pending", "Deliveries that have not ended", waits.deliveries
        )
        yield _gauge("toolgate_webhook_lag_seconds", "Since when the oldest delivery has been due", waits.lag)
        yield _gauge("toolgate_approvals_pending", "Requests that wait for a person", waits.approvals)
        yield _gauge(
            "toolgate_maintenance_age_seconds",
            "Since the last round of maintenance began at any gateway, or since the start",
            waits.maintenance,
        )

    def _of_mail(self) -> Iterator[Metric]:
        post = self._gateway.post
        if post is not None:
            ended: Labelled = {(result,): n for result, n in post.ended.items()}
            yield _counter("toolgate_mails", "Mails that have ended", ended, ("result",))
            yield _gauge("toolgate_mails_waiting", "Mails that are on their way", post.on_their_way)

    def _of_database(self) -> Iterator[Metric]:
        gateway = self._gateway
        pools = {**gateway.database.usage(), **usage_of(gateway.reader, gateway.rates, gateway.log_store)}
        states: dict[tuple[str, ...], float] = {}
        for pool, usage in pools.items():
            states |= {(pool, "busy"): usage.busy, (pool, "idle"): usage.idle}
            if usage.waiting is not None:
                states[pool, "waiting"] = usage.waiting
        yield _gauge(
            "toolgate_database_connections",
            "Connections to the database, and who waits for one",
            states,
            ("pool", "state"),
        )

    def _of_sharing(self) -> Iterator[Metric]:
        gateway = self._gateway
        yield _counter(
            "toolgate_transactions_retried",
            "Transactions that lost against another one and were repeated",
            {(): RETRIES["retried"]},
            (),
        )
        listener, rates = gateway.listener, gateway.rates
        yield _gauge(
            "toolgate_notifications_lost",
            "Whether changes made at other gateways are not heard through LISTEN",
            listener is not None and not listener.is_connected,
        )
        yield _gauge(
            "toolgate_redis_unavailable",
            "Whether Redis is configured and rates are counted in the database nevertheless",
            isinstance(rates, RedisCounted) and not rates.redis_in_use,
        )


def _counter(name: str, words: str, values: Labelled, labels: tuple[str, ...]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, words, labels=labels)
    for names, value in values.items():
        family.add_metric(names, value)
    return family


def _gauge(
    name: str, words: str, values: Labelled | float, labels: tuple[str, ...] = ()
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, words, labels=labels)
    for names, value in (values if isinstance(values, Mapping) else {(): values}).items():
        family.add_metric(names, value)
    return family


def _histogram(name: str, words: str, histogram: Histogram) -> HistogramMetricFamily:
    return HistogramMetricFamily(name, words, histogram.cumulated(), histogram.total)
