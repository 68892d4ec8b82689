"""Loading of optional packages (the gateway and the plugins) through entry points instead of direct imports."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final

from toolgate.errors import ConfigurationError
from toolgate_cli.output import fail

GATEWAY_GROUP: Final = "toolgate.gateway"
PLUGIN_GROUP: Final = "toolgate.plugins"


def load_gateway(name: str) -> Any:
    """Return the function, class or module that the gateway's package provides under this entry-point name.

    Raises:
        typer.Exit: the extra `service` is not installed.
    """
    try:
        return import_gateway(name)
    except ModuleNotFoundError as error:
        fail(
            f"the gateway needs an optional package ({error.name!r} is missing); install it with: "
            "pip install 'toolgate[service]'"
        )


# Searching the entry points of all installed distributions takes as long as most commands.
@cache
def import_gateway(name: str) -> Any:
    """Return the same as `load_gateway`.

    Raises:
        ModuleNotFoundError: the extra `service` is not installed.
    """
    (entry,) = entry_points(group=GATEWAY_GROUP, name=name)
    return entry.load()


@contextmanager
def gateway_errors() -> Iterator[None]:
    """Context manager that prints errors about the gateway's settings or database, and then ends the command.

    Raises:
        typer.Exit: the block raised such an error, or the extra `service` is not installed.
    """
    start_error = load_gateway("StartError")
    try:
        yield
    except start_error as error:
        fail(str(error))


def load_plugin(name: str, extra: str) -> Any:
    """Return the function, class or module that a plugin provides under this entry-point name.

    Args:
        name: name of the entry point.
        extra: the extra that the user must install if a package is missing.

    Raises:
        typer.Exit: a package is missing, or a framework has an unsupported version.
    """
    (entry,) = entry_points(group=PLUGIN_GROUP, name=name)
    try:
        return entry.load()
    except ConfigurationError as error:
        fail(str(error))
    except ModuleNotFoundError as error:
        fail(
            f"this command needs an optional package ({error.name!r} is missing); pip install 'toolgate[{extra}]'"
        )
