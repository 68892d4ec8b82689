"""The command line ``toolgate``; it needs the extra ``cli``."""

import sys

#: what the extra brings
EXTRA = {"typer", "rich", "platformdirs", "standardwebhooks", "h11"}


#: words after `toolgate hook` that are a person's
NO_HOOKS = ("install", "serve", "uninstall", "--help")


def main() -> None:
    """Run the command line; without its extra, say in one line what to install."""
    if sys.argv[1:2] == ["hook"] and sys.argv[2:3] not in ([], *([word] for word in NO_HOOKS)):
        # Before all else: coding agents wait for it at every tool call, and take most errors for a yes.
        from toolgate_cli.hook.running import run

        run(sys.argv[2:])
    try:
        from toolgate_cli.app import app

        if len(sys.argv) == 1:
            # Some versions of click end with 0 here: a coding agent that does not know of `args` would take it for a yes.
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
