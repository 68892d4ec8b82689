"""What is counted and timed, for OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterable

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from toolgate.observing import lost, waiting

__all__ = ["Meters"]


class Meters:
    """The instruments of one meter provider.

    Args:
        provider: Where they are read.

    Attributes:
        calls: Guarded calls, by outcome.
        checks: Checks, by outcome.
        check_duration: Seconds a check took, retries included.
        hold_duration: Seconds a call waited for a person.
    """

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter("toolgate")
        self.calls = meter.create_counter("toolgate.calls", "{call}", "Guarded calls by outcome")
        self.checks = meter.create_counter("toolgate.checks", "{check}", "Checks by outcome")
        self.check_duration = meter.create_histogram(
            "toolgate.check.duration", "s", "How long a check took, retries included"
        )
        self.hold_duration = meter.create_histogram(
            "toolgate.hold.duration", "s", "How long a call waited for a person"
        )
        meter.create_observable_gauge(
            "toolgate.outbox.entries", [_waiting], "{entry}", "Log entries the gateway has not acknowledged"
        )
        meter.create_observable_counter(
            "toolgate.entries.lost", [_lost], "{entry}", "Log entries that were given up"
        )


def _waiting(_: CallbackOptions) -> Iterable[Observation]:
    return [Observation(waiting())]


def _lost(_: CallbackOptions) -> Iterable[Observation]:
    return [Observation(lost())]
