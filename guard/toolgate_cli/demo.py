"""``toolgate demo``: run the program in ``examples/demo``, with its files in a new folder."""

import importlib.util
import io
import os
import secrets
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from toolgate_cli.entry_points import load_gateway
from toolgate_cli.output import fail


def demo(
    keep: Annotated[
        Path | None,
        typer.Option(help="Keep the files and the gateway's database in this new or empty folder."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help=(
                "The model of the demo's agent: 'scripted' for fixed answers without a language model, or a "
                "chat model such as anthropic:claude-sonnet-4-5. Default: a chat model if ANTHROPIC_API_KEY or "
                "OPENAI_API_KEY is set, otherwise 'scripted'."
            )
        ),
    ] = None,
    two_terminals: Annotated[
        bool,
        typer.Option("--two-terminals", help="Decide the approval requests yourself, in a second terminal."),
    ] = False,
    example: Annotated[
        Path | None,
        typer.Option(help="Run the demo from this folder, a changed copy of examples/shop.", hidden=True),
    ] = None,
) -> None:
    """Watch an agent work in a small shop: one refund allowed, one denied, a deletion that needs approval."""
    # If the extra `service` is missing, this call ends the command before anything is started.
    load_gateway("serve")
    program = load_program()
    secret = _prepare_process(keep=keep is not None)
    with ExitStack() as stack:
        folder = _create_folder(keep, stack)
        try:
            program.play(
                example or _example_folder("shop"),
                folder,
                model=model,
                secret=secret,
                keep=keep is not None,
                by_hand=two_terminals,
            )
        except program.DemoError as error:
            fail(str(error))


def load_program() -> Any:
    """Import the demo's package from its folder, and return it."""
    name, path = "toolgate_demo", _example_folder("demo") / "__init__.py"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _example_folder(name: str) -> Path:
    package = Path(__file__).parent
    # The first folder exists in an installed wheel, the second in a checkout of the repository.
    folders = (package / "_examples" / name, package.parents[1] / "examples" / name)
    found = next((folder for folder in folders if folder.is_dir()), None)
    if found is None:
        fail(f"the example {name!r} is not installed; reinstall toolgate")
    return found


def _prepare_process(*, keep: bool) -> str | None:
    """Remove the TOOLGATE_ variables from the environment, set signal handlers, and return the gateway's secret."""
    # With --keep, the user can later run a gateway with the demo's database. That gateway uses the user's
    # TOOLGATE_SECRET, so the demo must use the same secret.
    secret = os.environ.get("TOOLGATE_SECRET") if keep else secrets.token_urlsafe(32)
    for name in [name for name in os.environ if name.startswith("TOOLGATE_")]:
        del os.environ[name]
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _frame: sys.exit(128 + received))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A character that the terminal's encoding does not support is printed as a question mark instead of raising
            # an error.
            stream.reconfigure(errors="replace")
    return secret


def _create_folder(keep: Path | None, stack: ExitStack) -> Path:
    if keep is None:
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolgate-demo-")))
    folder = keep.expanduser().absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            fail(f"the folder {str(folder)!r} is not empty; choose a new folder with --keep")
    except OSError as error:
        fail(f"cannot use the folder {str(folder)!r}: {error.strerror}; choose another folder with --keep")
    return folder
