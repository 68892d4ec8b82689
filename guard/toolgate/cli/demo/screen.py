"""What the demo shows: each decision as it happens, then the record."""

import logging
import shlex
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from toolgate.cli.demo.server import database_url

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

    def opening(self, url: str, model: str) -> None:
        """Introduce the players."""
        self._say(
            "\n[bold]Toolgate demo[/] · an agent works in a small shop, and asks before every tool call\n"
        )
        self._say(f"  gateway      {escape(url)}")
        self._say(f"  agent        shop-assistant, LangChain's create_agent, model {escape(model)}")
        self._say(
            "  may          stripe.refund up to 100 · file.delete once a person approves · nothing else\n"
        )

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
        self._say(f"  [{style}]{outcome:<8}[/] {escape(str(facts['toolgate_action'])):<14} {escape(why)}")
        if outcome == "held" and self.when_held is not None:
            self.when_held(str(facts.get("toolgate_approval_id")))

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
        self._say(f"  serve it again with TOOLGATE_DATABASE_URL={escape(shlex.quote(url))} toolgate serve\n")

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
