"""Resources of the gateway, such as agents and keys: base model, lookup by id, and output as lists and pages."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar

import typer
from pydantic import BaseModel, ConfigDict, Field

from toolgate_cli.layout import Layout
from toolgate_cli.output import Column, fail, print_json, print_table, terminal_width

_ID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_ID_PREFIX: Final = re.compile(r"[0-9a-f-]{4,36}")
_MAX_LISTED: Final = 5


class Resource(BaseModel):
    """Base class of resources that the gateway's API returns; it validates `id`, which is used in the paths of URLs."""

    model_config = ConfigDict(frozen=True)

    id: Annotated[str, Field(pattern=f"^{_ID.pattern}$")]


AnyResource = TypeVar("AnyResource", bound=Resource)


def is_id(text: str) -> bool:
    """Return whether a text is a complete id."""
    return bool(_ID.fullmatch(text))


def match_id(everything: Sequence[tuple[AnyResource, Any]], wanted: str) -> list[tuple[AnyResource, Any]]:
    """Return the resources whose id begins with `wanted` (at least 4 characters), each with its JSON."""
    prefix = wanted.strip().lower()
    return [one for one in everything if _ID_PREFIX.fullmatch(prefix) and one[0].id.startswith(prefix)]


def pick_one(
    found: Sequence[tuple[AnyResource, Any]], wanted: str, *, plural: str, missing: str
) -> tuple[AnyResource, Any]:
    """Return the only element of `found`; if there is none or more than one, end the command with an error.

    Args:
        found: the resources that match, each with its JSON.
        wanted: the user input.
        plural: name of the kind of resource in the error message, such as "agents".
        missing: the error message if no resource matches.

    Raises:
        typer.Exit: no resource matches, or more than one resource matches.
    """
    if not found:
        fail(missing)
    if len(found) > 1:
        ids = ", ".join(resource.id for resource, _ in found[:_MAX_LISTED])
        fail(f"{wanted!r} matches {len(found):,} {plural}: {ids}; write the id")
    return found[0]


def print_list(
    found: Sequence[tuple[AnyResource, Any]],
    columns: Sequence[Column],
    row: Callable[[AnyResource], Sequence[str]],
    *,
    empty: str,
    as_json: bool,
) -> None:
    """Print resources, each with its JSON, as a table or as JSON; the text `empty` replaces an empty table."""
    if as_json:
        print_json([raw for _, raw in found])
    elif not found:
        typer.echo(empty)
    else:
        print_table(columns, (row(resource) for resource, _ in found))


def print_page(title: str, fields: Mapping[str, str | None]) -> None:
    """Print a title and, below it, fields that the caller has sanitized; empty fields are omitted."""
    typer.echo(title)
    layout = Layout(terminal_width())
    for label, text in fields.items():
        for line in layout.line(label, text) if text else ():
            typer.echo(line)
