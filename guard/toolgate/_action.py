"""Action block, which guards the code in a `with` block: `with guard.action("db.drop", context={…}) as act:`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from toolgate._callables import refuse_async
from toolgate._capture.arguments import UNKNOWN, Snapshot, UneditableError, edits_of
from toolgate._capture.context import Captured, Rules, capture, clip, copy_context, fit
from toolgate._capture.jsontext import Json
from toolgate._capture.serializer import Fingerprinter, is_immutable
from toolgate._drivers import AsyncDriver, Driver, adrive, drive, elapsed_ms, ensure_authorized
from toolgate._effects import Flow, HandOver, Outcome, Raised, Returned
from toolgate._flow import begin_flow
from toolgate._identity import authorize, identify, take_approval
from toolgate._models import AuthorizedCall
from toolgate._options import Options, make_options
from toolgate._process_state import ensure_not_finalizing
from toolgate._telemetry import warn_renamed
from toolgate.errors import ConfigurationError, GatewayProtocolError

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable

    from toolgate._call import OnHold
    from toolgate._capture.rules import AmountFrom
    from toolgate._state import GuardState

__all__ = ["Action", "make_action"]


class Action:
    """Guarded block of code: the gateway checks the action before the block runs; the SDK logs the outcome at its end.

    Each `Action` object can be entered only once.

    Attributes:
        context: Copy of the mapping that the caller passed. With `edits=True`, an approver's edits are applied to this
            copy before the block runs. Values that the block adds are logged. If the block changes a value, the log
            entry contains the checked value, and the new value under the same name with a trailing underscore. If the
            block replaces `context` by an object that is not a mapping, the log entry contains the type of that object.
    """

    def __init__(
        self,
        find_state: Callable[[], GuardState],
        options: Options,
        context: Mapping[str, object] | None,
        *,
        edits: bool = False,
    ) -> None:
        if not isinstance(edits, bool):
            raise ConfigurationError(f"edits is {edits!r}; use True or False")
        self.context: dict[str, Any] = {} if context is None else copy_context(context)
        # The mapping that the caller passed. The block may read its values from this mapping instead of `act.context`.
        # Therefore the block does not run if either of them changes during the check.
        self._given: Mapping[str, object] = {} if context is None else context
        self._at_begin: tuple[dict[Any, Any], dict[Any, Any]] = ({}, {})
        self._snapshot: Snapshot | None = None
        self._accepts_edits = edits
        self._edits: dict[str, Any] = {}
        self._find_state = find_state
        self._guard_state: GuardState | None = None
        self._options = options
        self._checked: dict[str, Json] = {}
        self._flow: Flow | None = None
        self._driver: Driver | None = None
        self._async_driver: AsyncDriver | None = None
        self._began = 0.0

    def __enter__(self) -> Self:
        flow, self._driver = self._begin()
        ensure_authorized(drive(flow, self._driver))
        return self._entered()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._flow is not None and self._driver is not None:
            drive(self._flow, self._driver, self._outcome(error))

    async def __aenter__(self) -> Self:
        flow, self._async_driver = self._abegin()
        ensure_authorized(await adrive(flow, self._async_driver))
        return self._entered()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._flow is not None and self._async_driver is not None:
            await adrive(self._flow, self._async_driver, self._outcome(error))

    def authorize(self) -> AuthorizedCall:
        """Check the action for a tool that another process runs. Call this method once, instead of entering the block.

        The process that runs the tool logs the outcome with `Guard.record`. This process does not log it.

        Raises:
            GuardError: The tool must not run.
        """
        flow, driver = self._begin(runs_elsewhere=True)
        effect = _ensure_handed_over(drive(flow, driver))
        drive(flow, driver)
        return self._authorized(effect)

    async def aauthorize(self) -> AuthorizedCall:
        """Asynchronous form of `authorize`; if the task is cancelled, the SDK withdraws the approval request.

        Raises:
            GuardError: The tool must not run.
        """
        flow, driver = self._abegin(runs_elsewhere=True)
        effect = _ensure_handed_over(await adrive(flow, driver))
        await adrive(flow, driver)
        return self._authorized(effect)

    def permit(self) -> AuthorizedCall:
        """Deprecated name of `authorize`."""
        warn_renamed("Action.permit", "Action.authorize")
        return self.authorize()

    async def apermit(self) -> AuthorizedCall:
        """Deprecated name of `aauthorize`."""
        warn_renamed("Action.apermit", "Action.aauthorize")
        return await self.aauthorize()

    def proof(self) -> AbstractContextManager[None]:
        """Return a context manager in which one call with the same action and arguments runs without a second check.

        Use it if the body of the block calls a guarded function. The decision about the block then also covers that
        call, once. Example: `with guard.action("db.drop", {"table": "t"}) as act, act.proof(): drop(table="t")`.

        Raises:
            ConfigurationError: The block has not been entered.
        """
        if self._guard_state is None or not self._began:
            raise ConfigurationError(
                f"proof() needs the with block of action {self._options.action!r}; call it inside the "
                "block: with guard.action(…) as act, act.proof():"
            )
        explicit, default = self._options.agent_id, self._guard_state.settings.agent_id
        agent_id = identify(explicit, default).agent_id
        return authorize(self._guard_state, self._options.action, agent_id, self._checked)

    def capture(self) -> Captured:
        """Return the values of the block as redacted JSON for the check; an approver's edit is already applied.

        Raises:
            ConfigurationError: If a value is not JSON, or if the amount (option `amount`) cannot be computed.
        """
        captured = self._snapshots().take({**copy_context(self.context), **self._edits})
        self._checked = captured.context
        return captured

    def difference(self) -> str | None:
        """Return the name of a checked value that has changed since `capture`, or None."""
        context, given = copy_context(self.context), copy_context(self._given)
        replaced = _find_replaced(self._at_begin[0], context) or _find_replaced(self._at_begin[1], given)
        if replaced is not None:
            return replaced
        if not self._options.rules.changeable(context):
            return None
        return self._snapshots().difference({**context, **self._edits})

    def edit(self, asked: dict[str, Json], approved: dict[str, Json]) -> str | None:
        """Apply the approver's edit: the difference between the values `asked` (requested) and `approved`.

        Returns:
            None, or the reason why the edit cannot be applied.
        """
        try:
            amount = self._options.rules.amount
            derived = self._snapshots().derived
            derived = derived if amount is None else derived | {"amount"}
            edits = edits_of(copy_context(self.context), asked, approved, lambda _: UNKNOWN, derived=derived)
        except UneditableError as error:
            return str(error)
        if edits and not self._accepts_edits:
            # An edit is applied only to `act.context`. Without edits=True, the block may read its values from other
            # variables and run with unedited values, which were not approved. The edit is therefore refused.
            return (
                f"the approver changed {min(edits)!r}, but action(…) was called without edits=True; add "
                "edits=True, and read the values from act.context"
            )
        self._edits = edits
        try:
            self.capture()
        except ConfigurationError as error:
            self._edits = {}
            return str(error)
        return None

    def discard_edit(self) -> None:
        """Discard an approver's edit, so that `context` again contains the values that the caller passed."""
        self._edits = {}

    def _begin(self, *, runs_elsewhere: bool = False) -> tuple[Flow, Driver]:
        refuse_async(self._options.on_hold, f"the block of action {self._options.action!r}")
        state, flow = self._begin_flow(runs_elsewhere=runs_elsewhere)
        return flow, state.driver(self._options.on_hold)

    def _abegin(self, *, runs_elsewhere: bool = False) -> tuple[Flow, AsyncDriver]:
        state, flow = self._begin_flow(runs_elsewhere=runs_elsewhere)
        return flow, state.async_driver(self._options.on_hold)

    def _begin_flow(self, *, runs_elsewhere: bool) -> tuple[GuardState, Flow]:
        ensure_not_finalizing()
        if runs_elsewhere and self._options.fail_open:
            raise ConfigurationError(
                f"authorize() cannot be used for action {self._options.action!r} with fail_open=True; use "
                "fail_open=False"
            )
        if self._flow is not None:
            raise ConfigurationError(
                f"this action(…) object of action {self._options.action!r} has already been used; call "
                "action(…) again for each with block"
            )
        self._guard_state = state = self._find_state().ensure_open()
        self._at_begin = copy_context(self.context), copy_context(self._given)
        self._flow = begin_flow(
            self._options,
            state,
            self,
            self.capture(),
            take_approval(state),
            runs_elsewhere=runs_elsewhere,
            verifies=True,
        )
        return state, self._flow

    def _authorized(self, effect: HandOver) -> AuthorizedCall:
        self._entered()
        return AuthorizedCall(
            self.context, effect.context, effect.agent_id, effect.approval_id, effect.decision_id
        )

    def _entered(self) -> Self:
        self.context.update(self._edits)
        self._began = time.perf_counter()
        return self

    def _snapshots(self) -> Snapshot:
        if self._snapshot is None:
            self._snapshot = Snapshot(self._options.rules, self._fingerprinter())
        return self._snapshot

    def _fingerprinter(self) -> Fingerprinter:
        return (self._guard_state or self._find_state()).fingerprinter

    def _outcome(self, error: BaseException | None) -> Outcome:
        duration = elapsed_ms(self._began)
        try:
            added = self._added()
        except Exception:  # noqa: BLE001 - an unreadable `act.context` must not prevent the log entry
            kind = type(getattr(self, "context", None)).__name__
            added = {"additions": clip(f"not recorded: act.context is not a readable mapping, but {kind}")}
        return Returned(duration, added) if error is None else Raised(error, duration, added)

    def _added(self) -> dict[str, Json]:
        now: dict[str, Json] = {}
        for name, value in copy_context(self.context).items():
            try:
                now |= capture({name: value}, self._options.rules, self._fingerprinter()).context
            except ConfigurationError as error:
                # The block has run and must be logged, even if it added a value that is not JSON.
                now["additions"] = clip(f"not recorded: {error}")
        added = {name: value for name, value in now.items() if self._checked.get(name, _ABSENT) != value}
        return fit(added, self._fingerprinter(), beside=self._checked)


def make_action(
    find_state: Callable[[], GuardState],
    action: str,
    context: Mapping[str, object] | None,
    *,
    on_hold: OnHold,
    hold_timeout: float | None,
    include: Iterable[str] | None,
    exclude: Iterable[str],
    redact: Iterable[str | re.Pattern[str]],
    amount: AmountFrom | None,
    agent_id: str | None,
    fail_open: bool,
    edits: bool,
) -> Action:
    """Validate the options and return the block.

    `find_state` is called when the block is entered, and returns the state of the guard to use.

    Raises:
        ConfigurationError: An option is wrong; the message names it, its value and the fix.
    """
    options = make_options(
        action,
        Rules(include=include, exclude=exclude, redact=redact, amount=amount),
        on_hold=on_hold,
        hold_timeout=hold_timeout,
        agent_id=agent_id,
        fail_open=fail_open,
        at_call=True,
    )
    return Action(find_state, options, context, edits=edits)


def _ensure_handed_over(effect: object) -> HandOver:
    if not isinstance(effect, HandOver):
        raise GatewayProtocolError(
            "internal error of Toolgate: the gateway did not authorize the call and no reason is known "
            f"({effect!r}); the tool did not run; report this as a bug"
        )
    return effect


def _find_replaced(before: Mapping[Any, Any], now: Mapping[Any, Any]) -> str | None:
    """Return the first name whose values in `before` and `now` are different objects, or None.

    Equal immutable values, such as two equal strings, count as unchanged.
    """
    for name in {**before, **now}:
        old, new = before.get(name, _ABSENT), now.get(name, _ABSENT)
        if old is not new and not (is_immutable(old) and is_immutable(new) and repr(old) == repr(new)):
            return str(name)
    return None


_ABSENT = object()
