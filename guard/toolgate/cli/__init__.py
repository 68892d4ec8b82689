"""The command line ``toolgate``; it needs the extra ``cli``."""

import sys


def main() -> None:
    """Run the command line; without its extra, say in one line what to install."""
    try:
        from toolgate.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich"}:
            raise
        sys.exit("toolgate: the command line needs its extra; install it with: pip install 'toolgate[cli]'")
    try:
        app()
    except OSError as error:
        sys.exit(f"toolgate: {error}")
