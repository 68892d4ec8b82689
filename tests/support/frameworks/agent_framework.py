"""Microsoft Agent Framework's `Agent` with a scripted chat client, its session kept as JSON in a file."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
)

from support.frameworks.harness import Call, Harness, Mode, OnHold, Scene, Seen
from toolgate_integrations.agent_framework import GuardMiddleware


class Scripted(FunctionInvocationLayer[Any], BaseChatClient[Any]):
    """A client whose model makes the calls of each turn, and says "done" after the last."""

    def __init__(self, *turns: Sequence[Call], **options: Any) -> None:
        super().__init__(**options)
        self.turns = list(turns)
        self.asked: list[list[Message]] = []

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_kwargs: Any) -> Any:
        self.asked.append(list(messages))
        turn = self.turns.pop(0) if self.turns else ()
        contents = [
            Content.from_function_call(
                call_id=each.id, name=each.tool, arguments=json.dumps(dict(each.arguments))
            )
            for each in turn
        ] or [Content.from_text("done")]

        async def whole() -> ChatResponse[Any]:
            return ChatResponse(messages=[Message(role="assistant", contents=contents)])

        async def pieces() -> Any:
            yield ChatResponseUpdate(role="assistant", contents=contents)

        return ResponseStream(pieces(), finalizer=ChatResponse.from_updates) if stream else whole()


def read(client: Scripted) -> dict[str, str]:
    """What the model was shown of each call when it was last asked."""
    shown = [each for message in client.asked[-1] for each in message.contents]
    return {str(each.call_id): str(each.result) for each in shown if each.type == "function_result"}


def answer(request: Content, approved: bool) -> Message:
    """What a paused run is gone on with, as it comes back from wherever it was kept."""
    kept = Content.from_dict(json.loads(json.dumps(request.to_dict())))
    return Message(role="user", contents=[kept.to_function_approval_response(approved)])


class AgentFrameworkSession:
    """One session of one agent."""

    def __init__(self, scene: Scene, mode: Mode, file: Path, on_hold: OnHold) -> None:
        self._scene, self._mode, self._file, self._on_hold = scene, mode, file, on_hold
        self._client = Scripted()
        self._agent = Agent(
            client=self._client,
            name="treasurer",
            tools=list(scene.tools.values()),
            middleware=[*GuardMiddleware(scene.guard, on_hold=on_hold)],
        )
        self._session, self._requests = AgentSession(), list[Content]()
        if file.exists():
            kept = json.loads(file.read_text())
            self._session = AgentSession.from_dict(kept["session"])
            self._requests = [Content.from_dict(each) for each in kept["requests"]]

    async def start(self, *calls: Call) -> Seen:
        self._client.turns.append(calls)
        return await self._run("go")

    async def resume(self, answered: str = "go", only: Sequence[str] | None = None) -> Seen:
        chosen = [each for each in self._requests if only is None or _call_id(each) in only]
        contents = [each.to_function_approval_response(answered == "go") for each in chosen]
        return await self._run(Message(role="user", contents=contents))

    def restarted(self) -> "AgentFrameworkSession":
        return AgentFrameworkSession(self._scene, self._mode, self._file, self._on_hold)

    async def close(self) -> None:
        pass

    async def _run(self, given: Any) -> Seen:
        if self._mode == "async":
            result = await self._agent.run(given, session=self._session)
        else:
            result = await self._agent.run(given, session=self._session, stream=True).get_final_response()
        self._requests = list(result.user_input_requests)
        requests = [each.to_dict() for each in self._requests]
        self._file.write_text(json.dumps({"session": self._session.to_dict(), "requests": requests}))
        held = {_call_id(each): each.additional_properties["approval_id"] for each in self._requests}
        return Seen(held, read(self._client) if self._client.asked else {}, None if held else result.text)


def _call_id(request: Content) -> str:
    assert request.function_call is not None
    return str(request.function_call.call_id)


class AgentFramework:
    """Microsoft Agent Framework's agent."""

    name = "agent_framework"
    prefix = "tools"
    modes: Sequence[Mode] = ("async", "stream")
    holds: Sequence[OnHold] = ("pause", "wait", "notify_model", "raise")
    cannot: Mapping[str, str] = {}

    def session(
        self, scene: Scene, mode: Mode, folder: Path, on_hold: OnHold = "pause"
    ) -> AgentFrameworkSession:
        return AgentFrameworkSession(scene, mode, folder / "session.json", on_hold)


HARNESSES: list[Harness] = [AgentFramework()]
