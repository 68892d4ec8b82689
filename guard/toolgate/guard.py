"""A guard: one gateway, one API key, any number of guarded actions."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from toolgate._capture.context import Rules
from toolgate._capture.rules import AmountFrom, ContextFrom
from toolgate._outbox.place import load_place
from toolgate.asking import Asking
from toolgate.block import Action
from toolgate.calls import OnHold
from toolgate.errors import ConfigurationError
from toolgate.known import find, remember, words_for
from toolgate.options import make_options
from toolgate.resuming import Resume
from toolgate.runtime import Runtime
from toolgate.settings import load_settings, masked

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike
    from ssl import SSLContext

    from toolgate._http.network import ClientCert
    from toolgate.decorator import Guardable
    from toolgate.embedded import EmbeddedGateway
    from toolgate.permitted import Actions

__all__ = ["Guard"]


class Guard(Asking):
    """Asks one gateway before tools run and records what they did.

    Usable from any thread, task and event loop, and after a fork. Also a context manager, with
    `with` and `async with`, which closes it.

    Args:
        url: Address of the gateway; default `TOOLGATE_URL`.
        api_key: API key (spec §5); default `TOOLGATE_API_KEY`.
        agent_id: The agent that acts unless `acting_as` or a decoration names another; default
            `TOOLGATE_AGENT_ID`.
        timeout: Total deadline of one request with its retries, in seconds; default
            `TOOLGATE_TIMEOUT`, else 5.
        allow_insecure: Permit plain http to hosts other than this machine.
        ca: A PEM file of the certificates to trust in place of the usual ones, or an `ssl.SSLContext`; default
            `TOOLGATE_CA_FILE`.
        client_cert: PEM files of the certificate and the key to show to the gateway, and the key's password;
            default `TOOLGATE_CLIENT_CERT`, `TOOLGATE_CLIENT_KEY` and `TOOLGATE_CLIENT_KEY_PASSWORD`.
        proxy: Address of an `http` proxy that tunnels TLS to the gateway; default `TOOLGATE_PROXY`.
        transport: A transport of the HTTP library, or a gateway in this process, in place of the network.
        outbox: The file in which log entries wait for the gateway, or `"memory"`; default `TOOLGATE_OUTBOX`,
            else a file in the user's state folder.

    Raises:
        ConfigurationError: If a setting is missing or wrong; the message names it and the cure.
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
        self._runtime = Runtime(settings, transport, load_place(outbox))
        remember(self)

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
        """Return a guard with a gateway in this process, on a thread of its own and without a port.

        For notebooks, tests and agents on one machine. It is a guardrail, not a security boundary: code in this
        process can approve as well. Needs the extra `service`.

        Args:
            path: The database file, created if it is missing; `":memory:"` is deleted by `close`.
            agent: The agent's name; the same name in the same file is the same agent.
            allow: Actions that are allowed: names, or names with limits, like
                `{"stripe.refund": {"max_amount": 100}}`.
            require_approval: Actions that require approval, in the same form. The agent loses the permission for
                every action that is in neither of the two.
            timeout: As for `Guard`.
            hold: Deprecated name of `require_approval`.

        Raises:
            ConfigurationError: If an argument is invalid, the extra is missing, or the file cannot be used.
        """
        from toolgate.embedded import embedded_guard

        if hold is not None:
            if require_approval:
                raise ConfigurationError("Pass require_approval alone: hold is its deprecated name")
            warnings.warn("hold=… is now require_approval=…", DeprecationWarning, stacklevel=2)
            require_approval = hold
        return embedded_guard(cls, path, agent, allow, require_approval, timeout)

    @property
    def gateway(self) -> EmbeddedGateway:
        """The gateway in this process, with the approver's methods `pending`, `approve` and `deny`.

        Raises:
            ConfigurationError: If the guard was not made by `Guard.embedded`.
        """
        from toolgate.embedded import EmbeddedGateway

        if not isinstance(self._runtime.transport, EmbeddedGateway):
            raise ConfigurationError(
                "this guard's gateway is not in this process; decide with `toolgate approvals`, or make the guard "
                "with Guard.embedded(…)"
            )
        return self._runtime.transport

    def __repr__(self) -> str:
        settings = self._runtime.settings
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
        unbound: Iterable[str] = (),
        amount: AmountFrom | None = None,
        context: ContextFrom | None = None,
        agent_id: str | None = None,
        fail_open: bool = False,
    ) -> Callable[[Guardable], Guardable]:
        """Guard whatever can be called: functions, generators, context managers, methods, objects; also asynchronous.

        A synchronous function waits for the gateway on its own thread: called on an event loop's
        thread it holds the loop up, as any blocking call does.

        Args:
            action: The action identifier, like `service.operation`.
            on_hold: `raise` raises `ApprovalPending` when held; `wait` waits for the person. A function is
                given the `ApprovalPending` and returns `wait`, `raise` (or None), or `check` to ask the
                gateway again at once; what it raises goes through. No answer of it lets the tool run. For a
                coroutine function it may be one as well.
            hold_timeout: Seconds to wait for the person; None waits as long as it takes. The request stays
                when they have passed; it is withdrawn when the waiting call is cancelled or interrupted.
            include: The only arguments that are shown; the others are bound by a keyed digest. A secret's name
                or form stays hidden all the same.
            exclude: Arguments nobody is shown; they are bound by a keyed digest.
            redact: More names to hide wherever they occur, also inside arguments, and compiled patterns: a text
                or number in which one is found is hidden whole.
            unbound: Arguments that are not sent at all: they may differ after an approval.
            amount: The argument that is also sent as `amount`, to be compared with `max_amount`, or a function
                that is given the arguments it has parameters for, by name, and returns a number.
            context: What the approver sees and the approval is bound to beside the arguments: a function that is
                given arguments as that of `amount` and returns a mapping, or the name of an argument whose
                members stand beside it.
            agent_id: The agent that acts, unless `acting_as` names another.
            fail_open: Run the tool unasked where no gateway answers at all, with a warning on the logger
                `toolgate` and a log entry that says so: no permission, `max_amount` or person is asked then.
                Never after any answer, nor while the agent was last held or blocked with this action.

        Returns:
            A decorator; the decorated function raises, beside what it raises itself, `ActionDenied`,
            `ApprovalPending`, `ApprovalDenied`, `ApprovalExpired`, `GatewayUnavailable`,
            `GatewayProtocolError`, `OutboxFull` or `ConfigurationError`, and has not run then.

        Raises:
            ConfigurationError: If an option is wrong or the function cannot be guarded.
        """
        from toolgate.decorator import decorate

        return decorate(
            self._shared,
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
        """Guard a block: `with guard.action("db.drop", context={…}) as act:`, also `async with`.

        Args:
            action: The action identifier.
            context: What the gateway compares and an approver reads; `amount` is compared with `max_amount`.
            on_hold: As for `guarded`.
            hold_timeout: As for `guarded`, in seconds.
            include: As for `guarded`, of names in the context.
            exclude: Names in the context whose values nobody is shown.
            redact: As for `guarded`.
            amount: As for `guarded`, of names in the context.
            agent_id: The agent that acts; wins over `acting_as`.
            fail_open: As for `guarded`.
            edits: The body reads `act.context`: an approver's edit is put into it. Without, an edited
                approval is refused.

        Raises:
            ConfigurationError: If an option is wrong or the context no mapping.
        """
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
        return Action(lambda: self._runtime, options, context, edits=edits)

    def resume(self, approval_id: str) -> Resume:
        """Continue an approval: `with guard.resume(approval_id): tool(...)`, also `async with`.

        The first guarded call or block of this guard that begins inside, in this thread or task, goes on
        where the one that asked stopped, also in another process: approved it runs, held it does what its
        `on_hold` says, and is checked with this approval or not at all.

        Args:
            approval_id: The approval, from `ApprovalPending.approval_id`.

        Returns:
            A context manager, to be entered once.

        Raises:
            ConfigurationError: If the id can be none; at the call, if the gateway does not know it or it is
                another action's or agent's.
        """
        return Resume(approval_id, lambda runtime: runtime is self._runtime)

    @property
    def entries_lost(self) -> int:
        """How many log entries of this process and guard could not be kept (`fail_open`); each is logged as an error."""
        return self._runtime.recorder.entries_lost

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until log entries that wait are delivered, `timeout` seconds at most.

        It ends as soon as the gateway does not take one: what waits stays in the outbox.

        Returns:
            Whether none waits any more.
        """
        return self._runtime.recorder.flush(timeout)

    async def aflush(self, timeout: float = 5.0) -> bool:  # noqa: ASYNC109 - the contract's argument
        """As `flush`."""
        return await self._runtime.recorder.aflush(timeout)

    def close(self) -> None:
        """Deliver what waits and refuse further calls; may be called again."""
        self._runtime.close()

    async def aclose(self) -> None:
        """As `close`, and close the running event loop's connections too."""
        await self._runtime.aclose()

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
        return find, words_for(self._runtime)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def _shared(self) -> Runtime:
        return self._runtime
