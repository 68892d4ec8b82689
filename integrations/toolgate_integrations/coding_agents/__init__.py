"""Coding agents that ask a command before each tool call: what they say, translated for the guard, and its answer."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import dataclass
from typing import Final

from toolgate import ConfigurationError, Guard, GuardError
from toolgate._settings import checked_timeout
from toolgate_integrations.base import refusal_text
from toolgate_integrations.coding_agents.agents import Agent, Answer, Before, ClaudeCode, OpenCode, told
from toolgate_integrations.coding_agents.guard import HookAsking

__all__ = ["AGENTS", "Hook", "limit_of", "options", "parse"]

AGENTS: Final[dict[str, Agent]] = {"claude-code": ClaudeCode(), "opencode": OpenCode()}
# Beside the gateway's time: the start of the process, the disk, and sending what was recorded.
_OWN_SECONDS: Final = 10.0
_LONGEST_HOLD: Final = 86_400.0


@dataclass(frozen=True)
class Hook:
    """A configured hook.

    Attributes:
        agent: Whose.
        limit: Seconds after which it must have answered.
    """

    agent: Agent
    limit: float
    asking: HookAsking

    def answer(self, given: bytes) -> Answer:
        """Answer what was told.

        Raises:
            ConfigurationError: What was told cannot be read, or a record not be made.
        """
        event = self.agent.read(told(given))
        if not isinstance(event, Before):
            self.asking.after(event)
            return Answer(0)
        try:
            return self.agent.allowed(self.asking.before(event))
        except GuardError as error:
            return self._refused(error)

    async def aanswer(self, given: bytes) -> Answer:
        """Asynchronous form of `answer`; if it is cancelled, the approval request is withdrawn."""
        event = self.agent.read(told(given))
        if not isinstance(event, Before):
            await asyncio.to_thread(self.asking.after, event)
            return Answer(0)
        try:
            return self.agent.allowed(await self.asking.abefore(event))
        except GuardError as error:
            return self._refused(error)

    def _refused(self, error: GuardError) -> Answer:
        if isinstance(error, ConfigurationError):
            return self.agent.refused(f"Not done: the guard could not ask. {error}.")
        return self.agent.refused(refusal_text(error))


def options(words: list[str]) -> argparse.Namespace:
    """Read the words after `toolgate hook`; wrong ones end the process with status 2."""
    parser = argparse.ArgumentParser(prog="toolgate hook")
    parser.add_argument("program", choices=sorted(AGENTS))
    parser.add_argument("--url")
    parser.add_argument("--agent", metavar="ID")
    parser.add_argument("--subagent", metavar="NAME=ID", action="append", default=[])
    parser.add_argument("--tool-action", metavar="TOOL=ACTION", action="append", default=[])
    parser.add_argument("--on-hold", choices=("wait", "notify_model", "tell"), default="wait")
    parser.add_argument("--hold-timeout", metavar="SECONDS", type=_seconds, default=300.0)
    given = parser.parse_args(words)
    for each, form in (("tool_action", "TOOL=ACTION"), ("subagent", "NAME=ID")):
        setattr(given, each, _pairs(parser, f"--{each.replace('_', '-')}", getattr(given, each), form))
    return given


def parse(words: list[str], process: int | None = None) -> Hook:
    """Parse the options, and return the hook with its guard.

    Args:
        words: What stands behind `toolgate hook`.
        process: By whose end calls end that nothing more is heard of, if not by the agent's own.

    Raises:
        ConfigurationError: A setting is missing or wrong.
    """
    given = options(words)
    asking = HookAsking(
        Guard(given.url, None, given.agent),
        tool_actions=given.tool_action,
        agents=given.subagent,
        # `tell` is the deprecated name.
        on_hold="wait" if given.on_hold == "wait" else "notify_model",
        hold_timeout=given.hold_timeout if given.on_hold == "wait" else None,
        process=process,
    )
    return Hook(AGENTS[given.program], limit_of(given.on_hold, given.hold_timeout), asking)


def limit_of(on_hold: str, hold_timeout: float) -> float:
    """Seconds after which a hook must have answered: to be asked twice, before and after a hold, and the hold.

    Raises:
        ConfigurationError: `TOOLGATE_TIMEOUT` is no time.
    """
    return (hold_timeout if on_hold == "wait" else 0.0) + 2 * checked_timeout() + _OWN_SECONDS


def _pairs(parser: argparse.ArgumentParser, option: str, given: list[str], form: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for each in given:
        left, equals, right = each.partition("=")
        if not (left and equals and right) or left in pairs:
            parser.error(f"{option} is {each!r}; write {form}, each {form.partition('=')[0].lower()} once")
        pairs[left] = right
    return pairs


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= _LONGEST_HOLD:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; use seconds above 0, a day at most")
    return seconds
