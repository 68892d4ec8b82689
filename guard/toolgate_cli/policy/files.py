"""The policy file that a command receives as its argument, and errors about it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer

from toolgate_cli.output import fail, sanitize
from toolgate_cli.policy.documents import Document, DocumentError, load_document
from toolgate_cli.policy.merge import VERSION

DEFAULT_FILE: Final = Path("policy.yaml")

PolicyFile = Annotated[Path, typer.Argument(metavar="[FILE]", help="The policy file, YAML or JSON.")]
Message = Annotated[
    str | None,
    typer.Option(help="Why the policy changes, for the list of revisions.", show_default=False),
]


@contextmanager
def document_errors() -> Iterator[None]:
    """Context manager that prints the error about a file, and then ends the command."""
    try:
        yield
    except DocumentError as error:
        fail(str(error))


def load_policy_file(path: Path) -> Document:
    """Return the policy file with this path, or end the command if it cannot be read or is not a policy."""
    with document_errors():
        document = load_document(path)
    require_policy(document)
    return document


def is_policy(value: Any) -> bool:
    """Return whether the content of a file is a policy, perhaps an invalid one."""
    return isinstance(value, dict) and value.get("version") == VERSION


def describe_other(path: Path) -> str:
    """Return the error message for a file that is not a policy."""
    return f"{sanitize(path)} is not a policy: it has no line 'version: {VERSION}'"


def require_policy(document: Document) -> dict[str, Any]:
    """Return the content of a policy file, or end the command if it is not a policy."""
    if not is_policy(document.value):
        fail(describe_other(document.path))
    value: dict[str, Any] = document.value
    return value


def fail_with(lines: Sequence[str]) -> NoReturn:
    """Print lines on standard error, and end the command with status 1."""
    for line in lines:
        typer.echo(line, err=True)
    raise typer.Exit(1)
