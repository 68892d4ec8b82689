"""``toolgate policy``: write, check and apply a file with the agents, permissions, rules and budgets of an environment.

Reading uses the stored login; every change asks for the password. ``validate``, ``test`` and ``schema`` need no gateway.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from toolgate_cli.approval_requests import fetch_user_emails
from toolgate_cli.client import GatewayClient, GatewayError, Resource, parse_model, print_page
from toolgate_cli.credentials import password_session, stored_session
from toolgate_cli.entry_points import load_gateway
from toolgate_cli.options import AsJson, Environment, EnvironmentOption, PasswordStdin, Yes
from toolgate_cli.output import Column, confirm, fail, print_json, print_note, print_table, sanitize, truncate
from toolgate_cli.policy.candidates import replay, shadow
from toolgate_cli.policy.cases import print_results, results_json, write_junit
from toolgate_cli.policy.documents import Document, DocumentError, load_document
from toolgate_cli.policy.files import (
    DEFAULT_FILE,
    Message,
    PolicyFile,
    ResultAsJson,
    describe_other,
    document_errors,
    fail_with,
    is_policy,
    load_policy_file,
    update_file,
)
from toolgate_cli.policy.merge import SCHEMA_FILE
from toolgate_cli.policy.plans import (
    POLICY_PATH,
    Plan,
    count_items,
    load_plan,
    post,
    request_plan,
    save_plan,
)
from toolgate_cli.policy.proofs import PROVEN, print_proof, search_proof
from toolgate_cli.policy.suggestions import suggest

REVISIONS_PATH: Final = f"{POLICY_PATH}/revisions"
#: exit code of `plan --exit-code` if the policies differ
DIFFERENT: Final = 2

_REVISIONS: Final = (
    Column("number", no_wrap=True, right=True),
    Column("applied at", no_wrap=True),
    Column("by"),
    Column("message"),
    Column("restores", no_wrap=True, right=True),
)

policy = typer.Typer(
    name="policy",
    help="Keep the agents, permissions, rules and budgets of an environment in a file. Changes ask for your password.",
    no_args_is_help=True,
)

Cases = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The file with the test cases. Default: the file beside the policy whose name ends with '.tests', such as "
        "policy.tests.yaml.",
        show_default=False,
    ),
]


@policy.command()
def pull(
    file: PolicyFile = DEFAULT_FILE,
    environment: EnvironmentOption = Environment.PRODUCTION,
    as_json: AsJson = False,
) -> None:
    """Write the policy of the environment to a file.

    In a file that exists, only the values that differ are changed: comments, order and quotation marks stay.
    """
    with document_errors():
        existing = load_policy_file(file) if file.exists() and file.stat().st_size else None
        with stored_session() as client:
            state = client.get(POLICY_PATH, {"environment": environment})
            changed = None if existing is None else _changed_resources(client, existing, environment)
        is_current = changed is not None and not changed
        if not is_current:
            update_file(file, state["policy"], changed)
    if as_json:
        print_json({name: state[name] for name in ("digest", "revision")} | {"written": not is_current})
        return
    for resource, name in sorted(changed or ()):
        typer.echo(f"changed: {resource} {sanitize(name)}")
    done = "is current" if is_current else "was written"
    typer.echo(f"{sanitize(file)} {done}: {count_items(state['policy'])}")


@policy.command()
def validate(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="The policy files. Default: policy.yaml.")
    ] = None,
    as_json: ResultAsJson = False,
) -> None:
    """Check the structure, the references and the conditions of policy files, without a gateway.

    The exit code is 1 if a file is invalid.
    """
    found = {file: _problems(file) for file in files or [DEFAULT_FILE]}
    if as_json:
        print_json(
            [{"file": str(file), "valid": not lines, "problems": lines} for file, (_, lines) in found.items()]
        )
    for file, (count, lines) in found.items():
        if not as_json:
            typer.echo("\n".join(lines) if lines else f"{sanitize(file)} is valid: {count}")
    if any(lines for _, lines in found.values()):
        raise typer.Exit(1)


@policy.command("test")
def run_tests(
    file: PolicyFile = DEFAULT_FILE,
    cases: Cases = None,
    junit: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the results as JUnit XML.", show_default=False),
    ] = None,
    as_json: ResultAsJson = False,
) -> None:
    """Evaluate the calls of test cases with a policy file, without a gateway, and compare the results.

    The exit code is 1 if a case fails. Freezes, approvals and the totals of budgets are not part of the results.
    """
    document = load_policy_file(file)
    problems = load_gateway("policy").validate_policy(document.value)
    if problems:
        fail_with(document.describe(problems))
    with document_errors():
        path = cases or file.with_name(f"{file.stem}.tests{file.suffix}")
        expected = load_document(path)
    gateway = load_gateway("policy")
    content = {"tests": expected.value} if isinstance(expected.value, list) else expected.value
    try:
        results = gateway.run_cases(document.value, content)
    except gateway.InvalidCasesError as error:
        fail_with(expected.describe(error.problems))
    if junit is not None:
        write_junit(junit, str(file), results)
    if as_json:
        print_json(results_json(results))
    else:
        print_results(results)
    if any(result.failures for result in results):
        raise typer.Exit(1)


@policy.command()
def plan(
    file: PolicyFile = DEFAULT_FILE,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the plan to a file, for apply --plan.", show_default=False),
    ] = None,
    no_proof: Annotated[
        bool,
        typer.Option(
            "--no-proof",
            help=(
                "Do not check whether the new policy allows calls that the current policy denies or holds for "
                "approval."
            ),
        ),
    ] = False,
    require_proof: Annotated[
        bool,
        typer.Option(
            "--require-proof",
            help=(
                "Exit with 1 unless it is proven that the new policy is not more lenient than the current one "
                "for any call."
            ),
        ),
    ] = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 2 if the policies differ.")
    ] = False,
    environment: EnvironmentOption = Environment.PRODUCTION,
    as_json: AsJson = False,
) -> None:
    """Show what applying a policy file would change, and whether the new policy is more lenient for any call.

    If the command finds such a call, it prints the call with the results of both policies. Nothing is changed.
    """
    if require_proof and no_proof:
        fail("--require-proof and --no-proof exclude each other; use only one of them")
    document = load_policy_file(file)
    with stored_session() as client:
        made = request_plan(client, document, environment)
        if not as_json:
            made.print()
        found = search_proof(client, made, document, environment) if made.changes and not no_proof else None
    if as_json:
        print_json(made.model_dump() | {"proof": found})
    elif found is not None:
        print_proof(found)
    if out is not None:
        save_plan(out, made, document.value, environment)
    if require_proof and made.changes and (found is None or found["status"] != PROVEN):
        raise typer.Exit(1)
    if exit_code and made.changes:
        raise typer.Exit(DIFFERENT)


@policy.command()
def apply(
    file: PolicyFile = DEFAULT_FILE,
    plan_file: Annotated[
        Path | None,
        typer.Option(
            "--plan",
            metavar="FILE",
            help="A plan that 'plan --out' wrote; only this plan is applied.",
            show_default=False,
        ),
    ] = None,
    message: Message = None,
    environment: EnvironmentOption = Environment.PRODUCTION,
    yes: Yes = False,
    as_json: AsJson = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Change the environment so that it has exactly the policy of a file, in one transaction. Asks for your password.

    The change is stored as a revision, which 'rollback' can restore.
    """
    document = load_policy_file(file)
    stored = None if plan_file is None else load_plan(plan_file)
    if stored is not None and stored.environment != environment:
        fail(
            f"the plan is for the {sanitize(stored.environment)} environment, not for {environment}; plan again"
        )
    with stored_session() as client:
        made = request_plan(client, document, environment, None if stored is None else stored.base)
    if stored is not None and stored.digest != made.digest:
        fail(f"{sanitize(file)} differs from the policy of the plan; plan again")
    body = {"policy": document.value, "base": made.base, "message": message or f"Apply {file.name}"}
    question = f"Apply {sanitize(file)} to the {environment} environment?"
    with _confirmed(made, question, "apply a policy", yes, as_json, password_stdin) as session:
        applied = None if session is None else post(session, "/apply", body, environment, document)
    _print_applied(applied, as_json=as_json)


@policy.command()
def revisions(
    number: Annotated[
        int | None, typer.Argument(metavar="NUMBER", min=1, help="The number of a revision.")
    ] = None,
    environment: EnvironmentOption = Environment.PRODUCTION,
    as_json: AsJson = False,
) -> None:
    """List the revisions of the policy, newest first, or show one revision with its changes."""
    if number is not None:
        with stored_session() as client:
            one = _get_revision(client, number, environment)
            emails = fetch_user_emails(client)
        if as_json:
            print_json(one)
        else:
            _print_revision(one, emails)
        return
    with stored_session() as client:
        pages = client.pages(REVISIONS_PATH, {"environment": environment})
        found = [raw for page in pages for raw in page]
        emails = fetch_user_emails(client)
    if as_json:
        print_json(found)
    elif not found:
        typer.echo(f"no revisions in the {environment} environment at {client.url}")
    else:
        print_table(_REVISIONS, (_row(raw, emails) for raw in found))


@policy.command()
def rollback(
    number: Annotated[int, typer.Argument(metavar="NUMBER", min=1, help="The number of the revision.")],
    message: Message = None,
    environment: EnvironmentOption = Environment.PRODUCTION,
    yes: Yes = False,
    as_json: AsJson = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Apply the policy of an earlier revision again, as a new revision. Asks for your password."""
    with stored_session() as client:
        revision = _get_revision(client, number, environment)
        made = parse_model(
            Plan, post(client, "/plan", {"policy": revision["policy"]}, environment, None), "plan"
        )
    body = {"base": made.base, "message": message or f"Restore revision {number}"}
    question = f"Restore revision {number} of the {environment} environment?"
    with _confirmed(made, question, "restore a revision", yes, as_json, password_stdin) as session:
        path = f"/revisions/{revision['id']}/restore"
        applied = None if session is None else post(session, path, body, environment, None)
    _print_applied(applied, as_json=as_json)
    if applied is not None and applied["applied"]:
        print_note("write the restored policy to the file, and commit it, with: toolgate policy pull")


policy.command()(replay)
policy.command()(suggest)
policy.add_typer(shadow)


@policy.command()
def schema() -> None:
    """Print the JSON Schema of policy files, which editors use to validate and complete the files."""
    typer.echo(SCHEMA_FILE.read_text(), nl=False)


@contextmanager
def _confirmed(
    made: Plan, question: str, purpose: str, yes: bool, as_json: bool, password_stdin: bool
) -> Iterator[GatewayClient | None]:
    """Print a plan, ask for confirmation and the password, and yield a client; yield None if there are no changes."""
    if not as_json:
        made.print()
    if not made.changes:
        yield None
        return
    confirm(question, yes=yes)
    with password_session(purpose, password_stdin=password_stdin) as client:
        yield client


def _print_applied(applied: Mapping[str, Any] | None, *, as_json: bool) -> None:
    if as_json:
        print_json(applied or {"applied": False, "revision": None, "changes": []})
    elif applied is not None and applied["applied"]:
        typer.echo(f"applied as revision {applied['revision']}")
    elif applied is not None:
        typer.echo("no changes")


def _changed_resources(
    client: GatewayClient, document: Document, environment: str
) -> set[tuple[str, str]] | None:
    """Return the resources that differ from the gateway's policy; None if the gateway does not accept the file."""
    try:
        made = post(client, "/plan", {"policy": document.value}, environment, None)
    except GatewayError as error:
        print_note(f"the present content of {sanitize(document.path)} is invalid: {error.detail or error}")
        return None
    return {(one.resource, one.name) for one in parse_model(Plan, made, "plan").changes}


def _problems(file: Path) -> tuple[str, Sequence[str]]:
    """Return the numbers of items in a policy file as text, and its problems."""
    try:
        document = load_document(file)
    except DocumentError as error:
        return "", [str(error)]
    value = document.value
    if not is_policy(value):
        return "", [describe_other(file)]
    problems = load_gateway("policy").validate_policy(value)
    return ("" if problems else count_items(value)), document.describe(problems)


def _get_revision(client: GatewayClient, number: int, environment: str) -> dict[str, Any]:
    found = client.get(REVISIONS_PATH, {"environment": environment, "number": number})
    if not found:
        fail(f"the {environment} environment has no revision {number}; see: toolgate policy revisions")
    revision = parse_model(Resource, found[0], "revision")
    raw: dict[str, Any] = client.get(f"{REVISIONS_PATH}/{revision.id}", {"environment": environment})
    return raw


def _print_revision(raw: Mapping[str, Any], emails: Mapping[str, str]) -> None:
    print_page(
        f"Revision {raw['number']}",
        {
            "message": sanitize(raw["message"]),
            "applied at": sanitize(raw["created_at"]),
            "applied by": sanitize(emails.get(raw["created_by"], raw["created_by"])),
            "restores": None if raw["restores"] is None else f"revision {raw['restores']}",
        },
    )
    Plan(base="", digest="", changes=raw["changes"], warnings=[], policy={}).print()


def _row(raw: Mapping[str, Any], emails: Mapping[str, str]) -> tuple[str, ...]:
    restores = raw["restores"]
    return (
        str(raw["number"]),
        sanitize(raw["created_at"])[:19].replace("T", " "),
        sanitize(emails.get(raw["created_by"], raw["created_by"])),
        truncate(sanitize(raw["message"])),
        "" if restores is None else str(restores),
    )
