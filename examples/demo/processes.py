"""Processes that end with the demo, also if a signal ends the demo."""

import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def run_process(
    command: list[str], env: Mapping[str, str], **options: Any
) -> Iterator["subprocess.Popen[str]"]:
    """Run a process for a `with` block, and wait for its end. If the block raises an exception, terminate the process."""
    process = start_process(command, env, **options)
    try:
        yield process
    except BaseException:
        process.terminate()
        raise
    finally:
        # After Ctrl-C, `Popen.__exit__` would not wait, and the process could write into a folder that is deleted.
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def start_process(command: list[str], env: Mapping[str, str], **options: Any) -> "subprocess.Popen[str]":
    """Start a process with text output in a session of its own, where it does not receive Ctrl-C.

    The signals that end the demo raise an exception. Raised within `Popen`, it would leave a process without an owner,
    so a signal that arrives there is handled after the process has started and has been stopped again.
    """
    received: list[int] = []
    # Only the main thread handles signals.
    in_main = threading.current_thread() is threading.main_thread()
    handled = [number for number in _ENDING if in_main and callable(signal.getsignal(number))]
    handlers = {number: signal.signal(number, lambda got, _frame: received.append(got)) for number in handled}
    try:
        process = subprocess.Popen(  # noqa: S603 - our own commands; every word is one of its own
            command, env=env, stdout=subprocess.PIPE, encoding="utf-8", start_new_session=True, **options
        )
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if received:
        with process:
            process.terminate()
        signal.raise_signal(received[0])
    return process
