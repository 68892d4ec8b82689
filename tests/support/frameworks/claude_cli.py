"""The real Claude Code, which the wheel of its SDK brings along, with a home of its own and a scripted model."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def claude_program() -> Path:
    """Return the path of Claude Code, which is installed with the Claude Agent SDK."""
    import claude_agent_sdk

    return Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"


@dataclass
class ClaudeCLI:
    """`claude -p` in a folder of its own.

    Attributes:
        folder: stands for its home, its settings and the project.
        api: the address of the model.
        settings: what `--settings` names; nothing else is read but the user's and the project's.
        env: variables beside those that it needs.
        session: of the last run.
    """

    folder: Path
    api: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    session: str | None = None

    @property
    def project(self) -> Path:
        """Where it works."""
        return self.folder / "project"

    def command(self, prompt: str, *words: str) -> list[str]:
        """The words that start it; a second run goes on with the conversation."""
        file = self.folder / "settings.json"
        file.write_text(json.dumps(self.settings))
        going_on = [] if self.session is None else ["--resume", self.session]
        return [
            str(claude_program()), "-p", prompt, "--output-format", "json", "--model", "claude-sonnet-4-5",
            "--settings", str(file), "--setting-sources", "user,project", *going_on, *words,
        ]  # fmt: skip

    def environment(self) -> dict[str, str]:
        """Nothing of this machine's user: no key, no settings, and nobody is called but the scripted model."""
        (self.folder / "home").mkdir(parents=True, exist_ok=True)
        self.project.mkdir(exist_ok=True)
        return {
            "PATH": os.defpath,
            "HOME": str(self.folder / "home"),
            "CLAUDE_CONFIG_DIR": str(self.folder / "home" / ".claude"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "ANTHROPIC_BASE_URL": self.api,
            "ANTHROPIC_API_KEY": "sk-fake",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            **self.env,
        }

    def run(self, prompt: str, *words: str) -> dict[str, Any]:
        """One prompt, to its end; what it says of it."""
        environment = self.environment()
        done = subprocess.run(
            self.command(prompt, *words),
            cwd=self.project,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, (done.stdout, done.stderr)
        said = json.loads(done.stdout)
        result: dict[str, Any] = said[-1] if isinstance(said, list) else said
        self.session = result["session_id"]
        return result


def allowing(*tools: str) -> Sequence[str]:
    """The words by which Claude Code itself lets tools run unasked."""
    return ["--allowedTools", *tools]
