"""Google ADK's `Runner` with a scripted model, its sessions in an SQLite file."""

import asyncio
import warnings
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps.app import App
from google.adk.events import Event
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types
from pydantic import Field

from support.frameworks.harness import Call, Harness, Mode, OnHold, Scene, Seen
from toolgate_integrations.adk import GuardPlugin

ASKED = "adk_request_confirmation"


class Scripted(BaseLlm):
    """A model that makes the calls of each turn, and says "done" after the last."""

    model: str = "scripted"
    turns: list[Any] = Field(default_factory=list)
    asked: list[LlmRequest] = Field(default_factory=list)

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.asked.append(llm_request)
        turn = self.turns.pop(0) if self.turns else ()
        parts = [
            types.Part(
                function_call=types.FunctionCall(id=each.id, name=each.tool, args=dict(each.arguments))
            )
            for each in turn
        ] or [types.Part(text="done")]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


def scripted(*turns: Sequence[Call]) -> Scripted:
    return Scripted(turns=list(turns), asked=[])


def read(model: Scripted) -> dict[str, str]:
    """What the model was shown of each call when it was last asked."""
    parts = [part for each in model.asked[-1].contents for part in each.parts or ()]
    answers = [each.function_response for each in parts if each.function_response is not None]
    return {str(each.id): _said(each.response or {}) for each in answers}


def _said(response: Mapping[str, Any]) -> str:
    return str(response.get("error") or response.get("result") or response)


def said(text: str) -> types.Content:
    """What a user says."""
    return types.Content(role="user", parts=[types.Part(text=text)])


def answer(confirmed: Any, *requests: types.FunctionCall, **more: Any) -> types.Content:
    """What a user answers to requests, as it comes back from wherever they were shown."""
    response = {"confirmed": confirmed, **more}
    answers = [types.FunctionResponse(id=each.id, name=each.name, response=response) for each in requests]
    return types.Content(role="user", parts=[types.Part(function_response=each) for each in answers])


def asked(events: Sequence[Event]) -> list[types.FunctionCall]:
    """The framework's requests among events."""
    return [call for each in events for call in each.get_function_calls() if call.name == ASKED]


def approval(request: types.FunctionCall) -> str:
    """The gateway's request behind one of the framework's."""
    return str((request.args or {})["toolConfirmation"]["payload"]["approval_id"])


def runner(agent: LlmAgent, service: BaseSessionService, *plugins: Any) -> Runner:
    """A runner of an app of one agent."""
    with warnings.catch_warnings():
        # The framework warns of what it calls experimental itself.
        warnings.simplefilter("ignore", UserWarning)
        app = App(name="bank", root_agent=agent, plugins=list(plugins))
    return Runner(app=app, session_service=service)


class AdkSession:
    """One session of one app."""

    def __init__(self, scene: Scene, mode: Mode, file: Path, on_hold: OnHold) -> None:
        self._scene, self._mode, self._file, self._on_hold = scene, mode, file, on_hold
        self._model, self._service = scripted(), SqliteSessionService(str(file))
        tools: list[Any] = list(scene.tools.values())
        agent = LlmAgent(name="treasurer", model=self._model, tools=tools)
        self._runner = runner(agent, self._service, GuardPlugin(scene.guard, on_hold=on_hold))
        self._requests: list[types.FunctionCall] = []

    async def start(self, *calls: Call) -> Seen:
        self._model.turns.append(calls)
        if await self._kept() is None:
            await self._service.create_session(app_name="bank", user_id="ann", session_id="INV-7")
        return await self._run(said("go"))

    async def resume(self, answered: str = "go", only: Sequence[str] | None = None) -> Seen:
        if not self._requests:
            kept = await self._kept()
            self._requests = asked([] if kept is None else kept.events)
        chosen = [each for each in self._requests if only is None or _call_id(each) in only]
        return await self._run(answer(answered == "go", *chosen))

    def restarted(self) -> "AdkSession":
        return AdkSession(self._scene, self._mode, self._file, self._on_hold)

    async def close(self) -> None:
        await self._runner.close()

    async def _kept(self) -> Any:
        return await self._service.get_session(app_name="bank", user_id="ann", session_id="INV-7")

    async def _run(self, message: types.Content) -> Seen:
        given: Any = {"user_id": "ann", "session_id": "INV-7", "new_message": message}
        if self._mode == "sync":
            events = await asyncio.to_thread(lambda: list(self._runner.run(**given)))
        else:
            events = [each async for each in self._runner.run_async(**given)]
        self._requests = asked(events)
        held = {_call_id(each): approval(each) for each in self._requests}
        spoken = [
            part.text for each in events if each.content for part in each.content.parts or () if part.text
        ]
        last = None if held or not spoken else spoken[-1]
        return Seen(held, read(self._model) if self._model.asked else {}, last)


def _call_id(request: types.FunctionCall) -> str:
    return str((request.args or {})["originalFunctionCall"]["id"])


class Adk:
    """Google ADK's runner."""

    name = "adk"
    prefix = "tools"
    modes: Sequence[Mode] = ("sync", "async")
    holds: Sequence[OnHold] = ("pause", "wait", "notify_model", "raise")
    cannot: Mapping[str, str] = {}

    def session(self, scene: Scene, mode: Mode, folder: Path, on_hold: OnHold = "pause") -> AdkSession:
        return AdkSession(scene, mode, folder / "sessions.db", on_hold)


HARNESSES: list[Harness] = [Adk()]
