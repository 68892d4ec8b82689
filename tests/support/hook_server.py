"""`toolgate hook serve` in a process of its own, as a test asks it and as Claude Code does."""

import os
from collections.abc import Mapping
from typing import Any, Self

import httpx

from support.forking import FORK_SERVER
from support.frameworks.claude_code import variables
from support.frameworks.harness import Scene
from toolgate_cli.hooks.claude_code import SECRET_VARIABLE

CALL = {
    "session_id": "session-1",
    "cwd": "/srv/project",
    "hook_event_name": "PreToolUse",
    "tool_name": "Bash",
    "tool_input": {"command": "ls", "description": "Look around"},
    "tool_use_id": "toolu_1",
}
WRITE = {**CALL, "tool_name": "Write", "tool_input": {"file_path": "/srv/a", "content": "b"}}
OWN = "a secret of this test, long enough".replace(" ", "-")


class ServedHook:
    """Answers until the `with` block ends.

    Args:
        scene: whose guard it has.
        words: its options.
        env: variables beside the scene's.

    Attributes:
        url: where it is asked.
        said: all that it wrote before it answered.
        process: its process.
    """

    def __init__(self, scene: Scene, *words: str, env: Mapping[str, str] | None = None) -> None:
        told, self._heard = os.pipe()[::-1]
        environment = {**os.environ, **variables(scene), SECRET_VARIABLE: OWN, **(env or {})}
        self.process = FORK_SERVER.start("hook", "serve", "--port", "0", *words, env=environment, stderr=told)
        os.close(told)
        self._errors = os.fdopen(self._heard, encoding="utf-8")
        self.said = self._errors.readline()
        assert "listening" in self.said, self.said
        self.url = self.said.split()[8].rstrip(";")

    @property
    def port(self) -> int:
        """Where it listens."""
        return httpx.URL(self.url).port or 0

    def ask(self, told: Any, **headers: str | None) -> httpx.Response:
        """Ask as Claude Code does, but for these headers."""
        sent = {"authorization": f"Bearer {OWN}", "content-type": "application/json", **headers}
        return httpx.post(
            self.url,
            headers={name: value for name, value in sent.items() if value is not None},
            timeout=60,
            trust_env=False,
            **({"content": told} if isinstance(told, bytes) else {"json": told}),
        )

    def end(self) -> str:
        """End it in order; what it wrote of errors."""
        self.process.terminate()
        assert self.process.wait(30) == 0
        return self._errors.read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(30)
        self.process.stdout.close()
        self._errors.close()
