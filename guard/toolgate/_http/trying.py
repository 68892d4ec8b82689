"""One request with all its attempts: what came of them, and what the circuit breaker learns."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from toolgate._capture.redaction import scrub
from toolgate._http.breaker import Breaker, Open
from toolgate._http.faults import from_a_proxy, reached_behind
from toolgate._http.messages import Answer, Clock, TransportFault
from toolgate._http.retries import Transient
from toolgate.errors import GatewayUnavailable

__all__ = ["Trying"]


class Trying:
    """One request's attempts, in a `with` block.

    Args:
        url: The gateway, as it stands in messages.
        breaker: Learns what comes back.
        clock: Monotonic seconds.
        seconds: The deadline of all attempts.
        gated: Whether the request is refused while no gateway answers, and tells when none does. What waits
            for a person is neither: it outlives a gateway that is away.
        full: Whether the deadline is long enough to learn something from silence.

    Raises:
        GatewayUnavailable: On entering, if nothing is sent now.
    """

    def __init__(
        self, url: str, breaker: Breaker, clock: Clock, seconds: float, *, gated: bool, full: bool
    ) -> None:
        self._url = url
        self._breaker = breaker
        self._clock = clock
        self._seconds = seconds
        self._gated = gated
        self._full = full
        self._probe = False
        self._settled = False
        self._answered = self._reached = False
        self._began = self._attempt_began = clock()
        self._longest = 0.0
        self._why = self._stranger = ""

    def __enter__(self) -> Self:
        if self._gated:
            try:
                self._probe = self._breaker.admit(self._seconds)
            except Open as closed:
                raise self._unavailable(str(closed), answered=False, reached=closed.reached) from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._probe and not self._settled:
            self._breaker.abandoned()

    def begins(self) -> None:
        """An attempt begins."""
        self._attempt_began = self._clock()

    def heard(self, answer: Answer) -> Answer:
        """An attempt was answered; returns the answer."""
        self._why = f"a proxy answers {answer.status}"
        self._reached = self._reached or reached_behind(answer.status, answer.headers)
        self._ended(answered=not from_a_proxy(answer.status, answer.headers))
        return answer

    def failed(self, error: TransportFault) -> Transient:
        """An attempt was not answered, or not to the end; returns what to raise."""
        if error.unsent:
            # No turn among this process's own requests. If none of those was answered either, none would have been.
            self._answered = self._answered or self._breaker.heard_since(self._began)
            # Those that took the turns may be with a gateway that is overloaded.
            self._reached = self._reached or not self._breaker.is_unreachable
            self._ended(answered=False)
        else:
            self._reached = self._reached or error.reached
            self._ended(answered=error.answered)
        # In the words of a transport or a proxy, which may hold a password; logs, errors and entries repeat it.
        self._why = scrub(str(error), ())
        if error.answered and not error.unsent:
            self._stranger = self._why
        # Whoever answered says more than the last attempt, whose time is often a moment only.
        what = self._stranger or self._why
        return Transient(self._unavailable(what, answered=self._answered, reached=self._reached))

    def is_last(self) -> bool:
        """Whether no further attempt is made, whatever time is left."""
        return self._gated and not self._answered and self._breaker.is_open

    def given_up(self, error: Transient) -> GatewayUnavailable:
        """What to raise when nothing is tried any more: what one of the attempts reached was reached."""
        error.fault.answered, error.fault.reached = self._answered, self._reached
        if self._gated and self._full and not self._answered:
            self._breaker.failed(
                self._began, self._longest, self._why, probe=self._probe, reached=self._reached
            )
            self._settled = True
        return error.fault

    def _ended(self, *, answered: bool) -> None:
        self._longest = max(self._longest, self._clock() - self._attempt_began)
        if answered:
            self._answered = self._settled = True
            self._breaker.answered()

    def _unavailable(self, what: str, *, answered: bool, reached: bool) -> GatewayUnavailable:
        message = f"no gateway answers at {self._url!r}: {what}"
        return GatewayUnavailable(message, answered=answered, reached=reached)
