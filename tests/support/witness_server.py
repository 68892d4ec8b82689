"""`toolgate witness serve` in a process of its own."""

import os
from pathlib import Path
from typing import Self

import httpx

from support.forking import FORK_SERVER
from support.transparency_logs import SignedLog
from toolgate_cli.witness.keys import create_key, read_key

NAME = "example.com/witness"


class ServedWitness:
    """A witness that serves until the `with` block ends.

    Args:
        folder: folder of its key and its state; both are created if they do not exist.
        logs: logs whose checkpoints it cosigns.
        options: further options of the command.

    Attributes:
        url: its address.
        key: its verifier key.
        process: its process.
        output: what it has printed before it was ready.
    """

    def __init__(self, folder: Path, *logs: SignedLog, options: tuple[str, ...] = ()) -> None:
        key = folder / "witness.key"
        made = read_key(key) if key.exists() else create_key(NAME, key)
        self.key = made.vkey
        words = [word for log in logs for word in ("--log", log.vkey)]
        words += ["--key", str(key), "--state", str(folder / "witness.sqlite"), "--port", "0", *options]
        errors, printed = os.pipe()
        self.process = FORK_SERVER.start("witness", "serve", *words, env=os.environ, stderr=printed)
        os.close(printed)
        self._errors = os.fdopen(errors, encoding="utf-8")
        self.output = ""
        while "listening at " not in self.output:
            line = self._errors.readline()
            assert line, self.output
            self.output += line
        self.url = self.output.split("listening at ")[1].split(";")[0]

    def submit(self, body: bytes) -> httpx.Response:
        """Send the body of `add-checkpoint`."""
        return httpx.post(f"{self.url}/add-checkpoint", content=body, timeout=30, trust_env=False)

    def stop(self) -> str:
        """Stop it with SIGTERM, and return what it has printed on standard error since it was ready."""
        self.process.terminate()
        assert self.process.wait(30) == 0
        printed = self._errors.read()
        self._errors.close()
        self.process.stdout.close()
        return printed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(30)
        self.process.stdout.close()
        self._errors.close()
