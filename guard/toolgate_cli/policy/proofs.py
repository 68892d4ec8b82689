"""Proof that a candidate policy treats no call more leniently than the current policy, and its counterexample."""

from collections.abc import Mapping
from http import HTTPStatus
from itertools import count
from typing import Any, Final, Protocol

import typer

from toolgate_cli.agents import iter_agents
from toolgate_cli.client import GatewayClient, GatewayError
from toolgate_cli.entry_points import import_gateway
from toolgate_cli.layout import Layout
from toolgate_cli.output import print_progress, sanitize, terminal_width
from toolgate_cli.policy.documents import Document
from toolgate_cli.policy.plans import Plan, post

#: time limit of the search in seconds
SECONDS: Final = 5.0
PROVEN: Final = "proven"
WIDENED: Final = "widened"
NOT_PROVEN: Final = "not_proven"


class Suggestion(Protocol):
    """Interface of a suggested candidate."""

    agent_id: str
    action: str
    condition: str
    policy: dict[str, Any]


def search_proof(client: GatewayClient, plan: Plan, document: Document, environment: str) -> dict[str, Any]:
    """Return the proof as JSON: `status`, `reasons`, and for a counterexample `call` with the results `old` and `new`.

    The results of a counterexample are those of the gateway, which evaluates the call for both policies.
    """
    print_progress("searching for a call for which the new policy is more lenient")
    proof = _prove(client, plan.policy, document.value, environment)
    call = proof["call"]
    if call is None:
        return proof
    # The current policy does not contain an agent that is new; its calls are denied.
    old = _evaluate(client, None, call, environment) or proof["old"] | {
        "reason": "the current policy does not contain this agent"
    }
    new = _evaluate(client, document.value, call, environment)
    if new is None or (old["outcome"], old["approval"]) == (new["outcome"], new["approval"]):
        return _not_proven(
            "a call was found for which the new policy may be more lenient, but the gateway decides it as "
            "before",
            call,
        )
    return proof | {"old": old, "new": new}


def prove_suggestion(
    client: GatewayClient, current: Mapping[str, Any], suggestion: Suggestion, environment: str
) -> dict[str, Any]:
    """Return the proof, as JSON, that a suggestion treats only calls more leniently that its condition covers.

    The current policy is compared with the suggestion in which a rule forbids the covered calls: if nothing new is allowed,
    then only the covered calls are.
    """
    names = {rule["name"] for rule in suggestion.policy["rules"]}
    name = next(one for number in count(1) if (one := f"covered by the suggestion {number}") not in names)
    covered = {
        "name": name,
        "effect": "forbid",
        "agents": [suggestion.agent_id],
        "actions": [suggestion.action],
        "when": suggestion.condition,
    }
    restricted = suggestion.policy | {"rules": [*suggestion.policy["rules"], covered]}
    return _prove(client, current, restricted, environment)


def print_proof(proof: Mapping[str, Any]) -> None:
    """Print the result of `search_proof`."""
    if proof["status"] == PROVEN:
        typer.echo("proven: the new policy is not more lenient than the current one for any call")
        return
    if proof["status"] != WIDENED:
        typer.echo("not proven: " + "; ".join(map(sanitize, proof["reasons"])))
        return
    typer.echo("the new policy is more lenient for this call:")
    print_call(proof["call"])
    typer.echo(f"  current policy: {_result(proof['old'])}")
    typer.echo(f"  new policy:     {_result(proof['new'])}")


def print_call(call: Mapping[str, Any]) -> None:
    """Print the call of a counterexample with its arguments."""
    run = "" if call["run_id"] is None else f", run {sanitize(call['run_id'])}"
    typer.echo(
        f"  {sanitize(call['agent'])} calls {sanitize(call['action'])}{run}, at {sanitize(call['now'])}"
    )
    for line in Layout(terminal_width()).context(call["context"]):
        typer.echo(line)


def _prove(
    client: GatewayClient, old: Mapping[str, Any], new: Mapping[str, Any], environment: str
) -> dict[str, Any]:
    agents = [(agent.id, agent.name) for agent, _ in iter_agents(client, environment)]
    try:
        proof: dict[str, Any] = import_gateway("policy").prove_change(old, new, agents, SECONDS)
    except ModuleNotFoundError as error:
        return _not_proven(f"{error.name!r} is missing; install it with: pip install 'toolgate[prove]'")
    return proof


def _not_proven(reason: str, call: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"status": NOT_PROVEN, "reasons": [reason], "call": call}


def _evaluate(
    client: GatewayClient, policy: Any, call: Mapping[str, Any], environment: str
) -> dict[str, Any] | None:
    """Return the gateway's result for a call; None if the policy has no such agent."""
    asked = {name: call[name] for name in ("action", "context", "run_id", "now")} | {
        "agent": call["agent_id"]
    }
    try:
        found = post(client, "/evaluate", {"policy": policy, "calls": [asked]}, environment, None)
    except GatewayError as error:
        if error.status == HTTPStatus.BAD_REQUEST and error.detail.startswith("calls.0.agent"):
            return None
        raise
    judgement: dict[str, Any] = found[0]
    return judgement


def _result(judgement: Mapping[str, Any]) -> str:
    text = sanitize(str(judgement["outcome"]).replace("_", " "))
    terms = judgement.get("approval")
    if terms:
        text += f" ({terms['quorum']} approvers)" if terms["quorum"] > 1 else ""
    reason = judgement.get("reason")
    return text if reason is None else f"{text}: {sanitize(reason)}"
