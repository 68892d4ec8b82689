"""How long a held call goes on asking whether a person has decided. Asks nobody itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from toolgate.errors import GatewayUnavailable

__all__ = ["Patience"]

_LONGEST_POLL: Final = 30
_SHORTEST_ROUND: Final = 1.0
_LONGEST_OUTAGE: Final = 300.0


class Patience:
    """Says when to ask next.

    Args:
        hold_timeout: Seconds to wait in all; None waits as long as the gateway answers now and then.
        clock: Monotonic seconds.
    """

    def __init__(self, hold_timeout: float | None, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ends = None if hold_timeout is None else clock() + hold_timeout
        self._asked = clock()
        self._silent_since: float | None = None
        self._asked_last = False

    def next_poll(self) -> int | None:
        """Seconds the gateway may take for its next answer, or None when the time is up."""
        self._asked = self._clock()
        if self._ends is None:
            return _LONGEST_POLL
        left = self._ends - self._asked
        if left > 0:
            return int(min(_LONGEST_POLL, left))
        if self._asked_last or self._silent_since is not None:
            return None
        # A decision made during the last pause counts; a gateway that is away is not waited for again.
        self._asked_last = True
        return 0

    def heard(self) -> None:
        """The gateway answered: an outage, if there was one, is over."""
        self._silent_since = None

    def pause(self) -> float:
        """Seconds to pause after an answer that decided nothing."""
        self.heard()
        return self._rest()

    def pause_after(self, error: GatewayUnavailable) -> float:
        """Seconds to pause after no answer.

        Raises:
            GatewayUnavailable: `error`, if nothing limits the waiting and the outage lasts 300 s.
        """
        if self._silent_since is None:
            self._silent_since = self._asked
        if self._ends is None and self._clock() - self._silent_since >= _LONGEST_OUTAGE:
            raise error
        return self._rest()

    def _rest(self) -> float:
        # A gateway or proxy that does not hold the request back must not be asked without end.
        rest = _SHORTEST_ROUND - (self._clock() - self._asked)
        if self._ends is not None:
            rest = min(rest, self._ends - self._clock())
        return max(0.0, rest)
