"""Default guard, which the module-level `guarded`, `action`, `resume` and `flush` use.

`configure` sets it; without `configure`, the first call creates it from environment variables.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from toolgate._decorator import Guardable, decorate
from toolgate._telemetry import report_setup_error
from toolgate.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike
    from ssl import SSLContext

    from toolgate._action import Action
    from toolgate._call import OnHold
    from toolgate._capture.rules import AmountFrom, ContextFrom
    from toolgate._guard import Guard
    from toolgate._http.network import ClientCert
    from toolgate._identity import Resume
    from toolgate._state import GuardState

__all__ = ["action", "configure", "default_guard", "flush", "guarded", "replace_default", "resume"]

_lock = threading.Lock()
_default: Guard | None = None


def configure(
    url: str | None = None,
    api_key: str | None = None,
    agent_id: str | None = None,
    *,
    timeout: float | None = None,
    allow_insecure: bool = False,
    ca: str | PathLike[str] | SSLContext | None = None,
    client_cert: ClientCert | None = None,
    proxy: str | None = None,
    transport: object | None = None,
    outbox: str | PathLike[str] | None = None,
) -> None:
    """Create or replace the default guard. Functions that were decorated before this call use the new guard too.

    For the arguments, see `Guard`. A call that is in progress continues with the previous guard.

        toolgate.configure("https://gateway.example.com", agent_id="billing-bot")

    Raises:
        ConfigurationError: If a setting is missing or wrong; the previous default guard is kept.
    """
    global _default
    from toolgate._guard import Guard

    guard = Guard(
        url,
        api_key,
        agent_id,
        timeout=timeout,
        allow_insecure=allow_insecure,
        ca=ca,
        client_cert=client_cert,
        proxy=proxy,
        transport=transport,
        outbox=outbox,
    )
    with _lock:
        replaced, _default = _default, guard
    if replaced is not None:
        # The replaced guard is not closed, because other threads may be using it. Its connections are closed when it is
        # garbage-collected.
        replaced.flush(replaced._guard_state.settings.timeout)  # noqa: SLF001 - internal to this package


def guarded(
    action: str,
    *,
    on_hold: OnHold = "raise",
    hold_timeout: float | None = None,
    include: Iterable[str] | None = None,
    exclude: Iterable[str] = (),
    redact: Iterable[str | re.Pattern[str]] = (),
    ignore: Iterable[str] = (),
    amount: AmountFrom | None = None,
    context: ContextFrom | None = None,
    agent_id: str | None = None,
    fail_open: bool = False,
    unbound: Iterable[str] = (),
) -> Callable[[Guardable], Guardable]:
    """Return a decorator that guards functions with the default guard. For the options, see `Guard.guarded`.

        @guarded("stripe.refund")
        def refund(charge_id: str, amount: float) -> str: ...

    The default guard is set by `configure`; otherwise the first call creates it from the `TOOLGATE_*` variables.

    Raises:
        ConfigurationError: If an option is wrong or the function cannot be guarded.
    """
    return decorate(
        _find_state,
        action,
        on_hold=on_hold,
        hold_timeout=hold_timeout,
        include=include,
        exclude=exclude,
        redact=redact,
        ignore=ignore,
        unbound=unbound,
        amount=amount,
        context=context,
        agent_id=agent_id,
        fail_open=fail_open,
    )


def action(
    action: str,
    context: Mapping[str, object] | None = None,
    *,
    on_hold: OnHold = "raise",
    hold_timeout: float | None = None,
    include: Iterable[str] | None = None,
    exclude: Iterable[str] = (),
    redact: Iterable[str | re.Pattern[str]] = (),
    amount: AmountFrom | None = None,
    agent_id: str | None = None,
    fail_open: bool = False,
    edits: bool = False,
) -> Action:
    """Return a guarded block that uses the default guard. For the arguments, see `Guard.action`.

    Raises:
        ConfigurationError: If an option is wrong.
    """
    from toolgate._action import make_action

    return make_action(
        _find_state,
        action,
        context,
        on_hold=on_hold,
        hold_timeout=hold_timeout,
        include=include,
        exclude=exclude,
        redact=redact,
        amount=amount,
        agent_id=agent_id,
        fail_open=fail_open,
        edits=edits,
    )


def resume(approval_id: str) -> Resume:
    """Return a context manager: the first call in its block continues an approval request; see `Guard.resume`.

    Raises:
        ConfigurationError: If the id is not valid.
    """
    from toolgate._identity import Resume

    return Resume(approval_id, _is_default)


def flush(timeout: float = 5.0) -> bool:
    """Wait up to `timeout` seconds until the queued log entries of the default guard are sent; see `Guard.flush`."""
    guard = _default
    return True if guard is None else guard.flush(timeout)


def default_guard() -> Guard:
    """Return the default guard. If it does not exist yet, create it from environment variables.

    Raises:
        ConfigurationError: If a setting is missing or wrong.
    """
    global _default  # noqa: PLW0603 - the one default guard of the process
    with _lock:
        if _default is None:
            from toolgate._guard import Guard

            try:
                _default = Guard()
            except ConfigurationError as error:
                # An agent framework may catch this exception. The report makes the pytest plugin fail the test even
                # then.
                report_setup_error(error)
                raise
        return _default


@contextmanager
def replace_default(guard: Guard) -> Iterator[None]:
    """Make `guard` the default guard of the whole process inside a `with` block; for tests."""
    global _default  # noqa: PLW0603 - the one default guard of the process
    with _lock:
        before, _default = _default, guard
    try:
        yield
    finally:
        with _lock:
            _default = before


def _is_default(state: GuardState) -> bool:
    guard = _default
    return guard is not None and guard._guard_state is state  # noqa: SLF001 - the attribute is internal to this package


def _find_state() -> GuardState:
    return default_guard()._guard_state  # noqa: SLF001 - the attribute is internal to this package
