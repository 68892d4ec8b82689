"""The demo's second terminal: a person's own processes of the command line, in a home of their own."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from toolgate_cli.demo.owner import EMAIL, Owner
from toolgate_cli.demo.screen import Screen
from toolgate_cli.output import fail

#: what the person lets go
OLD_FILE = "customers-2019.csv"

_REQUEST = re.compile(r"Approval (\S+) · pending")
#: seconds that one command may take
_PATIENCE = 60


class SecondTerminal:
    """Where the person sits, while the agent works in the first.

    Args:
        owner: the person.
        home: where the person's login is kept.
        screen: shows what happens.
    """

    def __init__(self, owner: Owner, home: Path, screen: Screen) -> None:
        self._owner = owner
        self._home = home
        self._screen = screen
        foreign = ("TOOLGATE_", "XDG_CONFIG_HOME")
        self._env = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        self._env |= {"HOME": str(home), "PYTHONUTF8": "1"}
        # What is shown of it stands a little further in.
        self._env["COLUMNS"] = str(shutil.get_terminal_size((100, 24)).columns - 6)
        self._decisions: list[threading.Thread] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Log in, watch what is asked, and decide each request by what it says; log out at the end."""
        login = ["login", "--url", self._owner.url, "--email", EMAIL, "--password-stdin"]
        if self._run(login, typed=self._owner.password) != 0:
            fail("nobody can log in at the second terminal")
        try:
            with self._watch() as watch:
                reader = threading.Thread(target=self._follow, args=(watch,), name="second-terminal")
                reader.start()
                try:
                    yield
                finally:
                    watch.send_signal(signal.SIGINT)
                    reader.join()
                    for decision in self._decisions:
                        decision.join()
        finally:
            self._run(["logout"])

    def by_hand(self) -> None:
        """Tell the person how to log in at a second terminal, and what to paste once something is asked."""
        login = self._pasted("login", "--url", self._owner.url, "--email", EMAIL)
        self._screen.by_hand("in a second terminal, log in as the owner; paste:", login)
        self._screen.by_hand(f"the password, of this throw-away account alone: {self._owner.password}")

        def tell(approval_id: str) -> None:
            self._screen.by_hand("a person is asked. Look and decide in the second terminal; paste one of:")
            for verb in ("approve", "deny"):
                self._screen.by_hand("", self._pasted("approvals", verb, approval_id))

        self._screen.when_held = tell

    def _pasted(self, *words: str) -> str:
        start = ["env", "-u", "XDG_CONFIG_HOME", f"HOME={self._home}", sys.executable, "-m", "toolgate"]
        return shlex.join([*start, *words])

    @contextmanager
    def _watch(self) -> Iterator["subprocess.Popen[str]"]:
        self._screen.typed("toolgate approvals watch")
        with self._start(["approvals", "watch", "--interval", "0.5"], subprocess.DEVNULL) as watch:
            try:
                yield watch
            finally:
                watch.terminate()

    def _follow(self, watch: "subprocess.Popen[str]") -> None:
        for line in watch.stdout or ():
            self._screen.second(line.rstrip("\n"))
            if found := _REQUEST.match(line):
                decision = threading.Thread(target=self._decide, args=(found.group(1),), name="decision")
                self._decisions.append(decision)
                decision.start()

    def _decide(self, approval_id: str) -> None:
        # Read as data: the page is for eyes.
        read = subprocess.run(  # noqa: S603 - our own command; the id is a word of its own
            _command("approvals", "show", approval_id, "--json"),
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=_PATIENCE,
            check=False,
        )
        old = read.returncode == 0 and json.loads(read.stdout)["context"] == {"name": OLD_FILE}
        verb, note = ("approve", "Old data; fine to delete.") if old else ("deny", f"Only {OLD_FILE} may go.")
        words = ["approvals", verb, approval_id, "--note", note]
        self._run([*words, "--password-stdin"], typed=self._owner.password, shown=words)

    def _run(self, words: list[str], *, typed: str = "", shown: list[str] | None = None) -> int:
        self._screen.typed(shlex.join(["toolgate", *(shown or words)]))
        with self._start(words, subprocess.PIPE) as process:
            if process.stdin is not None:
                process.stdin.write(f"{typed}\n")
                process.stdin.close()
            for line in process.stdout or ():
                self._screen.second(line.rstrip("\n"))
        return process.returncode

    def _start(self, words: list[str], typed: int) -> "subprocess.Popen[str]":
        # A session of its own: the terminal's Ctrl-C is for the demo, which then ends what it started.
        return subprocess.Popen(  # noqa: S603 - our own command; every word is one of its own
            _command(*words),
            env=self._env,
            stdin=typed,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            start_new_session=True,
        )


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "toolgate", *words]


@contextmanager
def second_terminal(owner: Owner, screen: Screen, *, by_hand: bool) -> Iterator[None]:
    """Let a person decide, by processes of their own, while the agent works.

    Args:
        owner: the person.
        screen: shows what happens.
        by_hand: whoever sits at the keyboard decides, at a terminal of their own.
    """
    with tempfile.TemporaryDirectory(prefix="toolgate-demo-") as home:
        terminal = SecondTerminal(owner, Path(home), screen)
        if by_hand:
            terminal.by_hand()
            yield
        else:
            with terminal.watching():
                yield
