"""The policy file that a command receives as its argument, and errors about it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer

from toolgate_cli.output import fail, sanitize
from toolgate_cli.policy.documents import Document, DocumentError, load_document, write_file
from toolgate_cli.policy.edits import edit_document
from toolgate_cli.policy.merge import VERSION, Changed, header, identity, merge_policy, without_defaults
from toolgate_cli.policy.serializer import block_lines, json_text

DEFAULT_FILE: Final = Path("policy.yaml")

PolicyFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="The policy file, YAML or JSON. Default: policy.yaml.")
]
ResultAsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON, in ASCII.")]
Message = Annotated[
    str | None,
    typer.Option(help="The reason for the change, which the list of revisions shows.", show_default=False),
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


def update_file(path: Path, new: dict[str, Any], changed: Changed | None) -> None:
    """Write a policy to a file. In a file that exists, only the values that differ are changed.

    Args:
        path: A policy file, or a file that does not exist.
        new: The policy with all fields.
        changed: Resources that differ, as for `merge_policy`.

    Raises:
        DocumentError: The layout of the file does not allow the change, or the file cannot be written.
    """
    if not path.exists() or not path.stat().st_size:
        compact = without_defaults(new)
        is_json = path.suffix == ".json"
        lines = [header().rstrip(), *block_lines(compact)]
        write_file(path, f"{json_text(compact)}\n" if is_json else "".join(f"{line}\n" for line in lines))
        return
    document = load_policy_file(path)
    merged = merge_policy(document.value, new, changed)
    text = f"{json_text(merged)}\n" if document.is_json else edit_document(document, merged, identity)
    write_file(path, text, has_crlf=document.has_crlf)


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
