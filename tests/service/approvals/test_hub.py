"""Waking those who wait in the same process."""

from toolgate_service.core.concurrency import Notifier


def test_a_change_wakes_every_watcher_of_that_approval_alone() -> None:
    """Both watchers of one approval are told, the watcher of another is not."""
    notifier = Notifier()
    with (
        notifier.watch_approval("a") as one,
        notifier.watch_approval("a") as other,
        notifier.watch_approval("b") as elsewhere,
    ):
        notifier.notify("a")
        assert (one.is_set(), other.is_set(), elsewhere.is_set()) == (True, True, False)


def test_nothing_is_kept_of_who_has_left() -> None:
    """A watcher that went is not told, and its approval is forgotten."""
    notifier = Notifier()
    with notifier.watch_approval("a") as gone:
        pass
    notifier.notify("a")
    assert not gone.is_set()
    assert notifier._waiting == {}
