"""Plugin for AutoGen: `AssistantAgent(…, workbench=GuardedWorkbench([…]))`."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn
from uuid import uuid4

from toolgate import ConfigurationError, Guard, GuardError
from toolgate._telemetry import warn_renamed
from toolgate_integrations._arguments import Received, receive
from toolgate_integrations._options import OnHoldWithoutPause
from toolgate_integrations.base import (
    ArgumentSchema,
    Bridge,
    InvalidArgumentsError,
    JsonSchema,
    ModelSchema,
    ToolActions,
    ToolCall,
    refusal_text,
    require,
)

require("autogen")

from autogen_core import CancellationToken, MessageHandlerContext
from autogen_core.tools import (
    BaseTool,
    FunctionTool,
    StaticWorkbench,
    TextResultContent,
    ToolResult,
    ToolSchema,
    Workbench,
)
from pydantic import BaseModel

__all__ = ["GuardedWorkbench"]


def workbench_of(tools: Workbench | Sequence[BaseTool[Any, Any] | Callable[..., Any]]) -> Workbench:
    """Return a copy of a workbench in which synchronous functions run with the context variables of the tool call.

    The framework runs synchronous functions in another thread, without these variables, which contain the current agent
    id and run id.

    Args:
        tools: A workbench, or a list of tools and functions like that of `AssistantAgent(tools=…)`. It is not
            changed.

    Raises:
        ConfigurationError: `tools` is neither a workbench nor such a list, or two tools have the same name.
    """
    if isinstance(tools, Workbench):
        if not isinstance(tools, StaticWorkbench):
            return tools
        own = copy.copy(tools)
        own._tools = [_carrying(each) for each in tools._tools]  # noqa: SLF001 - there is no public attribute
        return own
    given: object = tools
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise ConfigurationError(f"workbench is {tools!r}; pass a Workbench, or a list of tools or functions")
    made = [_carrying(_tool(each)) for each in tools]
    names = [each.name for each in made]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(
                f"two tools have the name {name!r}, so the model could call only one of them; rename one"
            )
    return StaticWorkbench(made)


def function_of(workbench: Workbench, name: str) -> object:
    """Return the Python function of a workbench's tool, or None for a tool of another process."""
    function = getattr(_tool_of(workbench, name), "_func", None)
    return getattr(function, "toolgate_carries", function)


def schema_of(workbench: Workbench, name: str, listed: Mapping[str, Any]) -> ArgumentSchema:
    """Return the schema with which the arguments of a tool are validated.

    Args:
        workbench: The workbench that contains the tool.
        name: The tool's name in the workbench.
        listed: JSON schemas of the tools that the workbench has listed, by tool name.
    """
    tool = _tool_of(workbench, name)
    if tool is None:
        return JsonSchema(listed.get(name))
    return ModelSchema(tool.args_type())


def framework_call() -> Any:
    """Return the framework's coroutine that executes the current tool call, or None if no agent executes it."""
    task = asyncio.current_task()
    call = None if task is None else task.get_coro()
    return call if getattr(call, "__name__", None) == "_execute_tool_call" else None


def call_on_cancellation(then: Callable[[], object]) -> None:
    """Call `then` as soon as the run that makes the current tool call is cancelled.

    AutoGen does not cancel the tool calls of a cancelled run. While a tool runs, the agent's run waits for an event
    from a queue. The future on which it waits is cancelled together with the run; a callback of this future calls
    `then`. The queue is read from a local variable of the framework's coroutine. If no agent makes the call, `then` is
    never called.
    """
    call = framework_call()
    events = None if call is None else call.cr_frame.f_locals.get("stream")

    def watch() -> None:
        for waits in getattr(events, "_getters", ()):
            waits.add_done_callback(woken)

    def woken(waits: asyncio.Future[Any]) -> None:
        if waits.cancelled():
            then()
        else:
            # The run received an event, and now waits for the next one on a new future, which must be watched too.
            watch()

    watch()


def _tool_of(workbench: Workbench, name: str) -> BaseTool[Any, Any] | None:
    if not isinstance(workbench, StaticWorkbench):
        return None
    own = workbench._override_name_to_original.get(name, name)  # noqa: SLF001 - there is no public attribute
    return next((each for each in workbench._tools if each.name == own), None)  # noqa: SLF001 - there is no public attribute


def _tool(given: BaseTool[Any, Any] | Callable[..., Any]) -> BaseTool[Any, Any]:
    if isinstance(given, BaseTool):
        return given
    if not callable(given):
        raise ConfigurationError(f"{given!r} is not a tool; pass a function or a BaseTool")
    return FunctionTool(given, description=getattr(given, "__doc__", None) or "")


def _carrying(tool: BaseTool[Any, Any]) -> BaseTool[Any, Any]:
    """Return a copy of a tool whose synchronous function runs in a thread with the context variables of the call.

    A tool without a synchronous function is returned unchanged.
    """
    function = getattr(tool, "_func", None)
    if not isinstance(tool, FunctionTool) or function is None or asyncio.iscoroutinefunction(function):
        return tool

    async def carried(**arguments: Any) -> Any:
        return await asyncio.to_thread(function, **arguments)

    carried.toolgate_carries = function  # type: ignore[attr-defined]  # `function_of` reads this attribute
    own = copy.copy(tool)
    own._func = carried  # noqa: SLF001 - there is no public attribute
    return own


logger = logging.getLogger("toolgate")


class GuardedWorkbench(Workbench):
    """Workbench that checks and logs every tool call of another workbench.

    Args:
        workbench: The workbench, or a list of tools and functions.
        guard: The guard that sends the checks; None for the default guard, which `toolgate.configure` can set.
        tool_actions: Actions by tool name, as a mapping or a function of the name. The default action is
            `tools.<name>`.
        agents: Toolgate agent ids by the names of the agents. All other agents use the guard's agent id.
        agent: Name of the agent that has the workbench; None to use the name of the team's agent that makes a call.
        on_hold: Reaction to a call that requires an approval. `wait`: wait for the approver within the run. `raise`:
            end the run with `ApprovalPending`. `notify_model`: the model reads that the call is pending.
        hold_timeout: Seconds to wait for the approver with `on_hold="wait"`; afterwards, the model reads that the call
            is pending. None for no limit.
        agent_name: Deprecated name of `agent`.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    component_config_schema = BaseModel

    def __init__(
        self,
        workbench: Workbench | Sequence[BaseTool[Any, Any] | Callable[..., Any]],
        guard: Guard | None = None,
        *,
        tool_actions: ToolActions | None = None,
        agents: Mapping[str, str] | None = None,
        agent: str | None = None,
        on_hold: OnHoldWithoutPause = "notify_model",
        hold_timeout: float | None = None,
        agent_name: str | None = None,
    ) -> None:
        if isinstance(workbench, GuardedWorkbench):
            raise ConfigurationError("the workbench is already guarded; guard it only once")
        self._bridge = Bridge(guard, tool_actions, agents, on_hold, hold_timeout)
        self._workbench = workbench_of(workbench)
        if agent_name is not None:
            warn_renamed("agent_name", "agent")
        self._agent_name = agent_name if agent is None else agent
        # True if checks contain the call id. The id is omitted if the model has to repeat a pending call, because the
        # repeated call has a new id, which the approval would not cover.
        self._names_calls = self._bridge.names_calls
        # The run id distinguishes equal call ids: some model clients restart the numbering of calls in each process.
        self._run_id = str(uuid4())
        self._called: OrderedDict[str, None] = OrderedDict()
        self._listed: list[ToolSchema] = []
        self._setup_error: Exception | None = None

    async def list_tools(self) -> list[ToolSchema]:
        """Return the tools for the model.

        If the tools cannot be listed during a call, the tools that were listed last are returned.

        Raises:
            ConfigurationError: An earlier call was not carried out because a setting or the API key is wrong. The
                error is raised here, before the model is called again, because an exception of the call itself would
                not end the run.
            GatewayProtocolError: As for `ConfigurationError`.
        """
        if self._setup_error is not None and framework_call() is None:
            error, self._setup_error = self._setup_error, None
            raise error
        try:
            self._listed = await self._workbench.list_tools()
        except Exception as error:
            # While a tool call is executed, an exception would make the run wait forever, so it is only logged. The
            # call itself fails with the same error, which the model reads.
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
        """Check a call, run the tool, and log the outcome.

        Errors are returned as results, because an exception of a workbench would make the run wait forever.

        Raises:
            asyncio.CancelledError: The task that executes the call was cancelled directly, and not by the
                cancellation token.
        """
        begun = asyncio.Event()
        work = asyncio.ensure_future(self._carry_out(name, arguments, cancellation_token, call_id, begun))
        if cancellation_token is not None:
            cancellation_token.link_future(work)
        call_on_cancellation(lambda: begun.is_set() or work.cancel())
        try:
            return await work
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return _error(name, "Not done: the call was cancelled.")
        except GuardError as error:
            if isinstance(error, self._bridge.fatal):
                self._setup_error = error
            return _error(name, refusal_text(error))
        except (KeyboardInterrupt, SystemExit):
            raise
        # `BaseException` is caught because some of the framework's own exceptions are not subclasses of `Exception`.
        except BaseException as error:
            logger.warning("a call to the tool %r failed", name, exc_info=error)
            return _error(name, str(error) or type(error).__name__)

    async def start(self) -> None:
        """Start the original workbench."""
        await self._workbench.start()

    async def stop(self) -> None:
        """Stop the original workbench."""
        await self._workbench.stop()

    async def reset(self) -> None:
        """Reset the original workbench."""
        await self._workbench.reset()

    async def save_state(self) -> Mapping[str, Any]:
        """Return the state of the original workbench; the guard itself has no state to save."""
        return await self._workbench.save_state()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Load a state into the original workbench."""
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
            return _error(
                name, "Not done: the arguments are not an object. Call the tool again with named arguments."
            )

        listed = {each["name"]: each.get("parameters") for each in self._listed}
        try:
            received = receive(given, schema_of(self._workbench, name, listed))
        except InvalidArgumentsError as error:
            # The message is the same as the one that the framework's own workbench returns for invalid arguments.
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
                # In a team, an agent's type consists of its name, an underscore and the team's id.
                agent = acting.type.removesuffix(f"_{acting.key}")
        return ToolCall(
            name,
            received.values,
            call_id=self._once(call_id),
            # The run id is random for each workbench, and an approval is bound to it. If the model has to repeat a
            # call, another process may do that, so no run id is sent then.
            run_id=self._run_id if self._names_calls else None,
            agent=agent,
            function=function_of(self._workbench, name),
            received=received,
        )

    def _once(self, call_id: str | None) -> str | None:
        """Return the call id to send with a check; None if ids are not sent, or an earlier call had the same id."""
        if not call_id or not self._names_calls or call_id in self._called:
            return None
        self._called[call_id] = None
        if len(self._called) > _MOST:
            self._called.popitem(last=False)
        return call_id

    def _to_config(self) -> NoReturn:
        raise ConfigurationError(
            "a guarded workbench cannot be saved as configuration, because an agent loaded from it would "
            "be unguarded; create the agent in code"
        )

    @classmethod
    def _from_config(cls, config: BaseModel) -> NoReturn:
        raise ConfigurationError(
            f"a guarded workbench cannot be loaded from the configuration {config!r}; create the agent in code"
        )


def _failed(result: ToolResult) -> str | None:
    return result.to_text(replace_image="[image]") if result.is_error else None


def _error(name: str, text: str) -> ToolResult:
    return ToolResult(name=name, result=[TextResultContent(content=text)], is_error=True)


# Maximum number of remembered call ids; a run makes far fewer calls.
_MOST: Final = 4096
