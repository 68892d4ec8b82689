"""Output of the demo: each decision when it is made, then the log."""

import logging
import os
import shlex
import shutil
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from .gateway import MAX_REFUND, REFUND, database_url
from .shop import OLD_FILE, Shop

_DECISION_STYLES: Final = {"allowed": "green", "blocked": "red", "held": "yellow"}
_STATUS_STYLES: Final = {"success": "green", "denied": "red", "failed": "red", "pending": "yellow"}


class Screen(logging.Handler):
    """Output on the terminal; as a handler of the SDK's logger it prints each decision when it is made."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._console = Console(highlight=False)
        self.decisions = 0
        #: called with the id of each approval request
        self.on_request: Callable[[str], None] | None = None
        self._in_second = False
        self._lock = threading.RLock()
        # Agents run tool calls in parallel threads.
        self._call = threading.local()

    def print_title(self) -> None:
        """Print the first line."""
        self._print(
            "\n[bold]Toolgate demo[/] · an agent works in a small shop; every tool call is checked first\n"
        )

    def print_progress(self, step: str) -> None:
        """Print a step of the preparation."""
        self._print(f"  [dim]… {escape(step)}[/]")

    def print_opening(self, url: str, model: str) -> None:
        """Print the gateway, the agent and its permissions."""
        self._print(f"\n  gateway      {escape(url)}")
        self._print(f"  agent        shop-assistant, LangChain's create_agent, model {escape(model)}")
        self._print(
            f"  may          {REFUND} up to {MAX_REFUND} · file.delete once a person approves · nothing else\n"
        )

    def record_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Keep the arguments of this thread's next tool call; the SDK's logger does not contain any."""
        self._call.arguments = dict(arguments)

    @contextmanager
    def show_decisions(self) -> Iterator[None]:
        """Print the decisions that are made within the block."""
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
        """Print one decision."""
        facts = record.__dict__
        if facts.get("toolgate_event") != "decision":
            return
        self.decisions += 1
        outcome, why = str(facts["toolgate_outcome"]), str(facts.get("toolgate_reason") or "")
        style = _DECISION_STYLES.get(outcome, "bold")
        action = str(facts["toolgate_action"])
        shown = " · ".join(filter(None, (self._arguments(action), why)))
        self._print(f"  [{style}]{outcome:<8}[/] {escape(action):<14} {escape(shown)}")
        if outcome == "held" and self.on_request is not None:
            self.on_request(str(facts.get("toolgate_approval_id")))

    def _arguments(self, action: str) -> str:
        arguments = getattr(self._call, "arguments", {})
        amount = arguments.get("amount")
        if action == REFUND and isinstance(amount, int | float):
            return f"order {arguments.get('order_id')}, amount {amount:.2f}, at most {MAX_REFUND:.2f}"
        # Only short texts: not the body of a mail.
        return ", ".join(str(arguments[name]) for name in ("name", "to") if name in arguments)

    def print_command(self, command: str) -> None:
        """Print a command that the person types in the second terminal."""
        self.print_second(f"$ {command}")

    def print_second(self, *lines: str) -> None:
        """Print output of the second terminal, set apart by a bar."""
        with self._lock:
            if not self._in_second:
                self._console.print(Text("  ┏━ second terminal", style="cyan"), soft_wrap=True)
            self._in_second = True
            for line in lines:
                self._console.print(Text("  ┃ ", style="cyan") + Text(line), soft_wrap=True)

    def print_instruction(self, text: str, command: str = "") -> None:
        """Print an instruction for the user, and a command to paste on a line of its own."""
        if text:
            self._print(f"  [cyan]▶ {escape(text)}[/]")
        if command:
            self._print(escape(command))

    def print_problem(self, message: str) -> None:
        """Print a problem that does not end the demo."""
        self._print(f"  [red]{escape(message)}[/]")

    def print_result(self, text: str) -> None:
        """Print the model's last message."""
        self._print("\n[bold]Summary of the model[/]\n")
        for line in text.splitlines():
            self._print(f"  {escape(line)}")

    def print_shop(self, shop: Shop) -> None:
        """Print the changes in the shop."""
        self._print("\n[bold]In the shop[/]\n")
        self._print(
            f"  order 1001 refunded {shop.get_refund('1001')} · order 1002 refunded {shop.get_refund('1002')}"
        )
        gone = "still there" if shop.has_file(OLD_FILE) else "deleted"
        self._print(f"  {OLD_FILE} {gone} · mails sent: {shop.count_mails()}\n")

    def print_kept(self, folder: Path) -> None:
        """Print the folder's content, and how to serve its database."""
        self._print(
            f"  kept in {escape(str(folder))}: shop.db, files/, gateway.db, and demo.json with the login"
        )
        url = database_url(folder / "gateway.db")
        self._print(
            f"  serve it again with TOOLGATE_DATABASE_URL={escape(shlex.quote(url))} {escape(command_name())} serve"
        )
        self._print("  and sign in at the console that it names, with the login of demo.json\n")

    def print_next_steps(self, *, keep: bool, by_hand: bool) -> None:
        """Print commands to try next, ready to be pasted into the same terminal."""
        steps = {}
        if not by_hand:
            steps["demo --two-terminals"] = "decide yourself, in a second terminal"
        if not keep:
            steps["demo --keep shop-demo"] = "the same, and keep the shop and the gateway's database"
        steps["serve"] = "a gateway of your own; it prints the address of its console"
        width = max(map(len, steps)) + len(command_name())
        self._print("\n[bold]Try next[/]\n")
        for words, purpose in steps.items():
            self._print(f"  {escape(f'{command_name()} {words}'):<{width + 1}}  # {escape(purpose)}")
        self._print("")

    def print_logs(self, entries: Sequence[dict[str, Any]]) -> None:
        """Print log entries as a table."""
        table = Table(
            title="The audit trail, read back from the gateway", title_justify="left", title_style="bold"
        )
        for heading in ("when (UTC)", "action", "status", "arguments", "why"):
            table.add_column(heading, overflow="fold")
        for entry in entries:
            context = dict(entry["context"] or {})
            context.pop("duration_ms", None)
            reason = ""
            if entry["status"] in {"denied", "pending"}:
                # The gateway stores its reason as "reason_" if there is an argument called "reason".
                reason = str(context.pop("reason_", None) or context.pop("reason", ""))
            arguments = ", ".join(f"{name}={value}" for name, value in context.items())
            status = f"[{_STATUS_STYLES.get(entry['status'], 'bold')}]{entry['status']}[/]"
            moment = entry["created_at"][11:23]
            table.add_row(moment, escape(entry["action"]), status, escape(arguments), escape(reason))
        self._console.print(table)

    def _print(self, line: str) -> None:
        with self._lock:
            if self._in_second:
                self._console.print(Text("  ┗━", style="cyan"))
            self._in_second = False
            self._console.print(line, soft_wrap=True)


@cache
def command_name() -> str:
    """Return how to start this installation's command in the current folder, quoted for a shell.

    `toolgate` if PATH leads to this installation, else the shortest path of its command.
    """
    own = shutil.which("toolgate", path=sysconfig.get_path("scripts"))
    if own is None:
        return shlex.join([sys.executable, "-m", "toolgate"])
    found = shutil.which("toolgate")
    if found is not None and Path(found).resolve() == Path(own).resolve():
        return "toolgate"
    relative = os.path.relpath(own)
    return shlex.quote(own if relative.startswith(os.pardir) else relative)
