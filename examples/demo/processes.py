"""Start processes that end with the demo, even if a signal arrives while one starts."""

import signal
import subprocess
import threading
from collections.abc import Mapping
from typing import Any, Final

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def start_process(command: list[str], env: Mapping[str, str], **options: Any) -> "subprocess.Popen[str]":
    """Start a command with text output in a session of its own, where it does not receive Ctrl-C.

    The signals that end the demo raise an exception. Raised within `Popen`, it would leave a process that nobody stops,
    so a signal that arrives there is handled after the process has started, and has been stopped again.
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
