"""The shop of ``examples/shop``: its data, its agent with a chat model, and the expected results."""

import importlib.util
import os
import shutil
import sqlite3
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import toolgate

OLD_FILE: Final = "customers-2019.csv"
SCRIPTED: Final = "scripted"

_NEW_FILE: Final = "customers-2026.csv"
_FLUSH_SECONDS: Final = 10.0
#: default models by the environment variable of their key
_REAL_MODELS: Final = {
    "ANTHROPIC_API_KEY": "anthropic:claude-sonnet-4-5",
    "OPENAI_API_KEY": "openai:gpt-5-mini",
}


class DemoError(Exception):
    """Error that ends the demo; its message is printed."""


class Credentials(Protocol):
    """Where the agent's gateway is, and its key."""

    url: str
    api_key: str


class AgentScreen(Protocol):
    """Output of the agent's run."""

    decisions: int

    def record_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Keep the arguments of the next tool call."""

    def print_problem(self, message: str) -> None:
        """Print a problem that does not end the demo."""

    def print_result(self, text: str) -> None:
        """Print the model's last message."""


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """Chat model by its name; `is_required` when the user named it, so that it is not replaced on failure."""

    name: str
    is_required: bool


def choose_model(named: str | None) -> ModelChoice:
    """Return the model that the user named, else a real one whose key is in the environment, else the scripted one."""
    if named is not None:
        return ModelChoice(named, is_required=True)
    for variable, model in _REAL_MODELS.items():
        if os.environ.get(variable):
            return ModelChoice(model, is_required=False)
    return ModelChoice(SCRIPTED, is_required=False)


@dataclass(frozen=True, slots=True)
class Shop:
    """A folder with `shop.db`, `files/` and, after the first mail, `outbox/`."""

    example: Path
    folder: Path

    @classmethod
    def create(cls, example: Path, folder: Path) -> "Shop":
        """Create the database and copy the files."""
        (folder / "shop.db").touch(mode=0o600)
        with closing(sqlite3.connect(folder / "shop.db")) as database:
            database.executescript((example / "shop.sql").read_text())
        shutil.copytree(example / "files", folder / "files")
        return cls(example, folder)

    def get_refund(self, order_id: str) -> str:
        """Return the refunded amount of an order."""
        with closing(sqlite3.connect(self.folder / "shop.db")) as database:
            row = database.execute("SELECT refunded FROM orders WHERE id = ?", (order_id,)).fetchone()
        return str(row[0])

    def has_file(self, name: str) -> bool:
        """Return whether a file is in the folder."""
        return (self.folder / "files" / name).exists()

    def count_mails(self) -> int:
        """Return the number of sent mails."""
        outbox = self.folder / "outbox"
        return len(list(outbox.iterdir())) if outbox.exists() else 0

    def load_agent(self) -> Any:
        """Import the example's agent, and with it LangChain."""
        path = self.example / "agent.py"
        try:
            spec = importlib.util.spec_from_file_location("toolgate_demo_agent", path)
            if spec is None or spec.loader is None:
                raise ImportError(path)
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in {"langchain", "langchain_core", "langgraph"}:
                raise
            raise DemoError(
                "the demo's agent needs its extra; install it with: pip install 'toolgate[demo]'"
            ) from error
        return module

    def run_agent(
        self, agent: Any, gateway: Credentials, agent_id: str, choice: ModelChoice, screen: AgentScreen
    ) -> None:
        """Run the agent with its tools guarded by the demo's gateway."""
        os.environ["SHOP_FOLDER"] = str(self.folder)
        # A file would outlive the demo's gateway.
        toolgate.configure(url=gateway.url, api_key=gateway.api_key, agent_id=agent_id, outbox="memory")
        try:
            text = agent.run(_create_model(choice, agent), on_call=screen.record_arguments)
        except Exception as error:
            # A real model may be unreachable. After its first tool call the scripted one cannot start over.
            if choice.name == SCRIPTED or choice.is_required or screen.decisions:
                raise DemoError(
                    f"the agent with the model {choice.name!r} failed: {type(error).__name__}: {error}"
                ) from error
            screen.print_problem(
                f"the model {choice.name!r} did not answer ({type(error).__name__}); using the scripted one"
            )
            text = agent.run(agent.ScriptedModel(), on_call=screen.record_arguments)
        toolgate.flush(_FLUSH_SECONDS)
        screen.print_result(text)


def check_results(
    shop: Shop,
    entries: Sequence[dict[str, Any]],
    approvals: Sequence[dict[str, Any]],
    *,
    may_reject: bool = False,
) -> list[str]:
    """Return the results that are not as expected.

    Args:
        shop: after the agent's run.
        entries: the log entries.
        approvals: the approval requests.
        may_reject: the person was free to reject the deletion.
    """
    logged = Counter((entry["action"], entry["status"]) for entry in entries)
    expected = {
        "order 1001 is not refunded by 40.00": shop.get_refund("1001") == "40.00",
        "order 1002 is refunded": shop.get_refund("1002") == "0.00",
        f"{_NEW_FILE} is gone": shop.has_file(_NEW_FILE),
        "a mail was sent": shop.count_mails() == 0,
        "the allowed refund is not logged once": logged["stripe.refund", "success"] == 1,
        "the denied refund is not logged": logged["stripe.refund", "denied"] >= 1,
        "the pending deletion is not logged once": logged["file.delete", "pending"] == 1,
        "the mail without a permission is not logged": logged["mail.send", "denied"] >= 1,
    }
    statuses = [one["status"] for one in approvals]
    is_deleted, deletions = not shop.has_file(OLD_FILE), logged["file.delete", "success"]
    if may_reject and statuses == ["denied"]:
        expected |= {
            f"{OLD_FILE} is gone, although its deletion was rejected": not is_deleted,
            "a rejected deletion is logged as done": deletions == 0,
            "the rejected deletion is not logged": logged["file.delete", "denied"] == 1,
        }
    else:
        expected |= {
            f"{OLD_FILE} is still there": is_deleted,
            "the deletion is not logged once": deletions == 1,
            "the approval was not consumed exactly once": statuses == ["consumed"],
        }
    return [problem for problem, is_as_expected in expected.items() if not is_as_expected]


def _create_model(choice: ModelChoice, agent: Any) -> Any:
    if choice.name == SCRIPTED:
        return agent.ScriptedModel()
    from langchain.chat_models import init_chat_model

    return init_chat_model(choice.name)
