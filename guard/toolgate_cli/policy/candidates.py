"""``toolgate policy replay`` and ``shadow``: compare a candidate policy with past or coming decisions."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Final

import typer

from toolgate_cli.agents import iter_agents
from toolgate_cli.client import GatewayClient, GatewayError, parse_model, print_page
from toolgate_cli.credentials import password_session, stored_session
from toolgate_cli.log_entries import parse_moment
from toolgate_cli.options import AsJson, Environment, EnvironmentOption, PasswordStdin, Yes
from toolgate_cli.output import Column, confirm, fail, print_json, print_note, print_table, sanitize
from toolgate_cli.policy.files import DEFAULT_FILE, Message, PolicyFile, load_policy_file
from toolgate_cli.policy.plans import POLICY_PATH, Plan, count, post, request_plan

SHADOW_PATH: Final = f"{POLICY_PATH}/shadow"
#: time limit in seconds for a replay, which reads up to a million decisions
REPLAY_TIMEOUT: Final = 600.0
#: maximum number of examples that are printed for each category of differences
_MAX_EXAMPLES: Final = 5

_DIFFERENCES: Final = {
    "newly_allowed": "newly allowed",
    "newly_held": "newly held for approval",
    "newly_denied": "newly denied",
}
_CATEGORIES: Final = {"unchanged": "unchanged", **_DIFFERENCES, "not_replayable": "not replayable"}
_ROWS: Final = (
    Column("agent"),
    Column("action"),
    Column("unchanged", no_wrap=True, right=True),
    Column("newly allowed", no_wrap=True, right=True),
    Column("newly held", no_wrap=True, right=True),
    Column("newly denied", no_wrap=True, right=True),
    Column("not replayable", no_wrap=True, right=True),
)

Since = Annotated[
    str,
    typer.Option(metavar="TIME", help="Begin at this time (UTC), or at a duration before now, such as 30d."),
]


def replay(
    file: PolicyFile = DEFAULT_FILE,
    since: Since = "30d",
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="End at this time (UTC), or at a duration before now, such as 2h.",
            show_default=False,
        ),
    ] = None,
    agent: Annotated[
        str | None, typer.Option(help="Compare only decisions about this agent.", show_default=False)
    ] = None,
    action: Annotated[
        str | None, typer.Option(help="Compare only decisions about this action.", show_default=False)
    ] = None,
    environment: EnvironmentOption = Environment.PRODUCTION,
    as_json: AsJson = False,
) -> None:
    """Compare the decisions of the past with the results of a policy file. Nothing is changed."""
    document = load_policy_file(file)
    first, last = parse_moment(since, "--since"), parse_moment(until, "--until")
    body = {
        "policy": document.value,
        "since": None if first is None else first.isoformat(),
        "until": None if last is None else last.isoformat(),
        "agent": agent,
        "action": action,
    }
    with stored_session() as client:
        report = post(client, "/replay", body, environment, document, timeout=REPLAY_TIMEOUT)
    if as_json:
        print_json(report)
        return
    if report["rows"]:
        print_table(_ROWS, map(_row, report["rows"]))
    if report["omitted_rows"]:
        typer.echo(f"… {report['omitted_rows']:,} more agents and actions, shown by --json")
    for name in _DIFFERENCES:
        _print_examples(name, report["examples"][name])
    for reason in report["not_replayable"]:
        typer.echo(f"not replayable: {reason['count']:,}: {sanitize(reason['reason'])}")
    if not report["is_complete"]:
        typer.echo(
            "the replay ended at its limit; later decisions were not compared: set --since to a later time"
        )
    if not report["judged"]:
        print_note(
            "no decisions in this period; dry runs, such as those of 'toolgate check', are not recorded"
        )
    typer.echo(f"{count(report['judged'], 'decision')}: {summarize(report['totals'])}")


shadow = typer.Typer(
    name="shadow",
    help="Compare future decisions of the gateway with a candidate policy, without a change of the decisions.",
    no_args_is_help=True,
)


@shadow.command()
def start(
    file: PolicyFile = DEFAULT_FILE,
    message: Message = None,
    environment: EnvironmentOption = Environment.PRODUCTION,
    yes: Yes = False,
    as_json: AsJson = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Start a shadow policy from a file: the gateway compares later checks with the policy, which decides nothing.

    The new shadow policy replaces the present one. Asks for your password.
    """
    document = load_policy_file(file)
    with stored_session() as client:
        made = request_plan(client, document, environment)
    if not as_json:
        made.print()
    confirm(f"Start this shadow policy in the {environment} environment?", yes=yes)
    body = {"policy": document.value, "message": message or f"Apply {file.name}"}
    with password_session("start a shadow policy", password_stdin=password_stdin) as client:
        raw = post(client, "/shadow", body, environment, document, method="PUT")
    if as_json:
        print_json(raw)
    else:
        typer.echo("the shadow policy is active; see its results with: toolgate policy shadow show")


@shadow.command("show")
def show_shadow(environment: EnvironmentOption = Environment.PRODUCTION, as_json: AsJson = False) -> None:
    """Show the results of the shadow policy so far."""
    with stored_session() as client:
        raw = _get_shadow(client, environment)
        names = {agent.id: agent.name for agent, _ in iter_agents(client, environment)}
    if as_json:
        print_json(raw)
        return
    print_page(
        f"Shadow {sanitize(raw['id'])}",
        {"message": sanitize(raw["message"]), "active since": sanitize(raw["created_at"])},
    )
    for name in _DIFFERENCES:
        samples = [one for one in raw["samples"] if one["difference"] == name]
        _print_examples(
            name, [one | {"agent": names.get(one["agent_id"], one["agent_id"])} for one in samples]
        )
    counts = raw["counts"]
    typer.echo(f"{count(sum(counts[name] for name in _CATEGORIES), 'decision')}: {summarize(counts)}")


@shadow.command()
def promote(
    environment: EnvironmentOption = Environment.PRODUCTION,
    yes: Yes = False,
    as_json: AsJson = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Apply the shadow policy as a new revision, and end the comparison. Asks for your password."""
    with stored_session() as client:
        candidate = _get_shadow(client, environment)["policy"]
        made = parse_model(Plan, post(client, "/plan", {"policy": candidate}, environment, None), "plan")
    if not as_json:
        made.print()
    confirm(f"Apply the shadow policy to the {environment} environment?", yes=yes)
    with password_session("apply the shadow policy", password_stdin=password_stdin) as client:
        raw = post(client, "/shadow/promote", {"base": made.base}, environment, None)
    if as_json:
        print_json(raw)
    else:
        typer.echo(f"applied as revision {raw['revision']}" if raw["applied"] else "no changes")


@shadow.command()
def discard(
    environment: EnvironmentOption = Environment.PRODUCTION,
    yes: Yes = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """End the shadow policy, and delete its results. Asks for your password."""
    with stored_session() as client:
        _get_shadow(client, environment)
    confirm(f"Discard the shadow policy of the {environment} environment?", yes=yes)
    with password_session("discard the shadow", password_stdin=password_stdin) as client:
        client.delete(f"{SHADOW_PATH}?environment={environment}")
    typer.echo("the shadow policy is discarded")


def _get_shadow(client: GatewayClient, environment: str) -> dict[str, Any]:
    """Return the shadow of an environment, or end the command if there is none."""
    try:
        raw: dict[str, Any] = client.get(SHADOW_PATH, {"environment": environment})
    except GatewayError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            fail(
                f"the {environment} environment has no shadow policy; start one with: toolgate policy shadow start"
            )
        raise
    return raw


def _row(raw: Mapping[str, Any]) -> tuple[str, ...]:
    agent = raw["agent"] or raw["agent_id"] or "others"
    return (sanitize(agent), sanitize(raw["action"] or "others"), *(f"{raw[name]:,}" for name in _CATEGORIES))


def summarize(counts: Mapping[str, int]) -> str:
    """Return the counts of a replay or shadow as text."""
    return ", ".join(f"{counts[name]:,} {text}" for name, text in _CATEGORIES.items())


def _print_examples(category: str, examples: list[dict[str, Any]]) -> None:
    for one in examples[:_MAX_EXAMPLES]:
        time = sanitize(one["created_at"])[:19].replace("T", " ")
        agent = sanitize(one["agent"] or one["agent_id"])
        reason = "" if one["reason"] is None else f": {sanitize(one['reason'])}"
        before = f", {sanitize(one['outcome']).replace('_', ' ')} before" if "outcome" in one else ""
        typer.echo(
            f"{_DIFFERENCES[category]}{before}: {time} {agent} {sanitize(one['action'])}{reason}, "
            f"decision {sanitize(one['decision_id'])}"
        )
