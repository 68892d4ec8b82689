"""Which requests the calls of functions that are guarded themselves wait for, as far as this process asked."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from toolgate import ApprovalPending
from toolgate_integrations._naming import ToolCall

__all__ = ["HeldCalls"]


class HeldCalls:
    """The requests of held calls, by the framework's ids of the calls; the newest some thousand of them."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str | None, str], str] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def watching(self, call: ToolCall) -> Iterator[None]:
        """While a call is carried out: if it comes to wait, its request is remembered."""
        self.forget(call)
        try:
            yield
        except ApprovalPending as pending:
            if call.call_id is not None:
                with self._lock:
                    self._held[call.run_id, call.call_id] = pending.approval_id
                    if len(self._held) > _MOST:
                        self._held.popitem(last=False)
            raise

    def forget(self, call: ToolCall) -> str | None:
        """The request of a call, which is not remembered any longer; None if there is none."""
        with self._lock:
            return None if call.call_id is None else self._held.pop((call.run_id, call.call_id), None)


_MOST: Final = 4096
