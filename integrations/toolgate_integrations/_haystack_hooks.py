"""The hooks of a guarded Haystack agent: one that asks before the tools of a step run, one that records after."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, ClassVar, Final, Literal

from haystack.components.agents.state import State, replace_values
from haystack.core.serialization import default_from_dict, default_to_dict
from haystack.dataclasses import ChatMessage
from haystack.hooks import HookPoint

from toolgate import ApprovalPending, ConfigurationError, Guard, GuardError, guarded_action
from toolgate_integrations._base import Bridge, ToolActions, ToolCall, valid_on_hold
from toolgate_integrations._haystack_calls import PAUSES, Made, Run, Turn, function_of, run_of, watched
from toolgate_integrations._haystack_messages import answered, divided, waiting
from toolgate_integrations.refusals import refusal_text

__all__ = ["STOPPED", "GuardHook", "OnHold", "RecordHook"]

OnHold = Literal["stop", "wait", "tell"]
logger = logging.getLogger("toolgate")

#: the `exit_reason` of a run that was stopped because calls wait for a person
STOPPED: Final = "approval_pending"


class GuardHook:
    """Asks about every call of a step before any tool of it runs; made by `guard_hooks`.

    Args:
        guard: As for `guard_hooks`.
        tool_actions: As for `guard_hooks`.
        agents: As for `guard_hooks`.
        agent: As for `guard_hooks`.
        on_hold: As for `guard_hooks`.

    Raises:
        ConfigurationError: An argument is wrong.
    """

    allowed_hook_points: ClassVar[tuple[HookPoint, ...]] = ("before_tool",)

    def __init__(
        self,
        guard: Guard | None = None,
        *,
        tool_actions: ToolActions | None = None,
        agents: Mapping[str, str] | None = None,
        agent: str | None = None,
        on_hold: OnHold = "stop",
    ) -> None:
        valid_on_hold(on_hold, "stop")
        if agent is not None and not isinstance(agent, str):
            raise ConfigurationError(f"agent is {agent!r}; pass the agent's name as text")
        self.bridge = Bridge(guard, tool_actions=tool_actions, agents=agents, on_hold=on_hold)
        self._asks_first = Bridge(guard, tool_actions=tool_actions, agents=agents)
        self._on_hold, self._agent = on_hold, agent
        self._written = (
            None
            if guard is not None
            else {"tool_actions": tool_actions, "agents": agents, "agent": agent, "on_hold": on_hold}
        )

    def run(self, state: State) -> None:
        """Ask about the calls the model made; what may not run is answered, and taken out."""
        run, turn = self._begun(state)
        try:
            if self._on_hold == "wait" and len(turn.made) > 1:
                # All of them can be decided while the first is waited for.
                for each in turn.made:
                    self._ask_first(each)
            for each in turn.made:
                with _refusing(each):
                    each.begun = None if _asks_itself(each) else self.bridge.begin(each.asked, PAUSES)
        except BaseException:
            turn.end()
            raise
        self._settle(state, run, turn)

    async def run_async(self, state: State) -> None:
        """As `run`."""
        run, turn = self._begun(state)

        async def ask(made: Made) -> None:
            with _refusing(made):
                made.begun = None if _asks_itself(made) else await self.bridge.abegin(made.asked, PAUSES)

        try:
            ends = await asyncio.gather(*map(ask, turn.made), return_exceptions=True)
        except BaseException:
            turn.end()
            raise
        for error in ends:
            if error is not None:
                turn.end()
                raise error
        self._settle(state, run, turn)

    def asked(self, tool_call: Any, tool: Any, run_id: str | None, agent: str | None) -> ToolCall:
        """A call, as the gateway is to hear of it."""
        return ToolCall(
            tool_call.tool_name,
            tool_call.arguments,
            # Told that it waits, a model calls again, by another name.
            call_id=None if self._on_hold == "tell" else tool_call.id,
            run_id=run_id,
            agent=agent,
            function=function_of(tool),
        )

    def stop(self, state: State, messages: list[ChatMessage], held: Sequence[Made]) -> None:
        """Write the conversation anew, and stop the run if calls of it wait."""
        state.set("messages", messages, handler_override=replace_values)
        if held and self._on_hold == "stop":
            state.set("stop_run", STOPPED)

    def answer(self, made: Made, error: GuardError) -> ChatMessage:
        """What stands in the conversation for a call that did not run."""
        if isinstance(error, ApprovalPending) and self._on_hold == "stop":
            return waiting(made.tool_call, error, made.asked.run_id, made.asked.agent)
        return answered(made.tool_call, refusal_text(error))

    def to_dict(self) -> dict[str, Any]:
        """What the hook is made of again, by the environment's guard.

        Raises:
            ConfigurationError: It has a guard of its own, or a function as `tool_actions`.
        """
        if self._written is None or callable(self._written["tool_actions"]):
            raise ConfigurationError(
                "this hook cannot be written down; make it without guard=, so that the environment's asks, and give "
                "tool_actions as a mapping"
            )
        return default_to_dict(self, **self._written)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> GuardHook:
        """As `to_dict` has written it."""
        return default_from_dict(cls, data)

    def _begun(self, state: State) -> tuple[Run, Turn]:
        run, turn = run_of(state), Turn(self.bridge, [])
        messages = state.data.get("messages") or []
        calls = messages[-1].tool_calls if messages else []
        context = state.data.get("hook_context") or {}
        agent = _text(context, "agent") or self._agent
        # A name of our own keeps calls apart whose ids come again in each run; it is found again after a pause. Told
        # that a call waits, a model may ask again in another run.
        run_id = _text(context, "run_id") or (None if self._on_hold == "tell" else run.run_id)
        tools = {each.name: each for each in state.data.get("tools") or []}
        for call in calls:
            turn.made.append(Made(self.asked(call, tools.get(call.tool_name), run_id, agent), call))
        return run, turn

    def _ask_first(self, made: Made) -> None:
        with suppress(GuardError):
            self._asks_first.waiting(made.asked)

    def _settle(self, state: State, run: Run, turn: Turn) -> None:
        """Leave the framework the calls that may run, as they were approved, and tools that run nothing else."""
        refused = [(each, each.refused) for each in turn.made if each.refused is not None]
        turn.made = [each for each in turn.made if each.refused is None]
        edited = [
            each for each in turn.made if each.begun and each.begun.arguments != each.tool_call.arguments
        ]
        for each in edited:
            if each.begun is not None:
                each.tool_call = replace(each.tool_call, arguments=each.begun.arguments)
        if refused or edited:
            *before, last = state.data["messages"]
            answers = [self.answer(each, error) for each, error in refused]
            parts = divided(last, answers, [each.tool_call for each in turn.made])
            self.stop(state, [*before, *parts], [each for each, error in refused if _is_pending(error)])
        turn.close(state)
        run.hook, run.turn = self, turn
        tools = state.data.get("tools")
        if isinstance(tools, list):
            # In place: it is this list that the framework takes the tools of the step from.
            tools[:] = [watched(each, turn) for each in tools]


class RecordHook:
    """Records what came of the calls of a step, where the tools themselves could not say; made by `guard_hooks`."""

    allowed_hook_points: ClassVar[tuple[HookPoint, ...]] = ("after_tool",)

    def run(self, state: State) -> None:
        """Record, and stop the run for functions that are guarded themselves and wait."""
        run = run_of(state)
        hook, turn = run.hook, run.turn
        run.hook = run.turn = None
        if turn is None or not isinstance(hook, GuardHook):
            return
        messages: list[ChatMessage] = list(state.data["messages"])
        turn.end(messages)
        held = [each for each in turn.made if _is_pending(each.refused)]
        for at, message in enumerate(messages):
            for each in held:
                if each.refused and any(one.origin is each.tool_call for one in message.tool_call_results):
                    messages[at] = hook.answer(each, each.refused)
        if held:
            hook.stop(state, messages, held)

    def to_dict(self) -> dict[str, Any]:
        """What the hook is made of again."""
        return default_to_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RecordHook:
        """As `to_dict` has written it."""
        return default_from_dict(cls, data)


@contextmanager
def _refusing(made: Made) -> Iterator[None]:
    try:
        yield
    except GuardError as error:
        if isinstance(error, ConfigurationError):
            logger.warning("a call of the tool %r was refused: %s", made.asked.name, error)
        made.refused = error


def _asks_itself(made: Made) -> bool:
    return guarded_action(made.asked.function) is not None


def _is_pending(error: GuardError | None) -> bool:
    return isinstance(error, ApprovalPending)


def _text(context: Mapping[str, Any], name: str) -> str | None:
    found = context.get(name)
    if found is not None and not isinstance(found, str):
        raise ConfigurationError(f"hook_context[{name!r}] is {found!r}; pass text, or leave it out")
    return found
