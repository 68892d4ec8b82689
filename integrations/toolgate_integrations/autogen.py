"""AutoGen: `AssistantAgent(…, workbench=GuardedWorkbench([…]))`."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NoReturn
from uuid import uuid4

from toolgate import ConfigurationError, Guard, GuardError
from toolgate_integrations._arguments import InvalidArgumentsError, Received, receive
from toolgate_integrations._base import Bridge, ToolActions, ToolCall, require, valid_on_hold
from toolgate_integrations._setup_errors import SETUP_ERRORS
from toolgate_integrations.refusals import refusal_text

require("autogen")

from autogen_core import CancellationToken, MessageHandlerContext
from autogen_core.tools import BaseTool, TextResultContent, ToolResult, ToolSchema, Workbench
from pydantic import BaseModel

from toolgate_integrations._autogen_tools import (
    framework_call,
    function_of,
    schema_of,
    when_left,
    workbench_of,
)

__all__ = ["GuardedWorkbench"]

OnHold = Literal["wait", "tell"]
logger = logging.getLogger("toolgate")


class GuardedWorkbench(Workbench):
    """Guards every tool call of a workbench.

    Args:
        workbench: The workbench, or a list of tools and functions to make one of.
        guard: The guard that asks; None is the environment's.
        tool_actions: Actions of tools by their names: a mapping, or a function of the name. Others are
            `tools.<name>`.
        agents: Agent ids by the names of the agents.
        agent_name: The name of the agent that has the workbench; None takes the agent of the team whose turn it is.
        on_hold: What a held call does: `wait` waits for the person within the run, `tell` lets the model read
            that it waits.
        hold_timeout: Seconds to wait, after which the model reads that the call waits; None waits as long as it
            takes.

    Raises:
        ConfigurationError: An argument is wrong.
    """

    component_config_schema = BaseModel

    def __init__(
        self,
        workbench: Workbench | Sequence[BaseTool[Any, Any] | Callable[..., Any]],
        guard: Guard | None = None,
        *,
        tool_actions: ToolActions | None = None,
        agents: Mapping[str, str] | None = None,
        agent_name: str | None = None,
        on_hold: OnHold = "wait",
        hold_timeout: float | None = None,
    ) -> None:
        valid_on_hold(on_hold)
        if isinstance(workbench, GuardedWorkbench):
            raise ConfigurationError(
                "the workbench is guarded already, and each call would be asked about twice"
            )
        self._bridge = Bridge(
            guard, tool_actions=tool_actions, agents=agents, on_hold=on_hold, hold_timeout=hold_timeout
        )
        self._workbench = workbench_of(workbench)
        self._agent_name = agent_name
        # Told that it waits, a model calls again: by another id, for which the approval would be of no use.
        self._names_calls = on_hold == "wait" and hold_timeout is None
        # Ids of calls are a model client's own count sometimes, which begins anew in each process.
        self._run_id = str(uuid4())
        self._called: OrderedDict[str, None] = OrderedDict()
        self._listed: list[ToolSchema] = []
        self._setup_error: Exception | None = None

    async def list_tools(self) -> list[ToolSchema]:
        """The tools, as the model is told of them; where a call is carried out at least those it was told of last.

        Raises:
            ConfigurationError: A call was not carried out because of the settings or the API key: before the model is
                called again, an exception still ends the run.
            GatewayProtocolError: As for `ConfigurationError`.
        """
        if self._setup_error is not None and framework_call() is None:
            error, self._setup_error = self._setup_error, None
            raise error
        try:
            self._listed = await self._workbench.list_tools()
        except Exception as error:
            # Raised there, it would have the run wait forever; the call says as well what is wrong.
            if framework_call() is None:
                raise
            logger.warning("the tools of a workbench could not be listed", exc_info=error)
        return self._listed

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """Ask, let the tool run, record; whatever happens is a result, for a run whose tool raises never ends.

        Raises:
            asyncio.CancelledError: The task of the call itself was cancelled, and not by the token.
        """
        begun = asyncio.Event()
        work = asyncio.ensure_future(self._carry_out(name, arguments, cancellation_token, call_id, begun))
        if cancellation_token is not None:
            cancellation_token.link_future(work)
        when_left(lambda: begun.is_set() or work.cancel())
        try:
            return await work
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return _error(name, "Not done: it was cancelled.")
        except GuardError as error:
            if isinstance(error, SETUP_ERRORS):
                self._setup_error = error
            return _error(name, refusal_text(error))
        except (KeyboardInterrupt, SystemExit):
            raise
        # Some of the framework's own exceptions are no `Exception`.
        except BaseException as error:
            logger.warning("a call of the tool %r ended with an error", name, exc_info=error)
            return _error(name, str(error) or type(error).__name__)

    async def start(self) -> None:
        """Start the workbench."""
        await self._workbench.start()

    async def stop(self) -> None:
        """Stop the workbench."""
        await self._workbench.stop()

    async def reset(self) -> None:
        """Reset the workbench."""
        await self._workbench.reset()

    async def save_state(self) -> Mapping[str, Any]:
        """The workbench's state; of the guard there is none."""
        return await self._workbench.save_state()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Load the workbench's state."""
        await self._workbench.load_state(state)

    async def _carry_out(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        token: CancellationToken | None,
        call_id: str | None,
        begun: asyncio.Event,
    ) -> ToolResult:
        given: object = {} if arguments is None else arguments
        if not isinstance(given, Mapping):
            return _error(name, "Not done: the arguments are not given by name. Ask for it again with names.")

        listed = {each["name"]: each.get("parameters") for each in self._listed}
        try:
            received = receive(given, schema_of(self._workbench, name, listed))
        except InvalidArgumentsError as error:
            # As the framework's own workbench says it.
            return _error(name, str(error.__cause__))
        call = self._named(name, received, call_id)

        async def run(approved: dict[str, Any]) -> ToolResult:
            begun.set()
            return await self._workbench.call_tool(name, call.to_send(approved), token, call_id)

        return await self._bridge.arun(call, run, _failed)

    def _named(self, name: str, received: Received, call_id: str | None) -> ToolCall:
        agent = self._agent_name
        if agent is None:
            try:
                acting = MessageHandlerContext.agent_id()
            except RuntimeError:
                pass
            else:
                # In a team an agent's type is its name, and the team's id.
                agent = acting.type.removesuffix(f"_{acting.key}")
        return ToolCall(
            name,
            received.values,
            call_id=self._once(call_id),
            # A team has another id in each process, and an approval of that would be of no use to the next.
            run_id=self._run_id if self._names_calls else None,
            agent=agent,
            function=function_of(self._workbench, name),
            received=received,
        )

    def _once(self, call_id: str | None) -> str | None:
        """The id of a call that is to be known by it: not one that another call has had here."""
        if not call_id or not self._names_calls or call_id in self._called:
            return None
        self._called[call_id] = None
        if len(self._called) > _MOST:
            self._called.popitem(last=False)
        return call_id

    def _to_config(self) -> NoReturn:
        raise ConfigurationError(
            "a guarded workbench cannot be written as configuration: the agent that is made of it would go unguarded; "
            "make the agent in code"
        )

    @classmethod
    def _from_config(cls, config: BaseModel) -> NoReturn:
        raise ConfigurationError(f"a guarded workbench cannot be made of {config!r}; make the agent in code")


def _failed(result: ToolResult) -> str | None:
    return result.to_text(replace_image="[image]") if result.is_error else None


def _error(name: str, text: str) -> ToolResult:
    return ToolResult(name=name, result=[TextResultContent(content=text)], is_error=True)


# Far more than a run makes.
_MOST: Final = 4096
