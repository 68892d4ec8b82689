"""Counting requests, from around whoever answers them: what does not count is not even there."""

from collections.abc import Mapping
from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolgate_service.checks.endpoint import ALLOWED, OUTCOME
from toolgate_service.metrics.figures import Figures, route_of
from toolgate_service.web.at_once import Immediate, Written
from toolgate_service.web.watched import BEGAN, HUNG_UP, Tell, watched


class Counted:
    """The gateway, its requests counted.

    Args:
        inner: the gateway's application.
        figures: where.
    """

    def __init__(self, inner: ASGIApp, figures: Figures) -> None:
        self._inner = inner
        self._figures = figures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        began = scope.get(BEGAN) or perf_counter()
        answers = self._figures.answers[route_of(scope["path"])]
        status = 0

        async def sending(message: Message) -> None:
            nonlocal status
            # At its head: whoever follows news, or fetches an export, takes as long as they like for the rest.
            if message["type"] == "http.response.start":
                status = message["status"]
                answers.add(status, perf_counter() - began)
                if OUTCOME in scope:
                    self._figures.checks[scope[OUTCOME]] += 1
            await send(message)

        await self._inner(scope, receive, sending)
        if not status:
            answers.add(HUNG_UP, perf_counter() - began)


def counted_at_once(quick: Mapping[bytes, Immediate], figures: Figures) -> Mapping[bytes, Immediate]:
    """Return who answers at once, their answers counted.

    Args:
        quick: who answers at once, by path.
        figures: where.
    """
    return watched(quick, lambda path: _counting(path, figures))


def _counting(path: str, figures: Figures) -> Tell:
    answers, checks = figures.answers[route_of(path)], figures.checks
    is_check = route_of(path) == "check"

    def count(answer: Written, began: float) -> None:
        answers.add(answer[0], perf_counter() - began)
        if is_check:
            # Only what is plainly allowed or blocked is answered at once.
            checks["allowed" if answer[1].endswith(ALLOWED) else "blocked"] += 1

    return count
