"""Plans: the differences between the policy of an environment and a policy file, as the gateway lists them."""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Literal

import typer
from pydantic import BaseModel, ValidationError

from toolgate._capture.jsontext import dumps, loads
from toolgate_cli.client import GatewayClient, GatewayError, parse_model, read_response
from toolgate_cli.output import fail, print_note, sanitize, to_ascii_json
from toolgate_cli.policy.documents import Document, DocumentError, write_file
from toolgate_cli.policy.files import fail_with, require_policy
from toolgate_cli.policy.merge import RESOURCES, is_default

POLICY_PATH: Final = "/api/policy"
#: version of the format of the file that `--out` writes
PLAN_VERSION: Final = "toolgate.plan/v1"
#: maximum characters of a change on one line
_MAX_LINE: Final = 110

_SIGNS: Final = {"create": "+", "update": "~", "delete": "-"}
_DONE: Final = {"create": "to create", "update": "to change", "delete": "to delete"}


class FieldChange(BaseModel):
    """Field that differs."""

    field: str
    before: Any
    after: Any

    @property
    def text(self) -> str:
        """Return the field with both values, safe to print."""
        return f"{sanitize(self.field)} {_value(self.before)} → {_value(self.after)}"


class Change(BaseModel):
    """Item of a policy that differs."""

    resource: Literal["agent", "permission", "rule", "budget"]
    operation: Literal["create", "update", "delete"]
    name: str
    fields: list[FieldChange]

    def lines(self) -> Iterator[str]:
        """Yield the lines that show the change."""
        name = (
            sanitize(self.name)
            if self.resource == "permission"
            else f'"{sanitize(self.name, quote=chr(34))}"'
        )
        head = f"{_SIGNS[self.operation]} {sanitize(self.resource)} {name}"
        details = [] if self.operation == "delete" else self._details()
        line = f"{head}: {', '.join(details)}" if details else head
        if len(line) <= _MAX_LINE:
            yield line
            return
        yield head
        for detail in details:
            yield f"    {detail}"

    def _details(self) -> list[str]:
        if self.operation == "update":
            return [one.text for one in self.fields]
        return [
            f"{sanitize(one.field)} {_value(one.after)}"
            for one in self.fields
            if one.field not in {"name", "action"} and not is_default(self.resource, one.field, one.after)
        ]


class Plan(BaseModel):
    """Differences between the policy of an environment and a candidate.

    Attributes:
        base: Digest of the environment's policy.
        digest: Digest of the candidate.
        policy: Policy of the environment.
    """

    base: str
    digest: str
    changes: list[Change]
    warnings: list[str]
    policy: dict[str, Any]

    def print(self) -> None:
        """Print the differences, the consequences that cannot be undone, and the number of differences."""
        if not self.changes:
            typer.echo("no changes")
            return
        for change in self.changes:
            for line in change.lines():
                typer.echo(line)
        for warning in self.warnings:
            typer.echo(f"warning: {sanitize(warning)}")
        counts = {name: sum(one.operation == name for one in self.changes) for name in _DONE}
        typer.echo(
            f"{count(len(self.changes), 'change')}: "
            + ", ".join(f"{counts[name]} {_DONE[name]}" for name in _DONE)
        )


class StoredPlan(BaseModel):
    """Plan in a file that `toolgate policy plan --out` wrote.

    Attributes:
        policy: The candidate.
    """

    version: Literal["toolgate.plan/v1"]
    environment: str
    base: str
    digest: str
    changes: list[Change]
    policy: dict[str, Any]


#: paths of requests that have a body and change nothing
_READING: Final = frozenset({"/plan", "/evaluate", "/replay"})


def request_plan(
    client: GatewayClient, document: Document, environment: str, base: str | None = None
) -> Plan:
    """Return the gateway's plan for a policy file, or end the command with the problems of the file.

    With the digest `base` of an earlier plan, the gateway refuses if the policy changed since, and names the changes.
    """
    body = {"policy": require_policy(document), "base": base}
    return parse_model(Plan, post(client, "/plan", body, environment, document), "plan")


def post(
    client: GatewayClient,
    path: str,
    body: Mapping[str, Any],
    environment: str,
    document: Document | None,
    *,
    method: str = "POST",
    timeout: float | None = None,
) -> Any:
    """Send a request with a body below `/api/policy` and return the JSON of the response.

    If the gateway rejects the policy of the document, its problems are printed with their positions in the file.
    """
    full = f"{POLICY_PATH}{path}"
    content = dumps(dict(body)).encode("utf-8", "surrogatepass")
    try:
        response = client.send(method, f"{full}?environment={environment}", content, timeout=timeout)
    except GatewayError as error:
        error.is_change = error.is_change and path not in _READING
        raise
    if response.status == HTTPStatus.BAD_REQUEST and document is not None:
        problems = _policy_problems(response.body)
        if problems:
            fail_with(document.describe(problems))
    return read_response(response, method, full)


def _policy_problems(body: bytes) -> dict[str, list[str]]:
    """Return the messages of an error response about the fields of a policy, by the path of the field."""
    try:
        detail = loads(body).get("detail")
    except (ValueError, RecursionError, AttributeError):
        return {}
    if not isinstance(detail, dict):
        return {}
    lists = {"version", *(name for name in RESOURCES if name != "permissions")}
    problems: dict[str, list[str]] = {}
    for field, messages in detail.items():
        path = field.removeprefix("policy").removeprefix(".")
        if (field.startswith("policy") or path.split(".")[0] in lists) and isinstance(messages, list):
            problems[path] = [str(message) for message in messages]
    return problems


def save_plan(path: Path, plan: Plan, candidate: Mapping[str, Any], environment: str) -> None:
    """Write a plan and its candidate to a file, or end the command if that fails."""
    stored = {
        "version": PLAN_VERSION,
        "environment": environment,
        "base": plan.base,
        "digest": plan.digest,
        "changes": [one.model_dump() for one in plan.changes],
        "policy": dict(candidate),
    }
    try:
        write_file(path, f"{to_ascii_json(stored)}\n")
    except DocumentError as error:
        fail(str(error))
    print_note(f"wrote the plan to {sanitize(path)}")


def load_plan(path: Path) -> StoredPlan:
    """Return a plan that `save_plan` wrote, or end the command if the file is not such a plan."""
    try:
        return StoredPlan.model_validate(loads(path.read_bytes(), exactly=True))
    except OSError as error:
        fail(f"cannot read {sanitize(path)}: {error.strerror}")
    except (ValueError, RecursionError, ValidationError):
        fail(f"{sanitize(path)} is not a plan; write one with: toolgate policy plan --out {sanitize(path)}")


def count(number: int, noun: str) -> str:
    """Return a number with a noun in singular or plural."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def count_items(policy: Mapping[str, Any]) -> str:
    """Return the numbers of agents, rules and budgets of a policy as text."""
    return ", ".join(count(len(policy.get(name) or ()), name[:-1]) for name in ("agents", "rules", "budgets"))


def _value(value: Any) -> str:
    return "none" if value is None else sanitize(value if isinstance(value, str) else dumps(value))
