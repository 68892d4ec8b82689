"""Prometheus metrics of one gateway process.

`prometheus-client` is an optional dependency: this module is imported only if the setting `TOOLGATE_METRICS_ADDRESS`
has a value.
"""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, GCCollector, Histogram, ProcessCollector

#: upper bounds in seconds of the histogram buckets for durations, from the duration of a fast check to the maximum
#: duration of a long poll
DURATIONS = (
    50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0,
)  # fmt: skip
#: upper bounds of the histogram buckets for batch sizes, in log entries or decision records per batch
BATCHES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


class Metrics:
    """Counters and histograms of one gateway process, in their own Prometheus registry.

    Attributes:
        connections: Open client connections; empty until the HTTP server sets its own collection.
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        self.connections: Iterable[object] = ()
        self.requests = Counter(
            "toolgate_requests", "HTTP requests by route and status", ("route", "status"), registry=registry
        )
        self.request_durations = Histogram(
            "toolgate_request_duration_seconds",
            "Time from the start of a request until the headers of the response are sent",
            ("route",),
            buckets=DURATIONS,
            registry=registry,
        )
        self.checks = Counter(
            "toolgate_checks", "Checks by outcome and status", ("outcome", "status"), registry=registry
        )
        self.log_entries = Counter(
            "toolgate_log_entries", "Log entries by outcome", ("outcome",), registry=registry
        )
        self.log_batches = Histogram(
            "toolgate_log_batch_entries",
            "Number of log entries per commit",
            buckets=BATCHES,
            registry=registry,
        )
        self.log_commits = Histogram(
            "toolgate_log_commit_duration_seconds",
            "Duration of a commit, including the sync to disk",
            buckets=DURATIONS,
            registry=registry,
        )
        self.decision_batches = Histogram(
            "toolgate_decision_batch_records",
            "Number of decision records per commit",
            buckets=BATCHES,
            registry=registry,
        )
        self.decision_commits = Histogram(
            "toolgate_decision_commit_duration_seconds",
            "Duration of the commit of a batch of decision records, including the wait for the write lock",
            buckets=DURATIONS,
            registry=registry,
        )
        # Create each time series with the value 0, because the PromQL function `rate` misses the first event of a
        # series that starts at 1.
        for outcome in ("allowed", "blocked", "held"):
            self.checks.labels(outcome, "200")
        for outcome in ("stored", "replayed", "refused", "failed"):
            self.log_entries.labels(outcome)
