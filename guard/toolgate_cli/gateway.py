"""Loading the gateway, which this package does not know: through the entry points of this distribution."""

from importlib.metadata import entry_points
from typing import Any

from toolgate_cli.output import fail

GROUP = "toolgate.gateway"


def load_gateway(name: str) -> Any:
    """Return one of the gateway's entry points.

    Raises:
        typer.Exit: the gateway's extra is not installed; one line says what to install.
    """
    (entry,) = entry_points(group=GROUP, name=name)
    try:
        return entry.load()
    except ModuleNotFoundError as error:
        fail(
            f"the gateway needs its extra ({error.name!r} is missing); install it with: pip install 'toolgate[service]'"
        )
