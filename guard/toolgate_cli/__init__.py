"""The command line ``toolgate``, which is installed with ``pip install 'toolgate[cli]'``."""

import sys

#: modules that the extra `cli` installs; if one is missing, `main` prints how to install the extra
EXTRA = {"typer", "rich", "platformdirs", "standardwebhooks", "uvicorn"}

#: words that users write after `toolgate hook`; any other word means that a coding agent has started a hook
HOOK_COMMANDS = ("install", "serve", "uninstall", "--help")


def main() -> None:
    """Run the command line; if a module of the extra `cli` is missing, print how to install the extra."""
    if sys.argv[1:2] == ["hook"] and sys.argv[2:3] not in ([], *([word] for word in HOOK_COMMANDS)):
        # A hook runs before any other module is imported, for two reasons. A coding agent starts a hook at every tool
        # call, so the hook must start fast. And most failures outside of `run`, such as a failed import, would let the
        # tool run.
        from toolgate_cli.hooks.runner import run

        run(sys.argv[2:])
    try:
        from toolgate_cli.app import app

        if len(sys.argv) == 1:
            # Without arguments, some versions of click exit with status 0. A coding agent that ignores the `args` of
            # its hook would then run the tool, so the status is 2.
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
