"""The class `Guard`: it guards functions and blocks with one gateway and one API key."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pickle import PicklingError
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from toolgate._action import Action, make_action
from toolgate._call import OnHold
from toolgate._capture.rules import AmountFrom, ContextFrom
from toolgate._identity import Resume
from toolgate._requests import GatewayRequests
from toolgate._settings import load_place, load_settings, masked
from toolgate._state import GuardState
from toolgate._telemetry import warn_renamed
from toolgate.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike
    from ssl import SSLContext

    from toolgate._decorator import Guardable
    from toolgate._http.network import ClientCert
    from toolgate._options import Actions
    from toolgate.embedded import EmbeddedGateway

__all__ = ["Guard"]


class Guard(GatewayRequests):
    """Checks tool calls with one gateway before the tools run, and logs their outcomes.

    A guard may be used from any thread, task and event loop, and after a fork. It is a context manager, for `with` and
    `async with`, and is closed at the end of the block. It cannot be pickled, and `copy.copy` returns the same object.

        guard = Guard("https://gateway.example.com", "ak_…", "billing-bot")

    Args:
        url: Address of the gateway; default `TOOLGATE_URL`.
        api_key: API key of the organization or agent; default `TOOLGATE_API_KEY`.
        agent_id: The agent, unless `acting_as` or a decorator sets another one; default `TOOLGATE_AGENT_ID`.
        timeout: Total deadline of one request with its retries, in seconds; default `TOOLGATE_TIMEOUT`, else 5.
        allow_insecure: Permit plain http to other machines, which sends the API key unencrypted.
        ca: A PEM file of the certificates to trust instead of the system's, or an `ssl.SSLContext`; default
            `TOOLGATE_CA_FILE`.
        client_cert: PEM files of the client certificate and its key, and the key's password; default
            `TOOLGATE_CLIENT_CERT`, `TOOLGATE_CLIENT_KEY` and `TOOLGATE_CLIENT_KEY_PASSWORD`.
        proxy: Address of an `http` proxy that tunnels TLS to the gateway; default `TOOLGATE_PROXY`.
        transport: Replacement of the network: a transport object of the HTTP library, or a gateway in this process.
        outbox: Folder in which log entries are stored until the gateway has acknowledged them, or `"memory"`; default
            `TOOLGATE_OUTBOX`, else the user's state folder.

    Raises:
        ConfigurationError: If a setting is missing or wrong; the message names it and the fix.
    """

    def __init__(
        self,
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
        settings = load_settings(
            url,
            api_key,
            agent_id,
            timeout,
            allow_insecure=allow_insecure,
            ca=ca,
            client_cert=client_cert,
            proxy=proxy,
            transport=transport,
        )
        self._guard_state = GuardState(settings, transport, load_place(outbox))

    @classmethod
    def embedded(
        cls,
        path: str | os.PathLike[str],
        *,
        agent: str,
        allow: Actions = (),
        require_approval: Actions = (),
        timeout: float | None = None,
        hold: Actions | None = None,
    ) -> Self:
        """Return a guard with the complete gateway in this process, on its own thread and without a port.

        Use it for notebooks, tests and agents on one machine. It is not a security boundary, because all code in this
        process can approve requests. It needs the extra `service`: `pip install 'toolgate[service]'`.

        The agent gets exactly the permissions in `allow` and `require_approval`. If the database contains other
        permissions of the agent, they are deleted.

            guard = Guard.embedded(":memory:", agent="demo", allow=["mail.read"], require_approval=["mail.send"])

        Args:
            path: The database file, created if it is missing. The data of `":memory:"` is lost at `close`.
            agent: Name of the agent. If the file contains an agent with this name, that agent is used.
            allow: Actions that are allowed: names, or names with limits, like `{"stripe.refund": {"max_amount": 100}}`.
            require_approval: Actions that a person must approve, in the same form.
            timeout: Deadline of one request in seconds, as for `Guard`.
            hold: Deprecated name of `require_approval`.

        Raises:
            ConfigurationError: If an argument is wrong, the extra is missing, or the file cannot be used.
        """
        from toolgate.embedded import embedded_guard

        if hold is not None:
            if require_approval:
                raise ConfigurationError(
                    "Pass only require_approval: hold is the deprecated name of the same option"
                )
            warn_renamed("Guard.embedded(hold=)", "require_approval=")
            require_approval = hold
        return embedded_guard(cls, path, agent, allow, require_approval, timeout)

    @property
    def gateway(self) -> EmbeddedGateway:
        """The gateway in this process; an approver uses its methods `pending`, `approve` and `deny`.

        Raises:
            ConfigurationError: If the guard was not created by `Guard.embedded`.
        """
        from toolgate.embedded import EmbeddedGateway

        if not isinstance(self._guard_state.transport, EmbeddedGateway):
            raise ConfigurationError(
                "approving and rejecting in code works only with an embedded gateway; decide with "
                "`toolgate approvals`, or create the guard with Guard.embedded(…)"
            )
        return self._guard_state.transport

    def __repr__(self) -> str:
        settings = self._guard_state.settings
        key = masked(settings.api_key)
        return f"Guard(url={settings.url!r}, api_key={key!r}, agent_id={settings.agent_id!r})"

    def guarded(
        self,
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
        """Return a decorator that guards functions, coroutine functions, generators, context managers and methods.

            @guard.guarded("stripe.refund", on_hold="wait")
            def refund(charge_id: str, amount: float) -> str: ...

        A synchronous function waits for the gateway on the thread that calls it. If this is the thread of an event
        loop, the loop is blocked during this time.

        Args:
            action: The action, like `service.operation`.
            on_hold: Reaction to a call that requires an approval. `raise` (or `pause`): raise `ApprovalPending`; the
                call can be continued later with `resume`. `wait`: wait for the approver. Or a function that receives
                the `ApprovalPending` exception, and returns one of these words, or `check` to read the approval request
                again immediately. Exceptions of the function propagate, and no return value can allow the tool to run.
                For a coroutine function, the `on_hold` function may be asynchronous.
            hold_timeout: Seconds to wait for the approver; None for no limit. After this time, the approval request
                stays pending. If the waiting call is cancelled or interrupted, the request is withdrawn.
            include: Names of the arguments to send in clear text; secrets inside them are still hidden. All other
                arguments are sent as keyed digests.
            exclude: Names of arguments that are sent as keyed digests.
            redact: Additional secrets: argument or field names, whose values are hidden at any depth, and compiled
                patterns. In a text, each match is masked; a number is hidden if it matches.
            ignore: Names of arguments that are not sent. An approval is valid for any value of these arguments.
            amount: Name of the argument that is also sent as `amount`, which the gateway compares with `max_amount`. Or
                a function that takes arguments by their names and returns a number.
            context: Additional values that the approver sees and the approval covers: a function that takes arguments
                by their names and returns a mapping, or the name of an argument that is a mapping.
            agent_id: The agent, unless `acting_as` sets another one.
            fail_open: Run the tool without a decision if no gateway can be reached. The permission, `max_amount` and
                the approval are then not checked. The SDK logs a warning (logger `toolgate`), and the log entry
                contains `fail_open`. The tool does not run if any server responded, or if the last decision denied the
                action.
            unbound: Deprecated name of `ignore`.

        Returns:
            A decorator. If the decorated function raises `ActionDenied`, `ApprovalPending`, `ApprovalDenied`,
            `ApprovalExpired`, `GatewayUnavailable`, `GatewayProtocolError`, `OutboxFull` or `ConfigurationError`, the
            tool has not run. Exceptions of the tool propagate.

        Raises:
            ConfigurationError: If an option is wrong or the function cannot be guarded.
        """
        from toolgate._decorator import decorate

        return decorate(
            self._find_state,
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
        self,
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
        """Return a guarded block: `with guard.action("db.drop", context={…}) as act:`, also `async with`.

        The action is checked when the block is entered, and its outcome is logged when the block is left.

        Args:
            action: Action of the call, such as `stripe.refund`.
            context: The values that are checked, shown to an approver, and logged; the value `amount` is compared with
                `max_amount`.
            on_hold: As for `guarded`.
            hold_timeout: As for `guarded`, in seconds.
            include: As for `guarded`, with names in the context.
            exclude: As for `guarded`, with names in the context.
            redact: As for `guarded`.
            amount: As for `guarded`, with names in the context.
            agent_id: Id of the agent; takes precedence over `acting_as`.
            fail_open: As for `guarded`.
            edits: Pass True if the body reads its values from `act.context`, to which an approver's edit is applied.
                With False, a call that an approver edited is denied.

        Raises:
            ConfigurationError: If an option is wrong or the context is not a mapping.
        """
        return make_action(
            self._find_state,
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

    def resume(self, approval_id: str) -> Resume:
        """Continue a call that required an approval: `with guard.resume(approval_id): tool(...)`, also `async with`.

        The first guarded call or action block inside the `with` block, in this thread or task, uses this approval
        request, which another process may have created. If the request is approved, the tool runs. If it is pending,
        `on_hold` applies. The call uses no other approval and creates no new request.

        Args:
            approval_id: Id of the approval request, from `ApprovalPending.approval_id`.

        Returns:
            A context manager that can be entered once.

        Raises:
            ConfigurationError: If the id is not valid. The guarded call raises it too, if the approval request does
                not exist or belongs to another action or agent.
        """
        return Resume(approval_id, lambda state: state is self._guard_state)

    @property
    def entries_lost(self) -> int:
        """Number of log entries of this guard that this process lost, because they could not be stored or sent."""
        return self._guard_state.recorder.entries_lost

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait up to `timeout` seconds until all queued log entries are sent.

        If a request fails or the gateway does not accept an entry, `flush` returns immediately; the entries stay in the
        outbox.

        Returns:
            True if all entries are sent.
        """
        return self._guard_state.recorder.flush(timeout)

    async def aflush(self, timeout: float = 5.0) -> bool:  # noqa: ASYNC109 - the same signature as `flush`
        """Wait until all queued log entries are sent; asynchronous form of `flush`."""
        return await self._guard_state.recorder.aflush(timeout)

    def close(self) -> None:
        """Send queued log entries, and make further calls of this guard raise an error; may be called repeatedly."""
        self._guard_state.close()

    async def aclose(self) -> None:
        """Asynchronous form of `close`, which also closes the connections of the running event loop."""
        await self._guard_state.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __reduce__(self) -> tuple[Any, ...]:
        raise PicklingError(
            "a Guard cannot be pickled; create one with the same settings in the other process, and guard "
            "functions at the top level of a module, because pickle stores only their names"
        )

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def _find_state(self) -> GuardState:
        return self._guard_state
