"""`toolgate demo --two-terminals`, played as a person does: two real terminals, the second pasted into."""

import os
import re
from pathlib import Path

import pytest
from support.terminal import Terminal

pytestmark = pytest.mark.sqlite_only("the demo brings a gateway with a file of its own")


def pasted(terminal: Terminal, words: str) -> str:
    """Return the command of the next line to paste that ends so, or with an id behind it."""
    terminal.wait_for("env -u XDG_CONFIG_HOME HOME=")
    line = "env -u XDG_CONFIG_HOME HOME=" + terminal.wait_for("\n").removesuffix("\n")
    assert words in line
    return line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verb", "says"), [("approve", "Deleted customers-2019.csv."), ("deny", "Not needed.")]
)
def test_a_person_decides_in_a_second_terminal(tmp_path: Path, verb: str, says: str) -> None:
    """The commands are pasted as they stand, the password typed; the first terminal goes on either way, and ends well."""
    models = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY")
    env = {name: value for name, value in os.environ.items() if name not in models}
    env |= {"TMPDIR": str(tmp_path), "PYTHONUTF8": "1"}

    def paste(line: str) -> Terminal:
        return Terminal(line, env=env, program=("/bin/sh", "-c"))

    with Terminal("demo", "--two-terminals", env=env, columns=120) as first:
        login = pasted(first, "login --url http://127.0.0.1:")
        first.wait_for("throw-away account alone: ")
        password = re.sub(r"\x1b\[[0-9;]*m", "", first.wait_for("\n")).strip()
        with paste(login) as second:
            second.wait_for("Password of owner@shop.example at ")
            second.type(password)
            assert second.end() == 0, second.shown
        lines = {word: pasted(first, f"approvals {word} ") for word in ("approve", "deny")}
        with paste(f"{lines[verb]} --note 'Not needed.'") as second:
            shown = second.wait_for(f"to {verb} this request: ")
            assert '│ name  "customers-2019.csv"' in shown
            second.type(password)
            assert second.end() == 0, second.shown
        first.wait_for("Summary of the model")
        first.wait_for(says)
        assert first.end() == 0, first.shown
    assert list(tmp_path.iterdir()) == []
