"""Former names of commands and options, which are accepted until version 0.2 with a warning."""

from collections.abc import Iterator, Mapping
from itertools import takewhile
from types import MappingProxyType
from typing import Any, Final

from typer.core import TyperGroup

from toolgate_cli.output import print_note

#: present names of commands by group and former name
COMMANDS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "agents": {"activate": "enable", "deactivate": "disable"},
        "permissions": {"grant": "create", "change": "update", "revoke": "delete"},
        "keys": {"regenerate": "rotate"},
        "outbox": {"drop": "purge"},
    }
)
#: present names of options by their former names
OPTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "--ttl": "--approval-ttl",
        "--no-ttl": "--no-approval-ttl",
        "--any": "--ignore-field",
        "--text": "--query",
    }
)


class RenamingGroup(TyperGroup):
    """Command group that prints a warning on standard error if a former name of a command or an option is used."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that `args` begin with, and print the warnings."""
        found = super().resolve_command(ctx, args)
        # Shell completion calls this method too, and its output must not contain warnings.
        if not ctx.resilient_parsing:
            for former, name in _find_former_names(ctx.info_name, args, found[1]):
                print_note(f"{former} is deprecated and accepted until version 0.2; use {name}")
        return found


def _find_former_names(group: str, args: list[str], command: Any) -> Iterator[tuple[str, str]]:
    word, *rest = args
    if name := COMMANDS.get(group, {}).get(word):
        yield f"'{group} {word}'", f"'{group} {name}'"
    accepted = {spelling for parameter in command.params for spelling in parameter.opts}
    words = takewhile(lambda arg: arg != "--", rest)
    for option in dict.fromkeys(arg.partition("=")[0] for arg in words):
        if option in OPTIONS and option in accepted:
            yield option, OPTIONS[option]
