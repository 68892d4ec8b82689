"""``toolgate policy suggest``: candidates that allow calls that people have approved again and again."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic import BaseModel

from toolgate_cli.client import GatewayClient, Query, parse_model
from toolgate_cli.credentials import stored_session
from toolgate_cli.options import AsJson, Environment, EnvironmentOption, parse_duration
from toolgate_cli.output import fail, print_json, print_progress, sanitize
from toolgate_cli.policy.candidates import REPLAY_TIMEOUT, summarize
from toolgate_cli.policy.files import document_errors, update_file
from toolgate_cli.policy.plans import POLICY_PATH, Change, count, post
from toolgate_cli.policy.proofs import PROVEN, print_call, prove_suggestion

_DAY: Final = 86_400


class Suggestion(BaseModel):
    """Candidate that allows the approved calls of an agent for an action."""

    agent: str
    agent_id: str
    action: str
    approvals: int
    condition: str
    changes: list[Change]
    policy: dict[str, Any]
    #: counts of a replay of the agent's decisions about the action, and the proof that only covered calls are allowed
    replay: dict[str, int] | None = None
    proof: dict[str, Any] | None = None


class Unsuggested(BaseModel):
    """Agent and action with approved requests for which there is no suggestion."""

    agent: str
    action: str
    approvals: int
    reason: str


class Suggestions(BaseModel):
    """Suggestions from the approval requests of a period."""

    suggestions: list[Suggestion]
    unsuggested: list[Unsuggested]


def suggest(
    minimum: Annotated[
        int, typer.Option("--min", min=1, help="Minimum number of approved requests for a suggestion.")
    ] = 5,
    since: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help=("Use only approval requests of the last days or hours, such as 30d.")
        ),
    ] = "30d",
    agent: Annotated[
        str | None, typer.Option(help="Show only suggestions for this agent.", show_default=False)
    ] = None,
    action: Annotated[
        str | None, typer.Option(help="Show only suggestions for this action.", show_default=False)
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=(
                "Write the suggested changes into this policy file, and keep its other parts. Requires exactly "
                "one suggestion."
            ),
            show_default=False,
        ),
    ] = None,
    environment: EnvironmentOption = Environment.PRODUCTION,
    as_json: AsJson = False,
) -> None:
    """Suggest rules that allow calls that people have always approved. Nothing is changed at the gateway."""
    query: Query = {"environment": environment, "minimum": minimum, "days": _days(since)}
    with stored_session() as client:
        raw = client.get(f"{POLICY_PATH}/suggestions", query)
        made = parse_model(Suggestions, raw, "suggestion")
        found = [one for one in made.suggestions if _is_about(one, agent, action)]
        current = client.get(POLICY_PATH, {"environment": environment})["policy"]
        for one in found:
            _examine(client, one, current, raw["since"], environment)
    without = [one for one in made.unsuggested if _is_about(one, agent, action)]
    if as_json:
        details = {(one.agent_id, one.action): {"replay": one.replay, "proof": one.proof} for one in found}
        examined = [
            other | details[key]
            for other in raw["suggestions"]
            if (key := (other["agent_id"], other["action"])) in details
        ]
        print_json(raw | {"suggestions": examined})
    else:
        _print(found, without)
    if write is not None:
        _write(write, found)


def _examine(
    client: GatewayClient, one: Suggestion, current: Mapping[str, Any], since: str, environment: str
) -> None:
    """Replay the decisions of the period under a suggestion, and prove which calls it treats more leniently."""
    print_progress(f"replaying decisions about {sanitize(one.action)}")
    body = {"policy": one.policy, "since": since, "agent": one.agent_id, "action": one.action}
    report = post(client, "/replay", body, environment, None, timeout=REPLAY_TIMEOUT)
    one.replay = report["totals"]
    one.proof = prove_suggestion(client, current, one, environment)


def _days(since: str) -> int:
    try:
        return max(1, math.ceil(parse_duration(since) / _DAY))
    except ValueError as error:
        fail(f"--since: {error}")


def _is_about(one: Suggestion | Unsuggested, agent: str | None, action: str | None) -> bool:
    return agent in {None, one.agent} and action in {None, one.action}


def _print(found: Sequence[Suggestion], without: Sequence[Unsuggested]) -> None:
    for one in found:
        requests = count(one.approvals, "approved request")
        typer.echo(
            f"{sanitize(one.agent)} {sanitize(one.action)}: {requests}, all of which meet this condition:"
        )
        typer.echo(f"    {sanitize(one.condition)}")
        for change in one.changes:
            for line in change.lines():
                typer.echo(line)
        if one.replay is not None:
            typer.echo(f"    replay: {summarize(one.replay)}")
        if one.proof is not None:
            _print_proof(one.proof)
    for other in without:
        requests = count(other.approvals, "approved request")
        name = f"{sanitize(other.agent)} {sanitize(other.action)}"
        typer.echo(f"no suggestion for {name}, {requests}: {sanitize(other.reason)}")
    typer.echo(count(len(found), "suggestion"))


def _print_proof(proof: Mapping[str, Any]) -> None:
    if proof["status"] == PROVEN:
        typer.echo("    proven: only calls that meet this condition are treated more leniently")
    elif proof["call"] is None:
        typer.echo("    not proven: " + "; ".join(map(sanitize, proof["reasons"])))
    else:
        typer.echo("    this call does not meet the condition and is treated more leniently too:")
        print_call(proof["call"])


def _write(path: Path, found: Sequence[Suggestion]) -> None:
    if len(found) != 1:
        fail(f"--write needs one suggestion, not {len(found)}; choose one with --agent and --action")
    [one] = found
    with document_errors():
        update_file(path, one.policy, {(change.resource, change.name) for change in one.changes})
    typer.echo(f"{sanitize(path)} was written")
