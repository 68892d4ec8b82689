"""LlamaIndex's `FunctionAgent`, alone and in an `AgentWorkflow`, its context kept in a file, and its own mock model."""

import json
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from llama_index.core.agent.workflow import AgentOutput, AgentWorkflow, FunctionAgent, ToolCallResult
from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
from workflows.context.serializers import PickleSerializer
from workflows.events import StopEvent, WorkflowIdleEvent

from support.frameworks.harness import Call, Harness, Mode, OnHold, Scene, Seen
from toolgate_integrations.llamaindex import guard_agent

# With pydantic 2.14 the framework's memory cannot be written as JSON.
SERIALIZER = PickleSerializer()


#: the framework looks through all names of its agents, and so touches those that pydantic has given up
OLD_NAMES = (
    "The `__fields__` attribute is deprecated",
    "The `__fields_set__` attribute is deprecated",
    "Accessing the 'model_(computed_)?fields' attribute on the instance",
)


@contextmanager
def silenced() -> Iterator[None]:
    """While agents are made and run."""
    with warnings.catch_warnings():
        for each in OLD_NAMES:
            warnings.filterwarnings("ignore", each)
        yield


class Script:
    """What a model says, turn by turn; "done" after the last."""

    def __init__(self, *turns: Sequence[Call]) -> None:
        self.turns = list(turns)

    def __call__(self, messages: Sequence[ChatMessage], **_: Any) -> ChatMessage:
        if not self.turns:
            return ChatMessage(role="assistant", content="done")
        blocks = [
            ToolCallBlock(tool_call_id=each.id, tool_name=each.tool, tool_kwargs=dict(each.arguments))
            for each in self.turns.pop(0)
        ]
        return ChatMessage(role="assistant", blocks=blocks)


def agent(script: Script, tools: Sequence[Any], **options: Any) -> FunctionAgent:
    """An agent with a scripted model."""
    model = MockFunctionCallingLLM(response_generator=script, is_chat_model=True)
    options = {"name": "treasurer", "description": "Pays.", **options}
    return FunctionAgent(tools=list(tools), llm=model, **options)


class Run:
    """A run that is looked at whenever it ends or waits."""

    def __init__(self, handler: Any) -> None:
        self.handler = handler
        self._events: AsyncIterator[Any] = handler.stream_events(expose_internal=True)
        self.asked: dict[str, InputRequiredEvent] = {}
        self.answered: list[str] = []
        self.output: AgentOutput | None = None

    async def end(self) -> "Run":
        """Go on until the run ends."""
        while self.output is None:
            await self.on()
        return self

    async def on(self) -> "Run":
        """Go on until the run ends, or nothing happens any more."""
        async for event in self._events:
            if isinstance(event, InputRequiredEvent):
                self.asked[event.tool_id] = event
            elif isinstance(event, ToolCallResult):
                self.answered.append(event.tool_id)
            elif isinstance(event, StopEvent):
                self.output = await self.handler
                break
            elif isinstance(event, WorkflowIdleEvent):
                break
        return self

    def answer(self, approval_id: str, response: Any = "yes", **said: Any) -> None:
        """Answer a request in the framework's own way."""
        event = HumanResponseEvent(response=response, approval_id=approval_id, **said)
        self.handler.ctx.send_event(event)

    async def read(self) -> dict[str, str]:
        """What the model has read of each call."""
        memory = await self.handler.ctx.store.get("memory")
        return {
            each.additional_kwargs["tool_call_id"]: str(each.content)
            for each in await memory.aget_all()
            if each.role.value == "tool"
        }

    def kept(self) -> str:
        """The state, as a process would keep it."""
        return json.dumps(self.handler.ctx.to_dict(serializer=SERIALIZER))


class LlamaIndexSession:
    """One conversation of one agent."""

    def __init__(self, scene: Scene, file: Path, on_hold: Any, made: Callable[..., Any]) -> None:
        self._scene, self._file, self._on_hold, self._made = scene, file, on_hold, made
        self._quiet = ExitStack()
        self._quiet.enter_context(silenced())
        self._script = Script()
        made_of = made(self._script, list(scene.tools.values()))
        self._agent = guard_agent(made_of, scene.guard, on_hold=on_hold)
        self._held: dict[str, str] = {}
        self._run: Run | None = None
        self._context = Context(self._agent, serializer=SERIALIZER)

    async def start(self, *calls: Call) -> Seen:
        self._script.turns.append(calls)
        self._run = Run(self._agent.run(user_msg="go", ctx=self._context))
        return await self._on()

    async def resume(self, answer: str = "go", only: Sequence[str] | None = None) -> Seen:
        run = await self._running()
        for call_id in [each for each in self._held if only is None or each in only]:
            run.answer(self._held.pop(call_id), "yes" if answer == "go" else "no", reason="no")
        return await self._on()

    def restarted(self) -> "LlamaIndexSession":
        return LlamaIndexSession(self._scene, self._file, self._on_hold, self._made)

    async def close(self) -> None:
        if self._run is not None:
            await self._run.handler.cancel_run()
        self._quiet.close()

    async def _running(self) -> Run:
        if self._run is None:
            kept = json.loads(self._file.read_text())
            self._held = kept["held"]
            context = Context.from_dict(self._agent, kept["context"], serializer=SERIALIZER)
            self._run = await Run(self._agent.run(ctx=context)).on()
        return self._run

    async def _on(self) -> Seen:
        run = await (await self._running()).on()
        self._held |= {call_id: asked.approval_id for call_id, asked in run.asked.items()}
        run.asked.clear()
        self._file.write_text(json.dumps({"held": self._held, "context": json.loads(run.kept())}))
        text = None if run.output is None else str(run.output.response.content)
        return Seen(dict(self._held), await run.read(), text)


class LlamaIndex:
    """LlamaIndex's agent."""

    name = "llamaindex"
    prefix = "tools"
    modes: Sequence[Mode] = ("async",)
    holds: Sequence[OnHold] = ("pause", "wait", "notify_model", "raise")
    cannot: Mapping[str, str] = {}

    def session(self, scene: Scene, mode: Mode, folder: Path, on_hold: OnHold = "pause") -> LlamaIndexSession:
        word = on_hold
        return LlamaIndexSession(scene, folder / "context.json", word, self.made)

    def made(self, script: Script, tools: Sequence[Any]) -> Any:
        return agent(script, tools)


class LlamaIndexWorkflow(LlamaIndex):
    """LlamaIndex's workflow of agents."""

    name = "llamaindex-workflow"

    def made(self, script: Script, tools: Sequence[Any]) -> Any:
        return AgentWorkflow(agents=[agent(script, tools)])


HARNESSES: list[Harness] = [LlamaIndex(), LlamaIndexWorkflow()]
