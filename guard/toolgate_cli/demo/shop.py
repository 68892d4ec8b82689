"""The shop that the demo's agent works in, laid out from the example."""

import importlib.util
import os
import shutil
import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import toolgate
from toolgate_cli.demo.models import SCRIPTED, ModelChoice
from toolgate_cli.demo.screen import Screen
from toolgate_cli.output import fail

_TO_FLUSH: Final = 10.0


@dataclass(frozen=True, slots=True)
class Shop:
    """A folder with `shop.db`, `files/` and, once a mail was sent, `outbox/`."""

    example: Path
    folder: Path

    @classmethod
    def lay_out(cls, example: Path, folder: Path) -> "Shop":
        """Make the database and copy the files."""
        (folder / "shop.db").touch(mode=0o600)
        with closing(sqlite3.connect(folder / "shop.db")) as database:
            database.executescript((example / "shop.sql").read_text())
        shutil.copytree(example / "files", folder / "files")
        return cls(example, folder)

    def refunded(self, order_id: str) -> str:
        """Return how much of an order was refunded."""
        with closing(sqlite3.connect(self.folder / "shop.db")) as database:
            row = database.execute("SELECT refunded FROM orders WHERE id = ?", (order_id,)).fetchone()
        return str(row[0])

    def has_file(self, name: str) -> bool:
        """Say whether a file is in the folder."""
        return (self.folder / "files" / name).exists()

    def mails(self) -> int:
        """Return how many mails were sent."""
        return len(list((self.folder / "outbox").glob("*"))) if (self.folder / "outbox").exists() else 0

    def load_agent(self) -> Any:
        """Import the example's agent, and with it LangChain."""
        return _load(self.example / "agent.py")

    def run_agent(
        self, agent: Any, url: str, api_key: str, agent_id: str, choice: ModelChoice, screen: Screen
    ) -> None:
        """Let the agent work, with the guard of its tools set to the demo's gateway."""
        os.environ["SHOP_FOLDER"] = str(self.folder)
        # What the demo's gateway never gets is nobody else's: it is gone with the demo.
        toolgate.configure(url=url, api_key=api_key, agent_id=agent_id, outbox="memory")
        try:
            words = agent.run(_model(choice, agent), on_call=screen.tool_called)
        except Exception as error:  # noqa: BLE001 - whatever a model library raises ends in one line
            # A real model may be out of reach or out of credit; before it asked for anything, the script may play.
            if choice.is_scripted or choice.demanded or screen.decisions:
                fail(f"the agent with the model {choice.name!r} failed: {type(error).__name__}: {error}")
            screen.trouble(
                f"the model {choice.name!r} did not answer ({type(error).__name__}); the scripted one plays"
            )
            words = agent.run(agent.ScriptedModel(), on_call=screen.tool_called)
        toolgate.flush(_TO_FLUSH)
        screen.last_words(words)


def example_folder() -> Path:
    """Return the folder of the example: inside an installed wheel, or beside the packages of a checkout."""
    package = Path(toolgate.__file__).parent
    places = (package / "_examples" / "shop", package.parents[1] / "examples" / "shop")
    found = next((place for place in places if (place / "agent.py").exists()), None)
    if found is None:
        fail("the demo's example is not installed; reinstall toolgate")
    return found


def _model(choice: ModelChoice, agent: Any) -> Any:
    if choice.name == SCRIPTED:
        return agent.ScriptedModel()
    from langchain.chat_models import init_chat_model

    return init_chat_model(choice.name)


def _load(path: Path) -> Any:
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
        fail("the demo's agent needs its extra; install it with: pip install 'toolgate[demo]'")
    return module
