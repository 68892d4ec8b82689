"""The command `toolgate hook`, which coding agents run as a hook before and after each tool call."""

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
# Seconds that a hook needs for its own work, in addition to the time for which it waits for the gateway: it starts a
# process, writes files, and sends log entries.
_OWN_SECONDS: Final = 10.0
_LONGEST_HOLD: Final = 86_400.0


@dataclass(frozen=True)
class Hook:
    """The hook command of one coding agent, with its configuration.

    Attributes:
        agent: Input and output format of the coding agent that runs the hook.
        limit: Seconds within which the hook must respond.
        asking: Object that checks and logs the tool calls.
    """

    agent: Agent
    limit: float
    asking: HookAsking

    def answer(self, given: bytes) -> Answer:
        """Process the input of one run of the hook, and return the response.

        Raises:
            ConfigurationError: The input is invalid, or a log entry cannot be written.
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
        """Asynchronous form of `answer`; if its task is cancelled, the call's approval request is cancelled too."""
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
            return self.agent.refused(f"Not done: the guard could not check the call. {error}.")
        return self.agent.refused(refusal_text(error))


def options(words: list[str]) -> argparse.Namespace:
    """Parse the command-line arguments after `toolgate hook`; exit with status 2 if they are invalid."""
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
    """Parse the command-line arguments, and return the configured hook.

    Args:
        words: The command-line arguments after `toolgate hook`.
        process: Id of the process that runs the tools: when it has ended, a call without a reported outcome is logged
            as unknown. None for the coding agent's process.

    Raises:
        ConfigurationError: A setting is missing or wrong.
    """
    given = options(words)
    asking = HookAsking(
        Guard(given.url, None, given.agent),
        tool_actions=given.tool_action,
        agents=given.subagent,
        # `tell` is the deprecated name of `notify_model`.
        on_hold="wait" if given.on_hold == "wait" else "notify_model",
        hold_timeout=given.hold_timeout if given.on_hold == "wait" else None,
        process=process,
    )
    return Hook(AGENTS[given.program], limit_of(given.on_hold, given.hold_timeout), asking)


def limit_of(on_hold: str, hold_timeout: float) -> float:
    """Return the seconds within which a hook must respond.

    The limit includes the time to wait for an approver, and the time for two checks: one before and one after the
    approver decides.

    Raises:
        ConfigurationError: `TOOLGATE_TIMEOUT` is not a valid number of seconds.
    """
    return (hold_timeout if on_hold == "wait" else 0.0) + 2 * checked_timeout() + _OWN_SECONDS


def _pairs(parser: argparse.ArgumentParser, option: str, given: list[str], form: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for each in given:
        left, equals, right = each.partition("=")
        if not (left and equals and right) or left in pairs:
            parser.error(
                f"invalid {option} {each!r}; write {form}, and give each {form.partition('=')[0].lower()} only once"
            )
        pairs[left] = right
    return pairs


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= _LONGEST_HOLD:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a valid time; expected seconds above 0, at most a day"
        )
    return seconds
