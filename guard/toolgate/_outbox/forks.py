"""What happens to outboxes when a process forks."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Final, Protocol

__all__ = ["survive_forks"]


class Forked(Protocol):
    """What wants to know of forks."""

    def before_fork(self) -> None:
        """The process is about to fork."""
        ...

    def after_fork_in_parent(self) -> None:
        """It has, and this is the parent."""
        ...

    def after_fork_in_child(self) -> None:
        """It has, and this is the child."""
        ...


def survive_forks(one: Forked) -> None:
    """Have `one` told of forks, for as long as it lives."""
    _known.add(one)


def _before() -> None:
    _forking.acquire()
    # The same ones afterwards, whatever is made or dropped meanwhile.
    _held.extend(list(_known))
    for one in _held:
        one.before_fork()


def _in_parent() -> None:
    while _held:
        _held.pop().after_fork_in_parent()
    _forking.release()


def _in_child() -> None:
    _held.clear()
    for one in list(_known):
        one.after_fork_in_child()
    if _forking.locked():
        # By this very thread, before.
        _forking.release()


_forking: Final = threading.Lock()
_known: Final[weakref.WeakSet[Forked]] = weakref.WeakSet()
_held: Final[list[Forked]] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
