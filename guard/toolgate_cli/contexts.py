"""A context as it is written on a command line: field by field, or as JSON."""

import sys
from collections.abc import Sequence
from typing import Any

from toolgate._capture.jsontext import loads
from toolgate_cli.output import fail

#: what the gateway takes
_LONGEST = 64 * 1024


def read_context(fields: Sequence[str], as_json: str | None) -> dict[str, Any] | None:
    """Return the context that was written, or None where none was.

    Args:
        fields: `NAME=VALUE` each.
        as_json: an object as JSON; `-` reads it from standard input.

    Raises:
        typer.Exit: it is none; one line says why.
    """
    if as_json is None and not fields:
        return None
    context = {} if as_json is None else _object(as_json)
    for field in fields:
        name, value = read_field(field)
        if name in context:
            fail(f"the context says {name!r} twice")
        context[name] = value
    return context


def read_field(field: str) -> tuple[str, Any]:
    """Return the name and the value of a field that was written.

    A value that is JSON is what it says: a number, true, false, null, a list, an object, a text in quotes. Every other
    value is the text as it stands.

    Raises:
        typer.Exit: it is no field; one line says how to write one.
    """
    name, equals, text = field.partition("=")
    if not equals or not name:
        fail(
            f"{field[:80]!r} is no field of a context; write --context NAME=VALUE, such as --context amount=40"
        )
    try:
        return name, loads(text, exactly=True)
    except (ValueError, RecursionError):
        return name, text


def _object(text: str) -> dict[str, Any]:
    written = _standard_input() if text == "-" else text
    if len(written) > _LONGEST:
        fail(f"--context-json has more than {_LONGEST:,} characters")
    try:
        content = loads(written, exactly=True)
    except (ValueError, RecursionError) as error:
        fail(f"--context-json is no JSON that has one meaning: {error}")
    if not isinstance(content, dict):
        fail("--context-json is no object; write one, such as '{\"amount\": 40}'")
    return content


def _standard_input() -> str:
    try:
        return sys.stdin.read(_LONGEST + 1)
    except UnicodeError:
        fail("standard input is no text in UTF-8")
