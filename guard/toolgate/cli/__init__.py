"""The command line ``toolgate``; it needs the extra ``cli``."""

import sys

#: what the extra brings
EXTRA = {"typer", "rich", "platformdirs", "standardwebhooks"}


def main() -> None:
    """Run the command line; without its extra, say in one line what to install."""
    try:
        from toolgate.cli.app import app

        app()
    except ModuleNotFoundError as error:
        if error.name not in EXTRA:
            raise
        sys.exit(
            f"toolgate: the command line needs its extra ({error.name!r} is missing); install it with: "
            "pip install 'toolgate[cli]'"
        )
    except OSError as error:
        sys.exit(f"toolgate: {error}")
