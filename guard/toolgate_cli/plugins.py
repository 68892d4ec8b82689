"""Loading plugins, which this package does not know: through the entry points of this distribution."""

from importlib.metadata import entry_points
from typing import Any, Final

from toolgate.errors import ConfigurationError
from toolgate_cli.output import fail

GROUP: Final = "toolgate.plugins"


def load_plugin(name: str, extra: str) -> Any:
    """Return one of the plugins' entry points.

    Args:
        name: its name.
        extra: what it needs installed.

    Raises:
        typer.Exit: its extra is not installed; one line says what to install.
    """
    (entry,) = entry_points(group=GROUP, name=name)
    try:
        return entry.load()
    except ConfigurationError as error:
        fail(str(error))
    except ModuleNotFoundError as error:
        fail(f"this command needs its extra ({error.name!r} is missing); pip install 'toolgate[{extra}]'")
