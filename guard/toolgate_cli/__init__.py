"""The command line ``toolgate``, which is installed with ``pip install 'toolgate[cli]'``."""

import sys

#: modules that the extra `cli` installs; if a module is missing, `main` prints how to install the extra
EXTRA = {
    "typer",
    "rich",
    "platformdirs",
    "standardwebhooks",
    "uvicorn",
    "ruamel",
    "ruamel.yaml",
    "cryptography",
}

#: words that users type after `toolgate hook`; with any other word, a coding agent has started the command as its hook
HOOK_COMMANDS = ("install", "serve", "uninstall", "--help")


def main() -> None:
    """Run the command line; if a module of the extra `cli` is missing, print how to install the extra."""
    if sys.argv[1:2] == ["hook"] and sys.argv[2:3] not in ([], *([word] for word in HOOK_COMMANDS)):
        # A hook runs before any other module is imported, for two reasons. A coding agent starts a hook for every tool
        # call, so the hook must start fast. After most failures outside of `run`, such as a failed import, the coding
        # agent would run the tool.
        from toolgate_cli.hooks.runner import run

        run(sys.argv[2:])
    try:
        from toolgate_cli.app import app

        if len(sys.argv) == 1:
            # Without arguments, some versions of click exit with status 0. A coding agent that ignores the `args` of
            # its hook starts this command without arguments, and would run the tool after status 0. So the status is 2.
            app(["--help"], standalone_mode=False)
            sys.exit(2)
        app()
    except ModuleNotFoundError as error:
        if error.name not in EXTRA:
            raise
        sys.exit(
            f"toolgate: the command line needs an optional package ({error.name!r} is missing); install it with: "
            "pip install 'toolgate[cli]'"
        )
    except OSError as error:
        sys.exit(f"toolgate: {error}")
