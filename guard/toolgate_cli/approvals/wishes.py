"""What a person wishes beyond a plain yes: other arguments, or the same for a while."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from toolgate._capture.jsontext import read_decimal
from toolgate_cli.approvals.fields import hidden_names
from toolgate_cli.approvals.layout import Layout
from toolgate_cli.approvals.reading import Approval
from toolgate_cli.approvals.spans import read_span, span_text
from toolgate_cli.output import fail
from toolgate_cli.visible import visible

#: what the gateway takes
_USES = (1, 1_000)
_SECONDS = (60, 2_592_000)


@dataclass(frozen=True, slots=True)
class Edit:
    """The whole context as it should be instead, and what differs."""

    context: dict[str, Any]
    changes: dict[str, Any]

    def body(self) -> dict[str, Any]:
        """Return what is sent beside the note."""
        return {"context": self.context}

    def told(self, layout: Layout) -> Iterator[str]:
        """Yield what is said before the decision."""
        yield "  you approve it with these changes instead, and nothing else"
        for name, value in self.changes.items():
            yield from layout.value(name, value)


@dataclass(frozen=True, slots=True)
class Grant:
    """The same for a number of uses and a time."""

    uses: int
    seconds: int
    except_fields: tuple[str, ...]

    def body(self) -> dict[str, Any]:
        """Return what is sent beside the note."""
        told = {"uses": self.uses, "seconds": self.seconds}
        return {"grant": told | ({"except_fields": list(self.except_fields)} if self.except_fields else {})}

    def told(self, layout: Layout) -> Iterator[str]:
        """Yield what is said before the decision."""
        times = f"up to {self.uses:,} times within {span_text(self.seconds)}"
        yield f"  you allow it {times}, without anybody being asked again"
        kept = "an amount at most as shown, every other field equal"
        except_for = ", ".join(visible(name) for name in self.except_fields)
        told = f"{kept}, but for these, which may be anything: {except_for}" if except_for else kept
        yield from layout.line("each with", told)


def read_edits(edits: Sequence[str], approval: Approval) -> Edit | None:
    """Return the edited context, or None when nothing is edited.

    Raises:
        typer.Exit: an edit is none, or not one that can be made; one line says so.
    """
    if not edits:
        return None
    context, changes = approval.context, {}
    for edit in edits:
        name, equals, text = edit.partition("=")
        if not equals:
            fail(f"{edit!r} is no edit; write --edit NAME=JSON, for instance --edit amount=40")
        if name in changes:
            fail(f"{name!r} is edited twice")
        if name not in context:
            fail(f"the request has no field {name!r}; it has {_listed(context)}")
        if list(hidden_names(context[name])):
            fail(f"{name!r} is hidden from you, wholly or in part, and cannot be edited")
        changes[name] = _json(name, text)
    edited = {**context, **changes}
    if _same(edited, context):
        fail("the edits change nothing; without them the request is approved as it is")
    return Edit(edited, changes)


def read_grant(
    span: str | None, uses: int | None, except_fields: Sequence[str], approval: Approval
) -> Grant | None:
    """Return the grant, or None when none is wished.

    Raises:
        typer.Exit: it is not whole, or not one that can be given; one line says so.
    """
    if span is None and uses is None:
        if except_fields:
            fail("--any is of a grant; say as well --for and --uses")
        return None
    if span is None or uses is None:
        fail("a grant needs both --for and --uses, for instance --for 1h --uses 10")
    try:
        seconds = read_span(span)
    except ValueError as error:
        fail(f"--for: {error}")
    if not _SECONDS[0] <= seconds <= _SECONDS[1]:
        fail("--for must be from 1 minute to 30 days")
    if not _USES[0] <= uses <= _USES[1]:
        fail("--uses must be from 1 to 1,000")
    for name in except_fields:
        if name not in approval.context:
            fail(f"--any: the request has no field {name!r}; it has {_listed(approval.context)}")
    return Grant(uses, seconds, tuple(dict.fromkeys(except_fields)))


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(
            text, parse_float=read_decimal, parse_constant=_no_number, object_pairs_hook=_members_once
        )
    except (ValueError, RecursionError):
        fail(
            f"the new value of {name!r} is no JSON; texts need quotes, which the shell needs quoted: "
            f"--edit '{name}=\"…\"'"
        )


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def _members_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member stands there twice")
    return members


def _same(one: Any, other: Any) -> bool:
    # In Python true equals 1; in JSON it does not.
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _listed(context: dict[str, Any]) -> str:
    return ", ".join(visible(name) for name in context) or "none"
