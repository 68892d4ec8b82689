"""Waking those who wait in the same process."""

from toolgate_service.approvals.hub import DecisionHub


def test_a_change_wakes_every_watcher_of_that_approval_alone() -> None:
    """Both watchers of one approval are told, the watcher of another is not."""
    hub = DecisionHub()
    with hub.watching("a") as one, hub.watching("a") as other, hub.watching("b") as elsewhere:
        hub.tell("a")
        assert (one.is_set(), other.is_set(), elsewhere.is_set()) == (True, True, False)


def test_nothing_is_kept_of_who_has_left() -> None:
    """A watcher that went is not told, and its approval is forgotten."""
    hub = DecisionHub()
    with hub.watching("a") as gone:
        pass
    hub.tell("a")
    assert not gone.is_set()
    assert hub._waiting == {}
