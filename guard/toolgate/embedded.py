"""Gateway that runs in the agent's process. `Guard.embedded` creates the gateway, and `guard.gateway` returns it."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import os
import threading
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from http import HTTPStatus
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar, cast
from urllib.parse import quote, urlsplit

from toolgate._capture.jsontext import dumps, loads
from toolgate._http.exchange import InProcessGateway, Request, Response, TransportError
from toolgate._models import ApprovalRequest
from toolgate._options import Actions, read_permissions
from toolgate._settings import MEMORY
from toolgate.errors import ConfigurationError

if TYPE_CHECKING:
    from toolgate._guard import Guard
    from toolgate._state import GuardState

__all__ = ["EmbeddedGateway", "embedded_guard"]

_Guard = TypeVar("_Guard", bound="Guard")
#: HTTP status, headers with names in lower case, and body of a response.
_Answer: TypeAlias = tuple[int, dict[str, str], bytes]

_IN_MEMORY: Final = ":memory:"
_INSTALL: Final = "install it with: pip install 'toolgate[service]'"
# Deadline in seconds for `approve`, `deny` and `pending`. It is long, because a disk may be slow.
_DECISION_TIMEOUT: Final = 30.0
_PAGE_SIZE: Final = 100


class _Service(Protocol):
    """Interface of the running gateway, which the entry point `embedded` of the package `toolgate_service` returns.

    `request` sends a request of the agent, and `decide` sends a request of the approver. Both return a future;
    cancelling the future closes the connection. `close` stops the gateway and waits for its end; `end` stops it without
    waiting.
    """

    agent_id: str
    api_key: str

    def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> Future[_Answer]: ...

    def decide(self, method: str, target: str, body: bytes | None) -> Future[_Answer]: ...

    def end(self) -> None: ...

    def close(self) -> None: ...


class EmbeddedGateway(InProcessGateway):
    """The gateway of a guard that `Guard.embedded` created, with methods to approve and reject requests.

    This gateway is not a security boundary: all code in the process can call `approve`.
    """

    def __init__(self, service: _Service) -> None:
        self._service = service
        self._pid = os.getpid()
        self._closed = False

    def pending(self) -> list[ApprovalRequest]:
        """Return the pending approval requests, the oldest first.

        Raises:
            ConfigurationError: If the gateway is closed.
        """
        found: list[ApprovalRequest] = []
        while True:
            page: Any = self._call_api(
                "GET", f"/api/approvals?status=pending&limit={_PAGE_SIZE}&offset={len(found)}"
            )
            found += [
                ApprovalRequest(one["id"], one["action"], one["agent_id"], one["context"], one["reason"])
                for one in page
            ]
            if len(page) < _PAGE_SIZE:
                return found[::-1]

    def approve(
        self, approval_id: str, *, note: str | None = None, context: Mapping[str, Any] | None = None
    ) -> None:
        """Approve a request, so that the gateway allows the same call once.

        Args:
            approval_id: Id of the request, from `ApprovalPending.approval_id` or `pending`.
            note: Text for the agent.
            context: All arguments of the call as the approver edited them; None approves the requested arguments.

        Raises:
            ConfigurationError: If the request is unknown or no longer pending, or the context is invalid.
        """
        body: dict[str, Any] = {"note": note}
        if context is not None:
            body["context"] = dict(context)
        self._call_api("POST", f"/api/approvals/{quote(approval_id, safe='')}/approve", body)

    def deny(self, approval_id: str, *, note: str | None = None) -> None:
        """Reject a request.

        Args:
            approval_id: Id of the request, from `ApprovalPending.approval_id` or `pending`.
            note: The reason, which the agent receives.

        Raises:
            ConfigurationError: If the request is unknown or no longer pending.
        """
        self._call_api("POST", f"/api/approvals/{quote(approval_id, safe='')}/deny", {"note": note})

    def send(self, request: Request, seconds: float) -> Response:
        """Pass the guard's request to the gateway; raise `TransportError` if there is no response within `seconds`."""
        return Response(*_result(self._start(request), seconds))

    async def asend(self, request: Request, seconds: float) -> Response:
        """Asynchronous form of `send`."""
        future = self._start(request)
        answer = asyncio.wrap_future(future)
        try:
            async with asyncio.timeout(seconds):
                return Response(*await answer)
        except TimeoutError as error:
            if future.done() and not future.cancelled():
                # The response arrived before the timeout, but the event loop was blocked and could not process it.
                return Response(*future.result())
            raise _timed_out(seconds) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not answer.cancelled() or (task is not None and task.cancelling()):
                raise
            raise TransportError("the embedded gateway ended", answered=False) from None

    def guard_closed(self) -> None:
        """Close the gateway; the guard calls this method when it is closed."""
        self._closed = True
        # A forked child does not close the gateway, because the gateway's thread exists only in the parent process.
        if os.getpid() == self._pid:
            self._service.close()

    def end(self) -> None:
        """Stop the gateway without waiting for its end; called when its guard is garbage-collected."""
        self._closed = True
        if os.getpid() == self._pid:
            self._service.end()

    def _start(self, request: Request) -> Future[_Answer]:
        self._ensure_open()
        url = urlsplit(request.url)
        target = url.path + (f"?{url.query}" if url.query else "")
        try:
            return self._service.request(request.method, target, request.headers, request.body)
        except RuntimeError as error:
            raise _ended() from error

    def _call_api(self, method: str, target: str, body: dict[str, Any] | None = None) -> Any:
        """Send a request to the management API as the approver, and return the JSON of the response."""
        self._ensure_open()
        try:
            future = self._service.decide(method, target, None if body is None else dumps(body).encode())
        except RuntimeError as error:
            raise _ended() from error
        status, _, content = _result(future, _DECISION_TIMEOUT)
        read: Any = loads(content, exactly=True)
        if status != HTTPStatus.OK:
            detail = read.get("detail") if isinstance(read, dict) else None
            raise ConfigurationError(f"The embedded gateway refused {method} {target}: {detail or status}")
        return read

    def _ensure_open(self) -> None:
        if os.getpid() != self._pid:
            raise ConfigurationError(
                f"this embedded gateway runs in process {self._pid}, not in its forked child {os.getpid()}; call "
                "Guard.embedded in the child, or start it with multiprocessing's 'spawn'"
            )
        if self._closed:
            raise ConfigurationError(
                "the embedded gateway is closed; create a new one with Guard.embedded(…)"
            )


def embedded_guard(
    guard_class: type[_Guard],
    path: str | os.PathLike[str],
    agent: str,
    allow: Actions,
    require_approval: Actions,
    timeout: float | None,
) -> _Guard:
    """Start a gateway with the database at `path`, and return a guard that uses it.

    Raises:
        ConfigurationError: If an argument is invalid, the gateway is not installed, or the file cannot be used.
    """
    database = _database(path)
    permissions = [
        {
            "action": each.action,
            "requires_approval": each.held,
            "max_amount": each.max_amount,
            "amount_required": each.amount_required,
        }
        for each in read_permissions(allow, require_approval)
    ]
    if not isinstance(agent, str):
        raise ConfigurationError(f"Invalid agent {agent!r}: expected a name, like 'support-bot'")
    open_service, start_error = _load("embedded"), cast("type[Exception]", _load("StartError"))
    try:
        service: _Service = open_service(database, agent, permissions)
    except start_error as error:
        raise ConfigurationError(f"the embedded gateway cannot be opened: {error}") from error
    gateway = EmbeddedGateway(service)
    try:
        # Each database file has its own address: log entries in the outbox are stored with the address, and must not be
        # sent to the gateway of another file.
        name = hashlib.sha256(os.fsencode(database)).hexdigest()[:16]
        guard = guard_class(
            f"http://{name}.embedded.invalid",
            service.api_key,
            service.agent_id,
            timeout=timeout,
            allow_insecure=True,
            transport=gateway,
            outbox=MEMORY if database == _IN_MEMORY else None,
        )
    except BaseException:
        service.close()
        raise
    # The finalizer calls `end` and not `close`, because a garbage collection must not wait for the gateway.
    weakref.finalize(guard, gateway.end).atexit = False
    _close_at_exit(guard._guard_state)  # noqa: SLF001 - the attribute is internal to this package
    return guard


def _database(path: object) -> str:
    if not isinstance(path, str | os.PathLike) or not str(path):
        raise ConfigurationError(
            f"Invalid path {path!r}: expected a file, like 'toolgate.db', or {_IN_MEMORY!r}"
        )
    text = os.fsdecode(path)
    return text if text == _IN_MEMORY else str(Path(text).expanduser().absolute())


def _load(name: str) -> Any:
    # The gateway is loaded through an entry point, because the SDK must also work if the gateway is not installed.
    found = list(entry_points(group="toolgate.gateway", name=name))
    if not found:
        raise ConfigurationError(f"the embedded gateway is not installed; {_INSTALL}")
    try:
        return found[0].load()
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"the embedded gateway needs an optional package ({error.name!r} is missing); {_INSTALL}"
        ) from error


def _result(future: Future[_Answer], seconds: float) -> _Answer:
    try:
        return future.result(seconds)
    except TimeoutError as error:
        future.cancel()
        raise _timed_out(seconds) from error
    except BaseException:
        if future.cancelled():
            raise TransportError("the embedded gateway ended", answered=False) from None
        # The wait for the response was interrupted, for example by Ctrl-C. Cancelling the future closes the connection.
        future.cancel()
        raise


def _timed_out(seconds: float) -> TransportError:
    return TransportError(f"no answer within {seconds:.1f} s", answered=False)


def _ended() -> TransportError:
    return TransportError("the embedded gateway ended", answered=False, reached=False)


_open_guards: weakref.WeakSet[GuardState] = weakref.WeakSet()


def _close_at_exit(state: GuardState) -> None:
    _register_exit_handler()
    _open_guards.add(state)


@functools.cache
def _register_exit_handler() -> None:
    # `atexit` handlers run too late, because thread pools accept no work then, and the outbox needs a thread to write
    # entries.
    threading._register_atexit(_close_all)  # type: ignore[attr-defined]  # noqa: SLF001 - like `concurrent.futures`


def _close_all() -> None:
    with ExitStack() as stack:
        for state in list(_open_guards):
            stack.callback(state.close_at_exit)
