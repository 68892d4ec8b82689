"""The guard behind the module's own `guarded` and `action`: made at the first call, from the environment."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from toolgate.decorator import Guardable, decorate
from toolgate.errors import ConfigurationError
from toolgate.setup_errors import report_setup_error

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike
    from ssl import SSLContext

    from toolgate._capture.rules import AmountFrom, ContextFrom
    from toolgate._http.network import ClientCert
    from toolgate.block import Action
    from toolgate.calls import OnHold
    from toolgate.guard import Guard
    from toolgate.resuming import Resume
    from toolgate.runtime import Runtime

__all__ = ["action", "configure", "default_guard", "flush", "guarded", "resume"]

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
    """Set or replace the guard behind `guarded` and `action`, before or after functions are decorated.

    Calls under way finish with the guard they began with. The arguments are those of `Guard`.

    Raises:
        ConfigurationError: If a setting is missing or wrong; the guard in place stays.
    """
    global _default
    from toolgate.guard import Guard

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
        # Not closed: other threads may be using it. Its connections close when the last call lets go.
        replaced.flush(replaced._runtime.settings.timeout)  # noqa: SLF001 - the same object, one floor down


def guarded(
    action: str,
    *,
    on_hold: OnHold = "raise",
    hold_timeout: float | None = None,
    include: Iterable[str] | None = None,
    exclude: Iterable[str] = (),
    redact: Iterable[str | re.Pattern[str]] = (),
    unbound: Iterable[str] = (),
    amount: AmountFrom | None = None,
    context: ContextFrom | None = None,
    agent_id: str | None = None,
    fail_open: bool = False,
) -> Callable[[Guardable], Guardable]:
    """As `Guard.guarded`, with the default guard: `configure`'s, or one made from `TOOLGATE_*` at the first call.

    Raises:
        ConfigurationError: If an option is wrong or the function cannot be guarded.
    """
    return decorate(
        _runtime,
        action,
        on_hold=on_hold,
        hold_timeout=hold_timeout,
        include=include,
        exclude=exclude,
        redact=redact,
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
    """As `Guard.action`, with the default guard.

    Raises:
        ConfigurationError: If an option is wrong.
    """
    from toolgate._capture.rules import Rules
    from toolgate.block import Action
    from toolgate.options import make_options

    rules = Rules(include=include, exclude=exclude, redact=redact, amount=amount)
    options = make_options(
        action,
        rules,
        on_hold=on_hold,
        hold_timeout=hold_timeout,
        agent_id=agent_id,
        fail_open=fail_open,
        at_call=True,
    )
    return Action(_runtime, options, context, edits=edits)


def resume(approval_id: str) -> Resume:
    """As `Guard.resume`, for calls of the default guard.

    Raises:
        ConfigurationError: If the id can be none.
    """
    from toolgate.resuming import Resume

    return Resume(approval_id, _is_default)


def flush(timeout: float = 5.0) -> bool:
    """As `Guard.flush`, of the default guard; where none was used there is nothing to send."""
    guard = _default
    return True if guard is None else guard.flush(timeout)


def default_guard() -> Guard:
    """The guard behind `guarded` and `action`; made from the environment if there is none yet.

    Raises:
        ConfigurationError: If a setting is missing or wrong.
    """
    global _default  # noqa: PLW0603 - the one default guard of the process
    with _lock:
        if _default is None:
            from toolgate.guard import Guard

            try:
                _default = Guard()
            except ConfigurationError as error:
                # An agent framework may swallow it: a test that blocks the network must still fail.
                report_setup_error(error)
                raise
        return _default


@contextmanager
def default_is(guard: Guard) -> Iterator[None]:
    """Have `guarded`, `action` and `resume` use `guard` inside the block, in the whole process; for tests."""
    global _default  # noqa: PLW0603 - as below
    with _lock:
        before, _default = _default, guard
    try:
        yield
    finally:
        with _lock:
            _default = before


def _is_default(runtime: Runtime) -> bool:
    guard = _default
    return guard is not None and guard._runtime is runtime  # noqa: SLF001 - the same object, one floor down


def _runtime() -> Runtime:
    return default_guard()._runtime  # noqa: SLF001 - the same object, one floor down
