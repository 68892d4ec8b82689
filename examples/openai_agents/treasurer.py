"""A treasurer: looks, pays, closes; what needs a person pauses the run, and the state outlives the process."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from agents import Agent, RunConfig, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

from toolgate_integrations.openai_agents import GuardedAgent, aresume, guard_agent, settle

TASK = (
    "Ask the clerk for the balance, pay 40 to Eve, and close the account 'old', each with one tool call and in one turn. "
    "Never repeat a refused call. Then say in a few words what was done and what was not."
)
PAUSED = Path("paused.json")


@function_tool
def balance() -> str:
    """Tell the balance."""
    return "120"


@function_tool
def pay(to: str, amount: int) -> str:
    """Send a payment."""
    print(f"* paid {amount} to {to}")
    return f"paid {amount} to {to}"


@function_tool
def close(account: str) -> str:
    """Close an account."""
    print(f"* closed {account}")
    return f"closed {account}"


def treasurer(*, real: bool, fresh: bool) -> GuardedAgent:
    """Return the guarded agent, with a scripted model that continues the current run."""
    models: dict[str, Any] = {} if real else _scripted(fresh=fresh)
    clerk = Agent("clerk", model=models.get("clerk"), tools=[balance])
    ask = clerk.as_tool("ask_clerk", "Ask the clerk about the account.")
    return guard_agent(Agent("treasurer", model=models.get("treasurer"), tools=[ask, pay, close]))


async def go_on(agent: GuardedAgent, kept: str | None) -> tuple[str | None, list[str], str]:
    """Start a run or resume it from a state; return the new state if it paused, the pending calls, and the final output."""
    config = RunConfig(tracing_disabled="OPENAI_API_KEY" not in os.environ)
    if kept is None:
        result = await Runner.run(agent, TASK, run_config=config)
    else:
        result = await aresume(agent, kept, run_config=config)
    if not result.interruptions:
        return None, [], str(result.final_output)
    settled = await settle(agent, result.to_state())
    return settled.state.to_string(), list(settled.waiting.values()), ""


def main() -> None:
    """Run the task, or resume it if an earlier process stopped."""
    kept = PAUSED.read_text() if PAUSED.exists() else None
    agent = treasurer(real="OPENAI_API_KEY" in os.environ, fresh=kept is None)
    with asyncio.Runner() as loop:
        while True:
            kept, waiting, said = loop.run(go_on(agent, kept))
            if kept is None:
                break
            PAUSED.write_text(kept)
            for approval_id in waiting:
                print(f"waits for a person: toolgate approvals approve {approval_id}")
            if not sys.stdin.readline():
                return
    PAUSED.unlink(missing_ok=True)
    print(said)


def _scripted(*, fresh: bool) -> dict[str, Any]:
    calls = [
        function_call("ask_clerk", {"input": "What is the balance?"}, call_id="call-ask"),
        function_call("pay", {"to": "Eve", "amount": 40}, call_id="call-pay"),
        function_call("close", {"account": "old"}, call_id="call-close"),
    ]
    last = [assistant_message("I did what was allowed.")]
    looking = [[function_call("balance", {}, call_id="call-balance")], [assistant_message("120")]]
    return {
        "treasurer": ScriptedModel([calls, last] if fresh else [last]),
        "clerk": ScriptedModel(looking if fresh else []),
    }


if __name__ == "__main__":
    main()
