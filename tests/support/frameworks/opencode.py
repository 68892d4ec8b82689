"""OpenCode itself, with a home of its own, a scripted model and the plugin that `toolgate hook install` writes."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolgate_cli.hooks.commands import installed_command
from toolgate_cli.hooks.files import render_plugin

SECONDS = 60
MODEL = "anthropic/claude-sonnet-4-5"


def plugin(*words: str, limit: float = SECONDS) -> str:
    """What is installed."""
    return render_plugin(installed_command(), list(words), limit)


@dataclass
class OpenCodeCLI:
    """`opencode run` in a folder of its own.

    Attributes:
        program: the command.
        folder: stands for its home and the project.
        api: the address of the model.
        env: variables beside those that it needs.
        config: settings beside those that it needs.
    """

    program: str
    folder: Path
    api: str
    env: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def project(self) -> Path:
        """Where it works."""
        return self.folder / "project"

    def install(self, text: str, place: str = ".opencode/plugins/toolgate.js") -> None:
        """Put a plugin into the project."""
        path = self.project / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """One prompt."""
        for each in (self.folder / "home", self.project):
            each.mkdir(parents=True, exist_ok=True)
        settings = {
            "model": MODEL,
            "small_model": MODEL,
            "provider": {"anthropic": {"options": {"baseURL": f"{self.api}/v1", "apiKey": "sk-fake"}}},
            "permission": "allow",
            "autoupdate": False,
            "share": "disabled",
            **self.config,
        }
        return subprocess.Popen(
            [self.program, "run", *words, "go"],
            cwd=self.project,
            env={
                "PATH": os.defpath,
                "HOME": str(self.folder / "home"),
                "OPENCODE_CONFIG_CONTENT": json.dumps(settings),
                "OPENCODE_DISABLE_MODELS_FETCH": "1",
                "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
                "OPENCODE_DISABLE_AUTOUPDATE": "1",
                **self.env,
            },
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str) -> str:
        """One prompt, to its end; what it printed."""
        with self.start(*words) as process:
            stdout, stderr = process.communicate(timeout=180)
        assert process.returncode == 0, (stdout, stderr)
        return stdout
