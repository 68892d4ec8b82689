"""Anthropic SDK: `tool_runner(…, tools=guard_tools([…]))`, `GuardedRun(runner)`, and `resume(state, …)` after a pause."""

from __future__ import annotations

from toolgate_integrations._base import require

require("anthropic")

from toolgate_integrations._anthropic_resume import resume, resume_async
from toolgate_integrations._anthropic_runs import AsyncGuardedRun, GuardedRun
from toolgate_integrations._anthropic_tools import AsyncGuardedTool, GuardedTool, OnHold, guard_tools
from toolgate_integrations._paused import HeldCall

__all__ = [
    "AsyncGuardedRun",
    "AsyncGuardedTool",
    "GuardedRun",
    "GuardedTool",
    "HeldCall",
    "OnHold",
    "guard_tools",
    "resume",
    "resume_async",
]
