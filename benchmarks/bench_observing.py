"""Cost of telemetry for a guarded call: interleaved with calls without it in one process, medians of processor time.

The gateway is a function in this process, so that a microsecond would show.
"""

import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

import httpx
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider

from toolgate import Guard

ANSWER = {"allowed": True, "requires_approval": False, "reason": None, "approval_id": None}
ROUNDS = 60
CALLS = 50


def _answer(_: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json=ANSWER)


def _tool() -> int:
    return 1


@contextmanager
def _not_loaded() -> Iterator[None]:
    hidden = {name: sys.modules.pop(name) for name in ("opentelemetry.trace", "opentelemetry.metrics")}
    try:
        yield
    finally:
        sys.modules.update(hidden)


@contextmanager
def _no_provider() -> Iterator[None]:
    yield


@contextmanager
def _provider(traces: TracerProvider, meters: MeterProvider) -> Iterator[None]:
    with (
        patch.object(trace, "get_tracer_provider", lambda: traces),
        patch.object(metrics, "get_meter_provider", lambda: meters),
    ):
        yield


def _seconds(call: Callable[[], object]) -> float:
    began = time.thread_time()
    for _ in range(CALLS):
        call()
    return (time.thread_time() - began) / CALLS


def test_observing() -> None:
    """Print microseconds a call: not installed, no provider set, and with the SDK."""
    traces, meters = TracerProvider(), MeterProvider()
    ways: dict[str, Callable[[], AbstractContextManager[None]]] = {
        "not loaded": _not_loaded,
        "loaded, no provider": _no_provider,
        "with the SDK": lambda: _provider(traces, meters),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    transport = httpx.MockTransport(_answer)
    with Guard("http://127.0.0.1:9", "ak_" + "a" * 37, "agent", transport=transport) as guard:
        call = guard.guarded("math.add")(_tool)
        call()
        gc.disable()
        for _ in range(ROUNDS):
            for name, way in ways.items():
                with way():
                    found[name].append(_seconds(call))
            gc.collect()
        gc.enable()
    least = statistics.median(found["not loaded"])
    for name, seconds in found.items():
        median = statistics.median(seconds)
        print(f"\n{name:20} {median * 1e6:8.1f} us a call, {median / least:.3f} x", end="")
    print()
