"""The command line ``toolgate``; it needs the extra ``cli``."""

import sys

#: modules of the extra `cli`
EXTRA = {"typer", "rich", "platformdirs", "standardwebhooks", "uvicorn"}

#: commands of `toolgate hook` for users; all others are run by coding agents
HOOK_COMMANDS = ("install", "serve", "uninstall", "--help")


def main() -> None:
    """Run the command line; without its extra, print which one to install."""
    if sys.argv[1:2] == ["hook"] and sys.argv[2:3] not in ([], *([word] for word in HOOK_COMMANDS)):
        # First, because this runs at every tool call, and most failures would make coding agents run the tool.
        from toolgate_cli.hooks.runner import run

        run(sys.argv[2:])
    try:
        from toolgate_cli.app import app

        if len(sys.argv) == 1:
            # Some versions of click exit with 0 here, and a coding agent that ignores `args` would run the tool.
            app(["--help"], standalone_mode=False)
            sys.exit(2)
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
