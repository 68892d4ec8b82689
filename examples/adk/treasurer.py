"""Google ADK agent whose payments require an approval, and whose session is resumed in another process."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps.app import App
from google.adk.events import Event
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from toolgate_integrations.adk import GuardPlugin

INVOICES = {"INV-7": 120.5}
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("read_invoice", {"number": "INV-7"}),
    ("pay_invoice", {"number": "INV-7", "amount": 120.5}),
)
SESSION: dict[str, str] = {"user_id": "ann", "session_id": "INV-7"}


def read_invoice(number: str) -> str:
    """Look at an invoice."""
    return f"{number}: {INVOICES[number]:.2f} euros, from Ada Ltd."


def pay_invoice(number: str, amount: float) -> str:
    """Pay an invoice."""
    with Path(os.environ.get("PAYMENTS_FILE", "payments.txt")).open("a") as payments:
        payments.write(f"{number} {amount:.2f}\n")
    return f"paid {amount:.2f} for {number}"


class Scripted(BaseLlm):
    """Scripted model for runs without an API key."""

    model: str = "scripted"

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,  # noqa: FBT001, FBT002 - the framework's signature
    ) -> AsyncGenerator[LlmResponse, None]:
        """Make the next call, or say what came of the last."""
        del stream
        parts = [part for each in llm_request.contents for part in each.parts or ()]
        results = [each.function_response for each in parts if each.function_response is not None]
        if len(results) < len(CALLS):
            name, arguments = CALLS[len(results)]
            said = types.Part(function_call=types.FunctionCall(name=name, args=arguments))
        else:
            last = results[-1].response or {}
            told = last.get("result") or last.get("error")
            said = types.Part(text=f"I read INV-7. Result of the payment: {told}")
        yield LlmResponse(content=types.Content(role="model", parts=[said]))


def waiting(events: list[Event]) -> list[types.FunctionCall]:
    """The framework's requests among events."""
    calls = [call for each in events for call in each.get_function_calls()]
    return [each for each in calls if each.name == "adk_request_confirmation"]


async def run(file: str) -> str:
    """Start a run, or resume the last one. The session contains its state.

    Returns:
        The model's last words, or what waits for a person.
    """
    agent = LlmAgent(
        name="treasurer",
        model=os.environ.get("ADK_MODEL") or Scripted(),
        instruction="Call one tool at a time. Say in one sentence what was done and what was not.",
        tools=[read_invoice, pay_invoice],
    )
    sessions = SqliteSessionService(file)
    runner = Runner(app=App(name="bank", root_agent=agent, plugins=[GuardPlugin()]), session_service=sessions)
    session = await sessions.get_session(app_name="bank", **SESSION)
    if session is None:
        await sessions.create_session(app_name="bank", **SESSION)
        parts = [types.Part(text="Read invoice INV-7, then pay it.")]
    else:
        # It only wakes the run: whether the payment is approved is what the gateway is asked.
        yes = {"confirmed": True}
        answers = {
            each.id: types.FunctionResponse(id=each.id, name=each.name, response=yes)
            for each in waiting(session.events)
        }
        parts = [types.Part(function_response=each) for each in answers.values()]
    message = types.Content(role="user", parts=parts)
    events = [each async for each in runner.run_async(**SESSION, new_message=message)]
    await runner.close()
    held = [(each.args or {})["toolConfirmation"]["payload"] for each in waiting(events)]
    if held:
        return "\n".join(
            f"waits for a person: {each['action']}, approval {each['approval_id']}" for each in held
        )
    spoken = [part.text for each in events if each.content for part in each.content.parts or () if part.text]
    return spoken[-1]


if __name__ == "__main__":
    print(asyncio.run(run(sys.argv[1] if len(sys.argv) > 1 else "treasurer.db")))
