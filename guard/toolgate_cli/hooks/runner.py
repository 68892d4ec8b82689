"""Process that runs one hook. After every failure it ends with status 2, which makes coding agents block the tool.

Claude Code and other agents run the tool if the process ends with status 1, by a signal, or with status 0 and invalid
output. Therefore standard output contains only the hook's answer, and `run` handles all exceptions and signals.
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

#: exit status that blocks the tool
BLOCKED: Final = 2

_STDIN_SECONDS: Final = 1.0


class _HelpError(Exception):
    """The options contain `--help`; the exception's message is the help text."""


class _OptionsError(Exception):
    """The options of the hook are invalid; argparse has already printed the error."""


class _SignalError(SystemExit):
    """A signal has interrupted the hook.

    The signal handler raises this exception, so that the check cancels its pending approval request before the process
    ends.
    """


def run(words: list[str]) -> NoReturn:
    """Read a tool call from standard input, print the hook's answer, and end the process.

    Args:
        words: the arguments of the command line after `toolgate hook`.
    """
    stdout = _reserve_stdout()
    try:
        _handle_signals()
        hook = _parse(words)
        _start_timer(hook.limit)
        answer = hook.answer(sys.stdin.buffer.read())
        _write(stdout, answer.stdout)
        code, message = answer.code, answer.stderr
    except ConfigurationError as error:
        code, message = BLOCKED, f"Not done: the hook could not check the call. {error}."
    except ModuleNotFoundError as error:
        code = BLOCKED
        message = f"Not done: the hook needs an optional package ({error.name!r} is missing); pip install 'toolgate[cli]'."
    except _SignalError as error:
        code, message = BLOCKED, f"Not done: the hook was ended by {error} before the gateway decided."
    except _HelpError as error:
        # A coding agent that has sent a tool call would run the tool after status 0, so the status is then `BLOCKED`.
        has_call = _has_call()
        code, message = (
            (BLOCKED, f"{error}Not done: with --help no tool call is checked.") if has_call else (0, "")
        )
        if not has_call:
            _write(stdout, str(error).encode())
    except _OptionsError:
        code, message = BLOCKED, "Not done: the options of this hook are wrong, so the call was not checked."
    except SystemExit:
        # The call was not checked, so the status is `BLOCKED`, and the status in `SystemExit` is ignored.
        code, message = BLOCKED, "Not done: the hook ended before the gateway decided."
    except BaseException as error:  # noqa: BLE001 - after any error, the tool must not run
        code, message = BLOCKED, f"Not done: the hook failed with {error_location(error)}."
    if message:
        _write_stderr(message)
    sys.exit(code)


def error_location(error: BaseException) -> str:
    """Return an error's type and source line, without the message, which may contain secrets."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""  # noqa: PTH119 - importing pathlib would take too long
    return f"{type(error).__name__}{where}"


def _reserve_stdout() -> int:
    """Return a new file descriptor for the hook's answer, and redirect all other output to standard error."""
    stdout = os.dup(1)
    os.dup2(2, 1)
    return stdout


def _handle_signals() -> None:
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGALRM"):
        if (number := getattr(signal, name, None)) is not None:
            signal.signal(number, _raise_signal)


def _raise_signal(number: int, _: FrameType | None) -> NoReturn:
    raise _SignalError(signal.Signals(number).name)


def _start_timer(seconds: float) -> None:
    # Some coding agents run the tool when a hook exceeds their time limit. The hook therefore has its own, shorter
    # time limit, after which SIGALRM ends the hook with the status that blocks the tool.
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _parse(words: list[str]) -> Any:
    with redirect_stdout(StringIO()) as output:
        try:
            return _load_plugin().parse(words)
        except _SignalError:
            raise
        except SystemExit as ended:
            if ended.code == 0:
                raise _HelpError(output.getvalue()) from None
            raise _OptionsError from None


def _has_call() -> bool:
    """Return whether standard input may contain a tool call from a coding agent."""
    try:
        if os.isatty(0):
            return False
        if os.name != "nt" and not select.select([0], [], [], _STDIN_SECONDS)[0]:
            # Standard input is still open, so a tool call may follow.
            return True
        return bool(os.read(0, 1))
    except (OSError, ValueError):
        # Standard input is closed.
        return False


def _load_plugin() -> Any:
    # If httpx can import click, it also imports its command-line program and the package rich. These imports take a
    # sixth of the time until the check is sent. This line makes the import of click fail.
    sys.modules.setdefault("click", None)  # type: ignore[arg-type]  # httpx handles the failed import
    # Only the distribution `toolgate` is searched. A search of all installed distributions takes longer than the check
    # of the tool call.
    (entry,) = distribution("toolgate").entry_points.select(group="toolgate.plugins", name="hooks")
    return entry.load()


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _write_stderr(message: str) -> None:
    try:
        os.write(2, f"{message}\n".encode("utf-8", "replace"))
    except OSError:
        # Standard error is closed, so the message is lost; the exit status alone blocks the tool.
        return
