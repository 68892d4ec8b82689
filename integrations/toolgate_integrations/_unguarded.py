"""Frameworks that are known, and have no plugin here: whoever installs one is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["UNGUARDED"]

_AGENTS: Final = "its agents run tools"

#: distributions, and what of them runs tools; a plugin's own stand in `INTEGRATIONS`
UNGUARDED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "ag2",
            "agency-swarm",
            "atomic-agents",
            "beeai-framework",
            "browser-use",
            "camel-ai",
            "dspy-ai",
            "griptape",
            "langroid",
            "letta",
            "marvin",
            "mirascope",
            "openhands-sdk",
            "phidata",
            "pyautogen",
            "qwen-agent",
        ),
        _AGENTS,
    ),
    "google-genai": "its automatic function calling runs tools, its plain client none",
    "langchain-classic": "its AgentExecutor runs tools, past all middleware",
}
