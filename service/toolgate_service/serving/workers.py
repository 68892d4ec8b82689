"""Several processes that serve one listening socket, and the one that looks after them.

One socket for all, not one each by SO_REUSEPORT: what the kernel has taken waits in one queue, and whoever has time takes
it. With a queue each, what waits in that of a worker that was killed would be lost, and what waits behind a busy one late.

The workers hear their parent alone, over a socket each: a terminal, or whoever ends all processes of a service, signals
them too, and each would end by itself. When the parent is gone the socket ends, and they with it.
"""

import gc
import logging
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NoReturn

from toolgate_service.errors import StartError, StorageError
from toolgate_service.serving.told import NOW, PAUSE, SERVES

logger = logging.getLogger("toolgate.gateway")

SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: seconds until a worker that died is started anew: at first, and at most
FIRST_REST = 0.5
LONGEST_REST = 30.0
#: seconds after which a worker that dies is none of a row that does
STEADY = 60.0


class Rests:
    """How long a place stays empty after its worker died: twice as long each time, so that nothing spins."""

    def __init__(self) -> None:
        self._next = FIRST_REST

    def after(self, lived: float) -> float:
        """Return the seconds to wait for after a worker that lived so long."""
        rest = FIRST_REST if lived >= STEADY else self._next
        self._next = min(2 * rest, LONGEST_REST)
        return rest


@dataclass
class _Place:
    """Where one worker runs, and its successors."""

    number: int
    rests: Rests = field(default_factory=Rests)
    pid: int = 0
    line: socket.socket | None = None
    begun: float = 0.0
    serves: bool = False
    #: when the next one begins; None while one runs
    due: float | None = None


class Workers:
    """The workers, as their parent sees them.

    Args:
        count: how many.
        work: what each does, given its number and its line to the parent; returns when it is told to end, or that is
            gone.
        patience: seconds in which a worker that was told to end does so; then it is killed.
    """

    def __init__(self, count: int, work: Callable[[int, socket.socket], None], patience: float) -> None:
        self._places = [_Place(number) for number in range(count)]
        self._work = work
        self._patience = patience
        self._ends: float | None = None

    def run(self, listening: socket.socket, announce: Callable[[], None]) -> None:
        """Keep the workers running until a signal; raise it again once all have ended.

        Args:
            listening: closed here when the end begins: the workers have it too.
            announce: called once all serve.

        Raises:
            StartError: one could not be started, or ended before all served.
        """
        with _signals() as heard:
            # What is in memory now is shared, as long as no collector touches it. Not before signals are noted: what a
            # handler raises amid a collection is lost, and the signal with it.
            gc.collect()
            gc.freeze()
            try:
                self._begin_all()
                self._see_all_serve(heard)
                if not heard.signals:
                    announce()
                while not heard.signals:
                    self._look(heard)
                self._end(PAUSE if heard.signals == [signal.SIGTERM] else NOW)
                listening.close()
                while self._running() and len(heard.signals) == 1:
                    self._look(heard)
            finally:
                self._end(NOW)
                while self._running():
                    self._look(heard)
        signal.raise_signal(heard.signals[0])

    def _begin_all(self) -> None:
        try:
            for place in self._places:
                self._begin(place)
        except OSError as error:
            raise StartError(
                f"cannot start a worker: {error.strerror}; let the gateway have more processes and open files, or serve with "
                "fewer workers"
            ) from None

    def _begin_another(self, place: _Place) -> None:
        try:
            self._begin(place)
        except OSError as error:
            # The machine is full, which is no reason to end the workers that there are.
            rest = self._rest(place, lived=0)
            logger.error("cannot start a worker: %s; tried again in %g s", error.strerror, rest)  # noqa: TRY400 - the operator's to mend

    def _rest(self, place: _Place, lived: float) -> float:
        rest = place.rests.after(lived)
        place.due = time.monotonic() + rest
        return rest

    def _see_all_serve(self, heard: "_Heard") -> None:
        while not (heard.signals or all(place.serves for place in self._places)):
            self._look(heard)
            if any(place.due is not None for place in self._places):
                raise StartError("a worker ended before all served; what it said stands above")

    def _running(self) -> list[_Place]:
        return [place for place in self._places if place.line is not None]

    def _begin(self, place: _Place) -> None:
        ours, theirs = socket.socketpair()
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if pid == 0:
            ours.close()
            # Whoever holds another's line would keep it from seeing the parent's end.
            for other in self._running():
                if other.line is not None:
                    other.line.close()
            _be_worker(lambda: self._work(place.number, theirs))
        theirs.close()
        place.pid, place.line, place.begun = pid, ours, time.monotonic()
        place.serves, place.due = False, None

    def _look(self, heard: "_Heard") -> None:
        """Wait until something happens, and take note of it."""
        with selectors.PollSelector() as waiting:
            waiting.register(heard.line, selectors.EVENT_READ)
            for place in self._running():
                if place.line is not None:
                    waiting.register(place.line, selectors.EVENT_READ, place)
            for key, _ in waiting.select(self._until_next()):
                if key.data is None:
                    heard.line.recv(4096)
                else:
                    self._hear(key.data)
        now = time.monotonic()
        for place in self._places:
            if self._ends is None and place.due is not None and now >= place.due:
                self._begin_another(place)
        if self._ends is not None and now >= self._ends:
            for place in self._running():
                logger.error("worker %d does not end, and is killed", place.pid)
                os.kill(place.pid, signal.SIGKILL)
            # Even so it ends a moment later, which is waited for.
            self._ends = now + self._patience

    def _until_next(self) -> float | None:
        moments = [self._ends] if self._ends is not None else [place.due for place in self._places]
        known = [moment for moment in moments if moment is not None]
        return max(0.0, min(known) - time.monotonic()) if known else None

    def _hear(self, place: _Place) -> None:
        line = place.line
        if line is None:
            return
        try:
            said = line.recv(16)
        except ConnectionResetError:
            # Killed with a word of ours unread.
            said = b""
        if said:
            place.serves = SERVES in said
            return
        line.close()
        place.line = None
        _, status = os.waitpid(place.pid, 0)
        if self._ends is None:
            rest = self._rest(place, time.monotonic() - place.begun)
            logger.error("worker %d %s; another begins in %g s", place.pid, _ended(status), rest)

    def _end(self, how: bytes) -> None:
        self._ends = time.monotonic() + self._patience
        for place in self._running():
            if place.line is not None:
                # It may have ended just now.
                with suppress(OSError):
                    place.line.send(how)


class _Heard:
    """The signals that came, and what becomes readable when one does."""

    def __init__(self) -> None:
        self.signals: list[int] = []
        self.line, self._told = socket.socketpair()
        self._told.setblocking(False)

    @property
    def descriptor(self) -> int:
        """What Python's signal handler writes to."""
        return self._told.fileno()

    def close(self) -> None:
        """Hear nothing any more."""
        self.line.close()
        self._told.close()


@contextmanager
def _signals() -> Iterator[_Heard]:
    heard = _Heard()
    former = {one: signal.signal(one, lambda number, _: heard.signals.append(number)) for one in SIGNALS}
    wakeup = signal.set_wakeup_fd(heard.descriptor, warn_on_full_buffer=False)
    try:
        yield heard
    finally:
        signal.set_wakeup_fd(wakeup)
        for one, handler in former.items():
            signal.signal(one, handler)
        heard.close()


def _be_worker(work: Callable[[], None]) -> NoReturn:
    """Do a worker's work in a process that was forked for it, and end with it: nothing above is this process's."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for one in SIGNALS:
            signal.signal(one, signal.SIG_IGN)
        work()
        code = 0
    except StorageError as error:
        logger.error("a worker cannot begin: %s", error)  # noqa: TRY400 - it is the operator's to mend, and says how
    except Exception:
        logger.exception("a worker failed")
    finally:
        os._exit(code)


def _ended(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"ended with {code}"
    # Python has no names for most of the real-time signals.
    known = -code in signal.Signals.__members__.values()
    return f"was ended by {signal.Signals(-code).name if known else f'signal {-code}'}"
