"""The demo from beginning to end."""

import io
import os
import secrets
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from toolgate_cli.answers import ManagementError
from toolgate_cli.demo.facts import check_facts
from toolgate_cli.demo.models import ModelChoice, choose_model
from toolgate_cli.demo.owner import Owner
from toolgate_cli.demo.screen import Screen
from toolgate_cli.demo.second_terminal import second_terminal
from toolgate_cli.demo.server import DemoGateway
from toolgate_cli.demo.shop import Shop, example_folder
from toolgate_cli.output import fail


def demo(
    keep: Annotated[
        Path | None,
        typer.Option(help="Leave the shop, its folder and the gateway's file in this new or empty folder."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="'scripted', or a chat model such as anthropic:claude-sonnet-4-5. Default: a real model when "
            "ANTHROPIC_API_KEY or OPENAI_API_KEY is set, otherwise the scripted one."
        ),
    ] = None,
    two_terminals: Annotated[
        bool, typer.Option("--two-terminals", help="Decide yourself, in a second terminal of your own.")
    ] = False,
    example: Annotated[
        Path | None, typer.Option(help="Another shop to play: a changed copy of examples/shop.", hidden=True)
    ] = None,
) -> None:
    """Watch an agent work in a small shop: one refund allowed, one blocked, a deletion held and approved."""
    choice = choose_model(model)
    secret = _prepare_process(keep=keep is not None)
    with ExitStack() as stack:
        folder = _folder(keep, stack)
        try:
            kept = keep is not None
            wrong = _play(
                example or example_folder(), folder, choice, secret, keep=kept, by_hand=two_terminals
            )
        except ManagementError as error:
            fail(str(error))
    if wrong:
        fail("the demo did not go as told: " + "; ".join(wrong))


def _prepare_process(*, keep: bool) -> str | None:
    """Shield the demo from the user's settings, let a kill end it properly, and return the gateway's secret."""
    # A file that is thrown away needs no lasting secret; a kept one is opened again with the user's own.
    secret = os.environ.get("TOOLGATE_SECRET") if keep else secrets.token_urlsafe(32)
    for name in [name for name in os.environ if name.startswith("TOOLGATE_")]:
        del os.environ[name]
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, _frame: sys.exit(128 + number))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a character gets a question mark, not a traceback.
            stream.reconfigure(errors="replace")
    return secret


def _folder(keep: Path | None, stack: ExitStack) -> Path:
    if keep is None:
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolgate-demo-")))
    folder = keep.expanduser().absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            fail(f"the folder {str(folder)!r} is not empty; name a new one with --keep")
    except OSError as error:
        fail(f"cannot use the folder {str(folder)!r}: {error.strerror}; name another with --keep")
    return folder


def _play(
    example: Path, folder: Path, choice: ModelChoice, secret: str | None, *, keep: bool, by_hand: bool
) -> list[str]:
    screen = Screen()
    screen.title()
    screen.progress("laying out the shop: a database of orders and two files")
    shop = Shop.lay_out(example, folder)
    # First what may be missing: without its extra nothing is started.
    screen.progress("loading LangChain")
    agent = shop.load_agent()
    screen.progress("starting a gateway on a database of its own")
    with DemoGateway(folder / "gateway.db", secret=secret) as gateway:
        screen.progress("registering the owner, creating the agent and its permissions")
        owner = Owner.register(gateway.url)
        agent_id = owner.set_up_agent()
        screen.opening(gateway.url, choice.name)
        with screen.watching(), second_terminal(owner, screen, by_hand=by_hand):
            shop.run_agent(agent, gateway.url, owner.api_key, agent_id, choice, screen)
        entries, approvals = owner.read_log(), owner.read_approvals()
        screen.shop(shop)
        if keep:
            owner.leave_note(folder, agent_id)
            screen.kept(folder)
        screen.audit_trail(entries)
        wrong = check_facts(shop, entries, approvals, may_deny=by_hand)
    if not wrong:
        screen.next_steps(kept=keep, by_hand=by_hand)
    return wrong
