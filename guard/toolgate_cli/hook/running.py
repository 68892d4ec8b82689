"""One hook's process: whatever goes wrong in it, it ends with status 2, by which coding agents do not run the tool.

To Claude Code and others status 1, a signal, and status 0 with something on standard output that they cannot read, are
no objection. So standard output is kept for the answer alone, and every way out leads through here.
"""

import os
import select
import signal
import sys
import traceback
from contextlib import redirect_stdout
from importlib.metadata import distribution
from io import StringIO
from types import FrameType
from typing import Any, Final, NoReturn

from toolgate.errors import ConfigurationError

#: by which a tool is not run
BLOCKED: Final = 2


_NO_CALL: Final = "Not done: with --help no tool call is checked."
_WRONG_OPTIONS: Final = "Not done: the options of this hook are wrong, so the gateway was not asked."
_CALL_WITHIN: Final = 1.0


class _HelpError(Exception):
    """The options ask for help, which is the message."""


class _WrongOptionsError(Exception):
    """The options are wrong; argparse has printed which."""


class _InterruptedError(SystemExit):
    """Somebody wants the hook to end; a request that waits is withdrawn on the way."""


def run(words: list[str]) -> NoReturn:
    """Answer what stands on standard input, and end the process.

    Args:
        words: what follows `toolgate hook`.
    """
    answers = _only_ours()
    try:
        _listen()
        hook = _parsed(words)
        _end_after(hook.limit)
        answer = hook.answer(sys.stdin.buffer.read())
        _write(answers, answer.stdout)
        code, told = answer.code, answer.stderr
    except ConfigurationError as error:
        code, told = BLOCKED, f"Not done: the guard could not ask. {error}."
    except ModuleNotFoundError as error:
        code = BLOCKED
        told = (
            f"Not done: the guard needs its extra ({error.name!r} is missing); pip install 'toolgate[cli]'."
        )
    except _InterruptedError as interrupted:
        code, told = BLOCKED, f"Not done: the guard was ended by {interrupted}, before it had an answer."
    except _HelpError as wanted:
        # Not on standard output if there is a call: help is no permission to run it.
        code, told = (BLOCKED, f"{wanted}{_NO_CALL}") if _is_call() else (0, "")
        if code == 0:
            _write(answers, str(wanted).encode())
    except _WrongOptionsError:
        code, told = BLOCKED, _WRONG_OPTIONS
    except SystemExit:
        # Whatever its status was, the gateway was not asked.
        code, told = BLOCKED, "Not done: the guard was ended before it had an answer."
    except BaseException as error:  # noqa: BLE001 - nothing that happens here may let a tool run
        code, told = BLOCKED, f"Not done: the guard failed with {told_of(error)}."
    if told:
        _say(told)
    sys.exit(code)


def _only_ours() -> int:
    """Standard output, which nobody else writes to from here on: a stray line would make the answer unreadable."""
    answers = os.dup(1)
    os.dup2(2, 1)
    return answers


def _listen() -> None:
    for each in ("SIGTERM", "SIGINT", "SIGHUP", "SIGALRM"):
        if (number := getattr(signal, each, None)) is not None:
            signal.signal(number, _interrupt)


def _interrupt(number: int, _: FrameType | None) -> NoReturn:
    raise _InterruptedError(signal.Signals(number).name)


def _end_after(seconds: float) -> None:
    # Before the agent's own time is over: some of them take a hook that is too slow for one without an objection.
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _parsed(words: list[str]) -> Any:
    with redirect_stdout(StringIO()) as printed:
        try:
            return _plugin().parse(words)
        except _InterruptedError:
            raise
        except SystemExit as ended:
            if ended.code == 0:
                raise _HelpError(printed.getvalue()) from None
            raise _WrongOptionsError from None


def _is_call() -> bool:
    """Return whether a coding agent may have sent a tool call on standard input."""
    try:
        if os.isatty(0):
            return False
        if os.name != "nt" and not select.select([0], [], [], _CALL_WITHIN)[0]:
            # Still open: the call may come yet.
            return True
        return bool(os.read(0, 1))
    except (OSError, ValueError):
        # Standard input is closed.
        return False


def _plugin() -> Any:
    # The HTTP library's own command line, with what that draws: a sixth of the time until the gateway is asked.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # by which an import is refused
    # Of this distribution alone: to look through all that are installed takes longer than asking the gateway.
    (entry,) = distribution("toolgate").entry_points.select(group="toolgate.plugins", name="hooks")
    return entry.load()


def _write(descriptor: int, answer: bytes) -> None:
    while answer:
        answer = answer[os.write(descriptor, answer) :]


def _say(told: str) -> None:
    try:
        os.write(2, f"{told}\n".encode("utf-8", "replace"))
    except OSError:
        # Nobody listens; the status says it all.
        return


def told_of(error: BaseException) -> str:
    """Return the kind of an error and where it came from, and not its message, which may quote anything."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""  # noqa: PTH119 - pathlib is slow to load
    return f"{type(error).__name__}{where}"
