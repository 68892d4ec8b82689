"""The demo's second terminal: processes of the command line with a login and a home folder of their own."""

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
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from .gateway import EMAIL, Owner
from .processes import run_process
from .screen import Screen
from .shop import OLD_FILE, DemoError

_REQUEST = re.compile(r"Approval (\S+) · pending")
_COMMAND_SECONDS = 60


class SecondTerminal:
    """Terminal of the person who approves, while the agent works in the first.

    Args:
        owner: the person.
        home: the folder for the login.
        screen: prints commands and their output.
    """

    def __init__(self, owner: Owner, home: Path, screen: Screen) -> None:
        self._owner = owner
        self._home = home
        self._screen = screen
        foreign = ("TOOLGATE_", "XDG_CONFIG_HOME")
        self._env = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        self._env |= {"HOME": str(home), "PYTHONUTF8": "1"}
        # The screen indents the output.
        self._env["COLUMNS"] = str(shutil.get_terminal_size((100, 24)).columns - 6)
        self._decisions: list[threading.Thread] = []

    @contextmanager
    def decide(self) -> Iterator[None]:
        """Log in, watch approval requests and decide each by its content; log out at the end."""
        login = ["login", "--url", self._owner.url, "--email", EMAIL, "--password-stdin"]
        if self._run(login, password=self._owner.password) != 0:
            raise DemoError("the login in the second terminal failed")
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

    def print_instructions(self) -> None:
        """Print how to log in from a second terminal, and how to decide once a request is pending."""
        login = self._pasted("login", "--url", self._owner.url, "--email", EMAIL)
        self._screen.print_instruction("in a second terminal, log in as the owner; paste:", login)
        self._screen.print_instruction(
            f"the password, of this throw-away account alone: {self._owner.password}"
        )

        def print_decisions(approval_id: str) -> None:
            self._screen.print_instruction("a person must decide, in the second terminal; paste one of:")
            for verb in ("approve", "deny"):
                self._screen.print_instruction("", self._pasted("approvals", verb, approval_id))

        self._screen.on_request = print_decisions

    def _pasted(self, *words: str) -> str:
        start = ["env", "-u", "XDG_CONFIG_HOME", f"HOME={self._home}", sys.executable, "-m", "toolgate"]
        return shlex.join([*start, *words])

    @contextmanager
    def _watch(self) -> Iterator["subprocess.Popen[str]"]:
        self._screen.print_command("toolgate approvals watch")
        with self._start(["approvals", "watch", "--interval", "0.5"], subprocess.DEVNULL) as watch:
            try:
                yield watch
            finally:
                watch.terminate()

    def _follow(self, watch: "subprocess.Popen[str]") -> None:
        for line in watch.stdout or ():
            self._screen.print_second(line.rstrip("\n"))
            if found := _REQUEST.match(line):
                decision = threading.Thread(target=self._decide, args=(found.group(1),), name="decision")
                self._decisions.append(decision)
                decision.start()

    def _decide(self, approval_id: str) -> None:
        # The output of `watch` is for people.
        read = subprocess.run(  # noqa: S603 - our own command; the id is a word of its own
            _command("approvals", "show", approval_id, "--json"),
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=_COMMAND_SECONDS,
            check=False,
        )
        old = read.returncode == 0 and json.loads(read.stdout)["context"] == {"name": OLD_FILE}
        verb, note = ("approve", "Old data; fine to delete.") if old else ("deny", f"Only {OLD_FILE} may go.")
        words = ["approvals", verb, approval_id, "--note", note]
        self._run([*words, "--password-stdin"], password=self._owner.password, shown=words)

    def _run(self, words: list[str], *, password: str = "", shown: Sequence[str] = ()) -> int:
        self._screen.print_command(shlex.join(["toolgate", *(list(shown) or words)]))
        with self._start(words, subprocess.PIPE) as process:
            if process.stdin is not None:
                process.stdin.write(f"{password}\n")
                process.stdin.close()
            for line in process.stdout or ():
                self._screen.print_second(line.rstrip("\n"))
        return process.returncode

    def _start(self, words: list[str], stdin: int) -> AbstractContextManager["subprocess.Popen[str]"]:
        return run_process(_command(*words), self._env, stdin=stdin, stderr=subprocess.STDOUT)


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "toolgate", *words]


@contextmanager
def open_second_terminal(owner: Owner, screen: Screen, *, by_hand: bool) -> Iterator[None]:
    """Have approval requests decided while the agent works.

    Args:
        owner: the person.
        screen: prints commands and their output.
        by_hand: the user decides, in a terminal of their own.
    """
    with tempfile.TemporaryDirectory(prefix="toolgate-demo-") as home:
        terminal = SecondTerminal(owner, Path(home), screen)
        if by_hand:
            terminal.print_instructions()
            yield
        else:
            with terminal.decide():
                yield
