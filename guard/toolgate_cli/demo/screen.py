"""What the demo shows: each decision as it happens, then the record."""

import logging
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from toolgate_cli.demo.owner import MAX_REFUND, PAYING
from toolgate_cli.demo.program import program
from toolgate_cli.demo.server import database_url

STYLES = {"allowed": "green", "blocked": "red", "held": "yellow"}
OUTCOMES = {"success": "green", "denied": "red", "failed": "red", "pending": "yellow"}


class ShopFacts(Protocol):
    """What the screen tells of the shop."""

    def refunded(self, order_id: str) -> str:
        """Return how much of an order was refunded."""

    def has_file(self, name: str) -> bool:
        """Say whether a file is in the folder."""

    def mails(self) -> int:
        """Return how many mails were sent."""


class Screen(logging.Handler):
    """Prints; as a handler of the SDK's log it hears of every decision the moment it is made."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._console = Console(highlight=False)
        self.decisions = 0
        self.when_held: Callable[[str], None] | None = None
        self._in_second = False
        self._lock_second = threading.RLock()
        # A model may call several tools at once, each on a thread of its own.
        self._call = threading.local()

    def title(self) -> None:
        """Show what this is."""
        self._say(
            "\n[bold]Toolgate demo[/] · an agent works in a small shop, and asks before every tool call\n"
        )

    def progress(self, step: str) -> None:
        """Show a setup step in a line that is flushed, also to a pipe."""
        self._say(f"  [dim]… {escape(step)}[/]")

    def opening(self, url: str, model: str) -> None:
        """Introduce the players."""
        self._say(f"\n  gateway      {escape(url)}")
        self._say(f"  agent        shop-assistant, LangChain's create_agent, model {escape(model)}")
        self._say(
            f"  may          {PAYING} up to {MAX_REFUND} · file.delete once a person approves · nothing else\n"
        )

    def tool_called(self, arguments: Mapping[str, Any]) -> None:
        """Note with which arguments the model calls a tool on this thread; the SDK's log has none of them."""
        self._call.arguments = dict(arguments)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Listen to the SDK's log."""
        logger = logging.getLogger("toolgate")
        level = logger.level
        logger.setLevel(logging.INFO)
        logger.addHandler(self)
        try:
            yield
        finally:
            logger.removeHandler(self)
            logger.setLevel(level)

    def emit(self, record: logging.LogRecord) -> None:
        """Show one decision."""
        facts = record.__dict__
        if facts.get("toolgate_event") != "decision":
            return
        self.decisions += 1
        outcome, why = str(facts["toolgate_outcome"]), str(facts.get("toolgate_reason") or "")
        style = STYLES.get(outcome, "bold")
        action = str(facts["toolgate_action"])
        shown = " · ".join(filter(None, (self._arguments(action), why)))
        self._say(f"  [{style}]{outcome:<8}[/] {escape(action):<14} {escape(shown)}")
        if outcome == "held" and self.when_held is not None:
            self.when_held(str(facts.get("toolgate_approval_id")))

    def _arguments(self, action: str) -> str:
        arguments = getattr(self._call, "arguments", {})
        amount = arguments.get("amount")
        if action == PAYING and isinstance(amount, int | float):
            return f"order {arguments.get('order_id')}, amount {amount:.2f}, at most {MAX_REFUND:.2f}"
        # Texts as short as names: a mail's body is not shown.
        return ", ".join(str(arguments[name]) for name in ("name", "to") if name in arguments)

    def typed(self, command: str) -> None:
        """Show a command that the person types at the second terminal."""
        self.second(f"$ {command}")

    def second(self, *lines: str) -> None:
        """Show what the second terminal shows, set apart."""
        with self._lock_second:
            if not self._in_second:
                self._console.print(Text("  ┏━ second terminal", style="cyan"), soft_wrap=True)
            self._in_second = True
            for line in lines:
                self._console.print(Text("  ┃ ", style="cyan") + Text(line), soft_wrap=True)

    def by_hand(self, words: str, command: str = "") -> None:
        """Show what the person at the keyboard is to do, and a command to paste, on a line of its own."""
        if words:
            self._say(f"  [cyan]▶ {escape(words)}[/]")
        if command:
            self._say(escape(command))

    def trouble(self, message: str) -> None:
        """Show that something is not as it should be."""
        self._say(f"  [red]{escape(message)}[/]")

    def last_words(self, words: str) -> None:
        """Show what the model said in the end."""
        self._say("\n[bold]What the model was told[/]\n")
        for line in words.splitlines():
            self._say(f"  {escape(line)}")

    def shop(self, shop: ShopFacts) -> None:
        """Show what changed in the world."""
        self._say("\n[bold]In the shop[/]\n")
        self._say(
            f"  order 1001 refunded {shop.refunded('1001')} · order 1002 refunded {shop.refunded('1002')}"
        )
        gone = "still there" if shop.has_file("customers-2019.csv") else "deleted"
        self._say(f"  customers-2019.csv {gone} · mails sent: {shop.mails()}\n")

    def kept(self, folder: Path) -> None:
        """Say where everything was left, and how to look at it."""
        self._say(
            f"  kept in {escape(str(folder))}: shop.db, files/, gateway.db, and demo.json with the login"
        )
        url = database_url(folder / "gateway.db")
        self._say(
            f"  serve it again with TOOLGATE_DATABASE_URL={escape(shlex.quote(url))} {escape(program())} serve"
        )
        self._say("  and sign in at the console that it names, with the login of demo.json\n")

    def next_steps(self, *, kept: bool, by_hand: bool) -> None:
        """Show commands to try next, as they can be pasted into the same terminal."""
        steps = {}
        if not by_hand:
            steps["demo --two-terminals"] = "decide yourself, in a second terminal"
        if not kept:
            steps["demo --keep shop-demo"] = "the same, and keep the shop and the gateway's database"
        steps["serve"] = "a gateway of your own; it prints the address of its console"
        width = max(map(len, steps)) + len(program())
        self._say("\n[bold]Try next[/]\n")
        for words, what in steps.items():
            self._say(f"  {escape(f'{program()} {words}'):<{width + 1}}  # {escape(what)}")
        self._say("")

    def audit_trail(self, entries: Sequence[dict[str, Any]]) -> None:
        """Show the record."""
        table = Table(
            title="The audit trail, read back from the gateway", title_justify="left", title_style="bold"
        )
        for heading in ("when (UTC)", "action", "status", "arguments", "why"):
            table.add_column(heading, overflow="fold")
        for entry in entries:
            context = dict(entry["context"] or {})
            context.pop("duration_ms", None)
            why = ""
            if entry["status"] in {"denied", "pending"}:
                # Where an argument is called "reason", the gateway's stands beside it.
                why = str(context.pop("reason_", None) or context.pop("reason", ""))
            arguments = ", ".join(f"{name}={value}" for name, value in context.items())
            status = f"[{OUTCOMES.get(entry['status'], 'bold')}]{entry['status']}[/]"
            moment = entry["created_at"][11:23]
            table.add_row(moment, escape(entry["action"]), status, escape(arguments), escape(why))
        self._console.print(table)

    def _say(self, line: str) -> None:
        with self._lock_second:
            if self._in_second:
                self._console.print(Text("  ┗━", style="cyan"))
            self._in_second = False
            self._console.print(line, soft_wrap=True)
