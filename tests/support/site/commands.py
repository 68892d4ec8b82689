"""The reference page of the command line, from the commands' own help."""

from collections.abc import Iterator
from enum import EnumType
from pathlib import Path
from typing import Any

from typer.main import get_command

from toolgate_cli.app import app

HEAD = """\
# Command reference

Generated from `toolgate --help`. [Command line](../guides/command-line.md) has examples.

Every command has `--help`. Errors are one line on standard error. Exit status: 0 success, 1 error, 2 wrong usage, 130 Ctrl-C;
`toolgate check` ends with 3 for denied and 4 for approval required.
"""

VALUES = {int: "NUMBER", float: "NUMBER", Path: "PATH"}


def render_commands() -> str:
    """Return the page."""
    return "\n".join([HEAD, *_render(get_command(app), "toolgate")])


def _render(command: Any, path: str) -> Iterator[str]:
    # Typer's own click is not importable under one name in all supported versions.
    members = getattr(command, "commands", None)
    if members is None:
        yield from _render_command(command, path)
        return
    top = path == "toolgate"
    if not top:
        yield f"## {path}\n\n{_one_line(command.help)}\n"
    # Commands without a group come first: below a group's heading they would seem to belong to it.
    for name, member in sorted(members.items(), key=lambda item: hasattr(item[1], "commands")):
        if not member.hidden:
            yield from _render(member, f"{path} {name}")


def _render_command(command: Any, path: str) -> Iterator[str]:
    level = "##" if path.count(" ") == 1 else "###"
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [
        each
        for each in command.params
        if each.param_type_name == "option" and not each.hidden and each.name != "help"
    ]
    usage = " ".join([path, *(_usage(each) for each in arguments), *(["[OPTIONS]"] if options else [])])
    yield f"{level} {path}\n\n{_paragraphs(command.help)}\n\n```text\n{usage}\n```\n"
    if arguments or options:
        yield "| | |\n| --- | --- |"
        for each in arguments:
            yield f"| `{each.metavar or each.name.upper()}` | {_one_line(each.help)} |"
        for each in options:
            yield f"| {_names(each)} | {_one_line(each.help)}{_choices(each)}{_default(each)} |"
        yield ""


def _usage(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    name += "..." if argument.nargs == -1 else ""
    return name if argument.required else f"[{name}]"


def _names(option: Any) -> str:
    value = "" if option.is_flag else f" {option.metavar or _value_name(option)}"
    on = ", ".join(f"`{name}{value}`" for name in option.opts)
    off = ", ".join(f"`{name}`" for name in option.secondary_opts)
    return f"{on}; {off}" if off else on


def _value_name(option: Any) -> str:
    kind = option.type_descriptor.annotation
    return option.name.upper() if isinstance(kind, EnumType) else VALUES.get(kind, "TEXT")


def _choices(option: Any) -> str:
    kind = option.type_descriptor.annotation
    if not isinstance(kind, EnumType):
        return ""
    return f" One of {', '.join(f'`{member.value}`' for member in kind)}."


def _default(option: Any) -> str:
    if not option.show_default or option.default in {None, False, ()} or callable(option.default):
        return ""
    value = getattr(option.default, "value", option.default)
    return f" Default: `{value}`."


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", r"\|").replace("<", "&lt;")


def _paragraphs(text: str | None) -> str:
    return "\n\n".join(_one_line(part) for part in (text or "").split("\n\n"))
