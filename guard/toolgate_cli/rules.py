"""``toolgate rules``: list, create, change, enable, disable and delete the rules of an environment.

Reading uses the stored login; every change asks for the password.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic import BaseModel

from toolgate._capture.jsontext import loads
from toolgate_cli.agents import iter_agents
from toolgate_cli.client import (
    GatewayClient,
    Resource,
    match_id,
    parse_model,
    pick_one,
    print_list,
    print_page,
)
from toolgate_cli.credentials import password_session, stored_session
from toolgate_cli.options import (
    AsJson,
    Environment,
    EnvironmentOption,
    PasswordStdin,
    Yes,
    format_duration,
    parse_ttl,
)
from toolgate_cli.output import Column, confirm, fail, print_json, sanitize, truncate

RULES_PATH: Final = "/api/rules"
#: wildcard for all agents or all actions
_ALL: Final = "*"
#: the gateway's limit: maximum seconds until an approval request expires
#: maximum bytes of the file of `--from`; the gateway accepts a smaller body
_MAX_FILE: Final = 1024 * 1024
#: fields of a rule that the gateway sets, so that the output of `rules show --json` can be used with `--from`
_SET_BY_GATEWAY: Final = frozenset({"id", "created_by", "created_at", "updated_at"})

_COLUMNS: Final = (
    Column("name"),
    Column("effect", no_wrap=True),
    Column("agents"),
    Column("actions"),
    Column("condition"),
    Column("state", no_wrap=True),
    Column("id", no_wrap=True),
)

rules = typer.Typer(
    name="rules",
    help="List, create, change and delete rules, which forbid, require approval for, or allow calls. Changes ask for "
    "your password.",
    no_args_is_help=True,
)


class Effect(StrEnum):
    """Effect of a rule on the calls that it matches."""

    FORBID = "forbid"
    REQUIRE_APPROVAL = "require_approval"
    ALLOW = "allow"


RuleName = Annotated[
    str,
    typer.Argument(
        metavar="RULE",
        help="The rule's name, its id, or the first characters of its id, if no other id begins with them.",
    ),
]
EffectOption = Annotated[
    Effect | None, typer.Option(help="What happens to calls that the rule matches.", show_default=False)
]
AgentOption = Annotated[
    list[str] | None,
    typer.Option(
        "--agent",
        metavar="AGENT",
        help="The name or id of an agent to which the rule applies, or '*' for all agents. Repeatable.",
        show_default=False,
    ),
]
ActionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--action",
        metavar="ACTION",
        help="An action to which the rule applies, such as stripe.refund or 'stripe.*'. Repeatable.",
        show_default=False,
    ),
]
When = Annotated[
    str | None,
    typer.Option(
        metavar="EXPRESSION",
        help="The condition, a CEL expression such as 'args.amount > 100'.",
        show_default=False,
    ),
]
Quorum = Annotated[
    int | None,
    typer.Option(min=1, max=10, help="The number of people who must approve each call.", show_default=False),
]
Ttl = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Time until an approval request expires, such as 30m, 1h, 2d.",
        show_default=False,
    ),
]
Approver = Annotated[
    list[str] | None,
    typer.Option(
        "--approver",
        metavar="EMAIL",
        help="The e-mail address or id of a user who may approve; without this option, every admin and member may. "
        "Repeatable.",
        show_default=False,
    ),
]


class ApprovalTerms(BaseModel):
    """Terms of the approval that a rule requires; a term that is None is not restricted by the rule."""

    quorum: int | None = None
    ttl: int | None = None
    approvers: list[str] | None = None

    @property
    def text(self) -> str:
        """Return the number of approvers and the time limit as text."""
        people = (
            "as many people as the permission requires" if self.quorum is None else f"{self.quorum} people"
        )
        if self.quorum == 1:
            people = "1 person"
        return people if self.ttl is None else f"{people}, within {format_duration(self.ttl)}"


class Rule(Resource):
    """A rule of an environment, as the gateway's API returns it."""

    name: str
    effect: str
    agents: list[str]
    actions: list[str]
    when: str | None
    approval: ApprovalTerms | None
    enabled: bool

    @property
    def label(self) -> str:
        """Return the rule's name, safe to print on a terminal."""
        return sanitize(self.name)

    @property
    def state(self) -> str:
        """Return whether the rule is enabled, as text."""
        return "enabled" if self.enabled else "disabled"

    def agents_text(self, names: Mapping[str, str]) -> str:
        """Return the agents to which the rule applies as text; `names` contains the names of agents by id."""
        return (
            "all" if _ALL in self.agents else ", ".join(sanitize(names.get(id_, id_)) for id_ in self.agents)
        )

    @property
    def actions_text(self) -> str:
        """Return the actions to which the rule applies as text."""
        return ", ".join(map(sanitize, self.actions))


@dataclass(frozen=True, slots=True)
class _Definition:
    """Values of the command-line options that define a rule; an option that is not given has the value None."""

    effect: Effect | None = None
    agents: Sequence[str] | None = None
    actions: Sequence[str] | None = None
    when: str | None = None
    quorum: int | None = None
    ttl: str | None = None
    approvers: Sequence[str] | None = None

    def body(self, current: ApprovalTerms | None = None) -> dict[str, Any]:
        """Return the fields of the API request that creates or changes a rule.

        Args:
            current: the terms of the approval before the change; the options replace only the given ones.

        Raises:
            typer.Exit: an option is invalid.
        """
        fields = {
            "effect": None if self.effect is None else self.effect.value,
            "agents": list(self.agents or ()) or None,
            "actions": list(self.actions or ()) or None,
            "when": self.when,
            "approval": self._approval(current),
        }
        return {name: value for name, value in fields.items() if value is not None}

    def _approval(self, current: ApprovalTerms | None) -> dict[str, Any] | None:
        given = {
            "quorum": self.quorum,
            "ttl": None if self.ttl is None else parse_ttl("--ttl", self.ttl),
            "approvers": list(self.approvers or ()) or None,
        }
        given = {name: value for name, value in given.items() if value is not None}
        return (current or ApprovalTerms()).model_dump() | given if given else None


@rules.command("list")
def list_(environment: EnvironmentOption = Environment.PRODUCTION, as_json: AsJson = False) -> None:
    """List rules, newest first."""
    with stored_session() as client:
        found = _list_rules(client, environment)
        names = _agent_names(client, environment, [rule for rule, _ in found])
    empty = f"no rules in the {environment} environment at {client.url}"
    print_list(found, _COLUMNS, lambda rule: _row(rule, names), empty=empty, as_json=as_json)


@rules.command()
def show(
    rule: RuleName, environment: EnvironmentOption = Environment.PRODUCTION, as_json: AsJson = False
) -> None:
    """Show one rule."""
    with stored_session() as client:
        found, raw = _find(client, rule, environment)
        names = _agent_names(client, environment, [found])
    if as_json:
        print_json(raw)
        return
    terms = found.approval or ApprovalTerms()
    print_page(
        f"Rule {found.id} · {found.state}",
        {
            "name": found.label,
            "effect": sanitize(found.effect),
            "agents": found.agents_text(names),
            "actions": found.actions_text,
            "condition": sanitize(found.when or "none"),
            "approval": "" if found.approval is None else terms.text,
            "approvers": ", ".join(map(sanitize, terms.approvers or ())),
        },
    )


@rules.command()
def create(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help=("The rule's name. The gateway sends it to agents whose calls the rule denies."),
            show_default=False,
        ),
    ] = None,
    effect: EffectOption = None,
    action: ActionOption = None,
    agent: AgentOption = None,
    when: When = None,
    quorum: Quorum = None,
    ttl: Ttl = None,
    approver: Approver = None,
    disabled: Annotated[
        bool, typer.Option("--disabled", help="Create the rule without enabling it.")
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="A JSON file with the rule, as 'rules show --json' prints it; - reads standard input.",
            show_default=False,
        ),
    ] = None,
    environment: EnvironmentOption = Environment.PRODUCTION,
    as_json: AsJson = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Create a rule, which applies from the next call on; without --agent, to all agents. Asks for your password."""
    definition = _Definition(effect, agent, action, when, quorum, ttl, approver)
    if file is not None:
        if name is not None or definition != _Definition():
            fail("--from and the options that define a rule exclude each other; change the file instead")
        if str(file) == "-" and password_stdin:
            fail("--from - and --password-stdin exclude each other, because both read standard input")
        body = _read_file(file)
    else:
        if name is None or effect is None or not action:
            fail("give the rule's NAME, --effect and --action, or a file with --from")
        body = {"name": name, **definition.body()}
    if disabled:
        body["enabled"] = False
    with password_session("create a rule", password_stdin=password_stdin) as client:
        raw = client.post(f"{RULES_PATH}?environment={environment}", body)
        made = parse_model(Rule, raw, "rule")
    _print("created", made, raw, as_json=as_json)


@rules.command()
def update(
    rule: RuleName,
    name: Annotated[str | None, typer.Option(help="The new name.", show_default=False)] = None,
    effect: EffectOption = None,
    action: ActionOption = None,
    agent: AgentOption = None,
    when: When = None,
    no_when: Annotated[bool, typer.Option("--no-when", help="Remove the condition.")] = False,
    quorum: Quorum = None,
    ttl: Ttl = None,
    approver: Approver = None,
    no_terms: Annotated[
        bool,
        typer.Option(
            "--no-terms", help="Remove the rule's own number of approvals, time limit and approvers."
        ),
    ] = False,
    environment: EnvironmentOption = Environment.PRODUCTION,
    as_json: AsJson = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Change the given parts of a rule; its other parts stay the same. Asks for your password.

    The options --agent, --action and --approver replace all agents, actions and approvers of the rule.
    """
    if when is not None and no_when:
        fail("--when and --no-when exclude each other; use only one of them")
    if no_terms and (quorum, ttl, approver) != (None, None, None):
        fail("--no-terms excludes --quorum, --ttl and --approver; use only one of them")
    definition = _Definition(effect, agent, action, when, quorum, ttl, approver)
    removed = {"when": no_when, "approval": no_terms}
    if name is None and definition == _Definition() and not any(removed.values()):
        fail("no change is given; for the options, see: toolgate rules update --help")
    # This call only validates the options, so that an invalid option is reported before the first request.
    definition.body()
    with stored_session() as client:
        found, _ = _find(client, rule, environment)
    body = definition.body(found.approval) | {
        field: None for field, is_removed in removed.items() if is_removed
    }
    if name is not None:
        body["name"] = name
    _change(found, environment, body, "updated", as_json=as_json, password_stdin=password_stdin)


@rules.command()
def enable(
    rule: RuleName,
    environment: EnvironmentOption = Environment.PRODUCTION,
    as_json: AsJson = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Enable a disabled rule. Asks for your password."""
    _switch(rule, environment, True, "enabled", as_json=as_json, password_stdin=password_stdin)


@rules.command()
def disable(
    rule: RuleName,
    environment: EnvironmentOption = Environment.PRODUCTION,
    as_json: AsJson = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Disable a rule, so that the gateway ignores it. Asks for your password."""
    _switch(rule, environment, False, "disabled", as_json=as_json, password_stdin=password_stdin)


@rules.command()
def delete(
    rule: RuleName,
    environment: EnvironmentOption = Environment.PRODUCTION,
    yes: Yes = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Delete a rule; from the next call on, the other rules and the permissions decide. Asks for your password."""
    with stored_session() as client:
        found, _ = _find(client, rule, environment)
    confirm(f"Delete the rule {found.label}?", yes=yes)
    with password_session(f"delete the rule {found.label}", password_stdin=password_stdin) as client:
        client.delete(f"{RULES_PATH}/{found.id}?environment={environment}")
    typer.echo(f"deleted {found.label}, rule {found.id}")


def _switch(
    wanted: str, environment: Environment, enabled: bool, done: str, *, as_json: bool, password_stdin: bool
) -> None:
    with stored_session() as client:
        found, _ = _find(client, wanted, environment)
    _change(found, environment, {"enabled": enabled}, done, as_json=as_json, password_stdin=password_stdin)


def _change(
    found: Rule,
    environment: Environment,
    body: Mapping[str, Any],
    done: str,
    *,
    as_json: bool,
    password_stdin: bool,
) -> None:
    with password_session(f"change the rule {found.label}", password_stdin=password_stdin) as client:
        raw = client.put(f"{RULES_PATH}/{found.id}?environment={environment}", body)
        changed = parse_model(Rule, raw, "rule")
    _print(done, changed, raw, as_json=as_json)


def _list_rules(client: GatewayClient, environment: str) -> list[tuple[Rule, dict[str, Any]]]:
    pages = client.pages(RULES_PATH, {"environment": environment})
    return [(parse_model(Rule, raw, "rule"), raw) for page in pages for raw in page]


def _find(client: GatewayClient, wanted: str, environment: str) -> tuple[Rule, dict[str, Any]]:
    """Return the rule whose name is `wanted`, or else the rule whose id begins with `wanted`, and its JSON."""
    everything = _list_rules(client, environment)
    found = [one for one in everything if one[0].name == wanted] or match_id(everything, wanted)
    missing = f"the {environment} environment has no rule {wanted!r}; see: toolgate rules list"
    return pick_one(found, wanted, plural="rules", missing=missing)


def _agent_names(client: GatewayClient, environment: str, found: Sequence[Rule]) -> dict[str, str]:
    """Return the agents' names by id.

    If every rule applies to all agents, return an empty mapping without a request.
    """
    if all(_ALL in rule.agents for rule in found):
        return {}
    return {agent.id: agent.name for agent, _ in iter_agents(client, environment)}


def _read_file(path: Path) -> dict[str, Any]:
    """Return the fields of the rule in a JSON file.

    Raises:
        typer.Exit: the file cannot be read, or is not a JSON object.
    """
    shown = "standard input" if str(path) == "-" else sanitize(str(path))
    try:
        if str(path) == "-":
            content = sys.stdin.buffer.read(_MAX_FILE + 1)
        else:
            with path.open("rb") as stream:
                content = stream.read(_MAX_FILE + 1)
        if len(content) > _MAX_FILE:
            fail(f"--from: {shown} has more than {_MAX_FILE:,} bytes")
        value = loads(content, exactly=True)
    except OSError as error:
        fail(f"--from: cannot read {shown}: {error.strerror}")
    except (ValueError, RecursionError) as error:
        fail(f"--from: {shown} is not valid JSON: {sanitize(error)}")
    if not isinstance(value, dict):
        fail(f"--from: {shown} is not a JSON object; for an example, see: toolgate rules show --json")
    return {name: one for name, one in value.items() if name not in _SET_BY_GATEWAY}


def _print(done: str, rule: Rule, raw: Any, *, as_json: bool) -> None:
    if as_json:
        print_json(raw)
    else:
        typer.echo(f"{done} {rule.label}, rule {rule.id}")


def _row(rule: Rule, names: Mapping[str, str]) -> tuple[str, ...]:
    return (
        rule.label,
        sanitize(rule.effect),
        truncate(rule.agents_text(names)),
        truncate(rule.actions_text),
        truncate(sanitize(rule.when or "none")),
        rule.state,
        rule.id,
    )
