"""Spans of requests, and trace headers of clients."""

import asyncio
import logging

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import get_current_span
from starlette.types import Message, Receive, Scope, Send

from toolgate_service.api.tracing import TracingMiddleware

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01".encode()


@pytest.mark.parametrize(
    ("parent", "state", "known"),
    [
        (PARENT, b"\x9b31mforged entry", True),
        (PARENT, b"a=1,a=2", True),
        (PARENT, b"a" * 60_000, True),
        (b"\x9b" * 60_000, b"a=1", False),
        (b"00-" + b"0" * 32 + PARENT[35:], b"a=1", False),
    ],
    ids=["escape", "twice", "long", "no-parent", "nought"],
)
def test_nonsense_about_a_trace_is_not_written_down(
    parent: bytes, state: bytes, known: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The response is the usual one, the span is in a valid trace of the client, and nothing is logged."""
    seen = list[str]()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        seen.append(f"{get_current_span().get_span_context().trace_id:032x}")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        assert scope["path"] == "/health"

    async def nobody() -> Message:
        raise AssertionError("nobody reads")

    sent = list[Message]()

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"traceparent", parent), (b"tracestate", state)]
    scope = {"type": "http", "method": "GET", "path": "/health", "headers": headers}
    traced = TracingMiddleware(answer, TracerProvider(shutdown_on_exit=False).get_tracer("test"))
    with caplog.at_level(logging.DEBUG):
        asyncio.run(traced(scope, nobody, send))
    assert [message["status"] for message in sent] == [200]
    assert (seen == [TRACE]) is known
    assert [one.getMessage() for one in caplog.records if one.name.startswith("opentelemetry")] == []
