"""Loading of the gateway and of plugins through entry points; the command line does not import them."""

from importlib.metadata import entry_points
from typing import Any, Final

from toolgate.errors import ConfigurationError
from toolgate_cli.output import fail

PLUGINS: Final = "toolgate.plugins"


def load_plugin(name: str, extra: str) -> Any:
    """Return one of the plugins' entry points.

    Args:
        name: its name.
        extra: what it needs installed.

    Raises:
        typer.Exit: its extra is not installed; one line says what to install.
    """
    (entry,) = entry_points(group=PLUGINS, name=name)
    try:
        return entry.load()
    except ConfigurationError as error:
        fail(str(error))
    except ModuleNotFoundError as error:
        fail(f"this command needs its extra ({error.name!r} is missing); pip install 'toolgate[{extra}]'")


GATEWAY = "toolgate.gateway"


def load_gateway(name: str) -> Any:
    """Return one of the gateway's entry points.

    Raises:
        typer.Exit: the gateway's extra is not installed; one line says what to install.
    """
    (entry,) = entry_points(group=GATEWAY, name=name)
    try:
        return entry.load()
    except ModuleNotFoundError as error:
        fail(
            f"the gateway needs its extra ({error.name!r} is missing); install it with: pip install 'toolgate[service]'"
        )
