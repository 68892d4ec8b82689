"""Both ways to delete a permission (spec §4, §7)."""

from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest
from support.crowd import together
from support.gateway import Owner
from support.shapes import refused

UNKNOWN = "01890000-0000-7000-8000-000000000000"


def short(_agent: str, permission: str) -> str:
    return f"/api/permissions/{permission}"


def nested(agent: str, permission: str) -> str:
    return f"/api/agents/{agent}/permissions/{permission}"


PATHS = pytest.mark.parametrize("path", [short, nested])
Path = Callable[[str, str], str]


@PATHS
def test_the_next_check_is_blocked(acme: Owner, bot: str, path: Path) -> None:
    """DELETE is 204 without a body, the very next check is blocked, and granting again works (spec §4)."""
    permission = acme.permit(bot, "a.b")
    assert acme.check(bot, "a.b").json()["allowed"] is True
    answer = acme.http.delete(path(bot, permission))
    assert (answer.status_code, answer.content) == (204, b"")
    blocked = acme.check(bot, "a.b").json()
    assert (blocked["allowed"], "'a.b'" in blocked["reason"]) == (False, True)
    refused(acme.http.delete(path(bot, permission)), 404, "Permission not found")
    acme.permit(bot, "a.b")
    assert acme.check(bot, "a.b").json()["allowed"] is True


@PATHS
@pytest.mark.parametrize("permission", [UNKNOWN, "x"])
def test_an_unknown_permission_is_not_found(acme: Owner, bot: str, path: Path, permission: str) -> None:
    """A permission that does not exist is 404 on both paths (spec §7)."""
    refused(acme.http.delete(path(bot, permission)), 404, "Permission not found")


def test_a_foreign_permission_is_forbidden_on_the_short_path(acme: Owner, rival: Owner, bot: str) -> None:
    """Another organization's permission is 403 with the words of a 404, and stays (spec §7)."""
    permission = acme.permit(bot, "a.b")
    refused(rival.http.delete(short(bot, permission)), 403, "Permission not found")
    assert acme.check(bot, "a.b").json()["allowed"] is True


def test_a_foreign_permission_is_not_found_on_the_nested_path(acme: Owner, rival: Owner, bot: str) -> None:
    """Through one's own or a foreign agent, another organization's permission is 404 and stays (decisions §2)."""
    permission = acme.permit(bot, "a.b")
    refused(rival.http.delete(nested(bot, permission)), 404, "Agent not found")
    refused(rival.http.delete(nested(rival.agent(), permission)), 404, "Permission not found")
    assert acme.check(bot, "a.b").json()["allowed"] is True


def test_a_permission_is_not_deleted_through_another_agent(acme: Owner, bot: str) -> None:
    """The nested path deletes permissions of the agent it names, no others."""
    permission = acme.permit(bot, "a.b")
    refused(acme.http.delete(nested(acme.agent(), permission)), 404, "Permission not found")
    assert acme.check(bot, "a.b").json()["allowed"] is True


def test_parallel_deletions_delete_once(acme: Owner, bot: str) -> None:
    """Of six simultaneous deletions, over both paths, one is 204 and the others are 404."""
    permission = acme.permit(bot, "a.b")
    works = [partial(acme.http.delete, path(bot, permission)) for path in (short, nested) * 3]
    assert Counter(answer.status_code for answer in together(*works)) == {204: 1, 404: 5}
