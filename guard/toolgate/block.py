"""Guard a block of code: `with guard.action("db.drop", context={…}) as act:`, also `async with`.

Not called `action.py`: a module of that name would stand in the package where the function `action` is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

from toolgate._capture.arguments import Snapshot
from toolgate._capture.context import Captured, capture, copy_context, fit
from toolgate._capture.edits import UNKNOWN, UneditableError, edits_of
from toolgate._capture.facts import clip
from toolgate._capture.fingerprint import Fingerprinter
from toolgate._capture.jsontext import Json
from toolgate._capture.serializer import is_immutable
from toolgate.calls import Flow
from toolgate.drivers import adrive, drive, since
from toolgate.elsewhere import Permitted
from toolgate.errors import ConfigurationError, GatewayProtocolError
from toolgate.holding import refuse_async
from toolgate.identity import identify
from toolgate.options import Options
from toolgate.performers import AsyncPerformer, Performer
from toolgate.proof import prove
from toolgate.resuming import resumed_by
from toolgate.runtime import Runtime
from toolgate.shutdown import ensure_not_finalizing
from toolgate.steps import HandOver, Outcome, Raised, Record, Returned

__all__ = ["Action"]


class Action:
    """One guarded block; entered once.

    Attributes:
        context: What the gateway is asked about, as given; what the block adds reaches the log entry.
            A value the block changes is added under its name with a trailing underscore: what was
            asked about stays as it was. If it is no mapping in the end, the entry says so instead.
            With `edits=True` it holds what an approver edited, before the body runs.
    """

    def __init__(
        self,
        runtime: Callable[[], Runtime],
        options: Options,
        context: Mapping[str, object] | None,
        *,
        edits: bool = False,
    ) -> None:
        if not isinstance(edits, bool):
            raise ConfigurationError(f"edits is {edits!r}; use True or False")
        self.context: dict[str, Any] = {} if context is None else copy_context(context)
        # The block's body may read the mapping it passed, and not `act.context`.
        self._given: Mapping[str, object] = {} if context is None else context
        self._at_begin: tuple[dict[Any, Any], dict[Any, Any]] = ({}, {})
        self._snapshot: Snapshot | None = None
        self._takes_edits = edits
        self._edits: dict[str, Any] = {}
        self._find_runtime = runtime
        self._runtime: Runtime | None = None
        self._options = options
        self._asked: dict[str, Json] = {}
        self._flow: Flow | None = None
        self._performer: Performer | None = None
        self._async_performer: AsyncPerformer | None = None
        self._began = 0.0

    def __enter__(self) -> Self:
        refuse_async(self._options.on_hold, f"the block of action {self._options.action!r}")
        runtime, flow = self._begin()
        self._performer = self._made_performer(runtime)
        drive(flow, self._performer)
        return self._entered()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._flow is not None and self._performer is not None:
            drive(self._flow, self._performer, self._outcome(error))

    async def __aenter__(self) -> Self:
        runtime, flow = self._begin()
        self._async_performer = self._made_async_performer(runtime)
        await adrive(flow, self._async_performer)
        return self._entered()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._flow is not None and self._async_performer is not None:
            await adrive(self._flow, self._async_performer, self._outcome(error))

    def permit(self) -> Permitted:
        """Ask as `with` does, for a tool that another process runs: in place of `with`, and once.

        Nothing is written down here that the tool runs, nor what becomes of it: whoever runs it has that recorded
        with `Guard.record`.

        Raises:
            GuardError: It must not run.
        """
        refuse_async(self._options.on_hold, f"the block of action {self._options.action!r}")
        runtime, flow = self._begin(elsewhere=True)
        performer = self._made_performer(runtime)
        record = self._handed_over(drive(flow, performer))
        drive(flow, performer)
        return self._permitted(record)

    async def apermit(self) -> Permitted:
        """As `permit`, in place of `async with`; cancelled, it withdraws what waits for a person.

        Raises:
            GuardError: It must not run.
        """
        runtime, flow = self._begin(elsewhere=True)
        performer = self._made_async_performer(runtime)
        record = self._handed_over(await adrive(flow, performer))
        await adrive(flow, performer)
        return self._permitted(record)

    def proof(self) -> AbstractContextManager[None]:
        """Let an equal guarded call inside the block run by this block's decision, once and without asking again.

        For a tool whose function calls a guarded function: `with guard.action(…) as act, act.proof(): …`.

        Raises:
            ConfigurationError: The block has not been entered.
        """
        if self._runtime is None or not self._began:
            raise ConfigurationError(f"the block of action {self._options.action!r} has not been entered")
        explicit, default = self._options.agent_id, self._runtime.settings.agent_id
        agent_id = identify(explicit, default).agent_id
        return prove(self._runtime, self._options.action, agent_id, self._asked)

    def capture(self) -> Captured:
        """What the gateway is asked about now.

        Raises:
            ConfigurationError: If what is computed of the context cannot be.
        """
        captured = self._snapshots().take({**copy_context(self.context), **self._edits})
        self._asked = captured.context
        return captured

    def difference(self) -> str | None:
        """Return the first name whose value is not what `capture` last found, or None."""
        context, given = copy_context(self.context), copy_context(self._given)
        replaced = _replaced(self._at_begin[0], context) or _replaced(self._at_begin[1], given)
        if replaced is not None:
            return replaced
        if not self._options.rules.changeable(context):
            return None
        return self._snapshots().difference({**context, **self._edits})

    def edit(self, asked: dict[str, Json], approved: dict[str, Json]) -> str | None:
        """Keep a person's edit for the context; returns what stands against it."""
        try:
            mapped = self._options.rules.amount
            computed = self._snapshots().derived
            derived = computed if mapped is None else computed | {"amount"}
            edits = edits_of(copy_context(self.context), asked, approved, lambda _: UNKNOWN, derived=derived)
        except UneditableError as error:
            return str(error)
        if edits and not self._takes_edits:
            # Its body may never look at act.context.
            return f"{min(edits)!r} was changed, and the block was not made with edits=True"
        self._edits = edits
        try:
            self.capture()
        except ConfigurationError as error:
            self._edits = {}
            return str(error)
        return None

    def as_given(self) -> None:
        """Forget the edit."""
        self._edits = {}

    def _made_performer(self, runtime: Runtime) -> Performer:
        return Performer(
            runtime.client(),
            runtime.recorder,
            self,
            on_hold=self._options.on_hold,
            waiters=runtime.waiters,
            hold_timeout=self._options.hold_timeout,
        )

    def _made_async_performer(self, runtime: Runtime) -> AsyncPerformer:
        return AsyncPerformer(
            runtime.async_client(),
            runtime.recorder,
            self,
            on_hold=self._options.on_hold,
            waiters=runtime.waiters,
            hold_timeout=self._options.hold_timeout,
        )

    def _handed_over(self, given: object) -> Record:
        if not isinstance(given, HandOver):
            # Whatever it is, nothing said that the tool may run.
            raise GatewayProtocolError(f"the call of action {self._options.action!r} was not handed over")
        return given.record

    def _permitted(self, record: Record) -> Permitted:
        self._entered()
        return Permitted(
            self.context, record.context, record.who.agent_id, record.approval_id, record.decision_id
        )

    def _begin(self, *, elsewhere: bool = False) -> tuple[Runtime, Flow]:
        ensure_not_finalizing()
        if elsewhere and self._options.fail_open:
            raise ConfigurationError(
                f"action {self._options.action!r} fails open; what runs elsewhere cannot be recorded as such"
            )
        if self._flow is not None:
            raise ConfigurationError(
                f"this block of action {self._options.action!r} has been entered; call action(…) for each block"
            )
        self._runtime = runtime = self._find_runtime().ensure_open()
        self._at_begin = copy_context(self.context), copy_context(self._given)
        self._flow = self._options.flow(
            runtime, self.capture(), resumed_by(runtime), elsewhere=elsewhere, verifies=True
        )
        return runtime, self._flow

    def _entered(self) -> Self:
        self.context.update(self._edits)
        self._began = time.perf_counter()
        return self

    def _snapshots(self) -> Snapshot:
        if self._snapshot is None:
            self._snapshot = Snapshot(self._options.rules, self._hider())
        return self._snapshot

    def _hider(self) -> Fingerprinter:
        return (self._runtime or self._find_runtime()).hider

    def _outcome(self, error: BaseException | None) -> Outcome:
        duration = since(self._began)
        try:
            added = self._added()
        except Exception:  # noqa: BLE001 - the block's own end must be recorded and go on, whatever it left here
            kind = type(getattr(self, "context", None)).__name__
            added = {
                "additions": clip(f"not recorded: act.context is no mapping that can be read, but {kind}")
            }
        return Returned(duration, added) if error is None else Raised(error, duration, added)

    def _added(self) -> dict[str, Json]:
        now: dict[str, Json] = {}
        for name, value in copy_context(self.context).items():
            try:
                now |= capture({name: value}, self._options.rules, self._hider()).context
            except ConfigurationError as error:
                # The block has run: whatever it left here must not keep the entry from being written.
                now["additions"] = clip(f"not recorded: {error}")
        added = {name: value for name, value in now.items() if self._asked.get(name, _ABSENT) != value}
        return fit(added, self._hider(), beside=self._asked)


def _replaced(before: Mapping[Any, Any], now: Mapping[Any, Any]) -> str | None:
    """Return the first name that has another value now, or None."""
    for name in {**before, **now}:
        old, new = before.get(name, _ABSENT), now.get(name, _ABSENT)
        if old is not new and not (is_immutable(old) and is_immutable(new) and repr(old) == repr(new)):
            return str(name)
    return None


_ABSENT = object()
