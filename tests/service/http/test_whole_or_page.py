"""Agents and permissions come whole unless `limit` is sent (decisions §2)."""

from collections.abc import Iterator

import pytest
from support.gateway import LiveGateway, Owner
from support.pages import walked
from support.shapes import complaints

MANY = 101
PATHS = pytest.mark.parametrize("path", ["/api/agents", "/api/agents/{agent}/permissions"])


@pytest.fixture(scope="module")
def large(gateway: LiveGateway) -> Iterator[tuple[Owner, str]]:
    """An organization with a hundred and one agents, and a hundred and one permissions of the last of them."""
    with Owner(gateway.url, organization="Large") as owner:
        *_, agent = [owner.agent(f"bot-{number}") for number in range(MANY)]
        for number in range(MANY):
            owner.permit(agent, f"action.{number}")
        yield owner, agent


@PATHS
def test_the_list_is_whole_unless_a_limit_is_sent(large: tuple[Owner, str], path: str) -> None:
    """All of them at once, linking nowhere; with `limit` so many, and the links lead through all the others."""
    owner, agent = large
    url = path.format(agent=agent)
    whole = owner.http.get(url)
    assert (len(whole.json()), "next" in whole.links) == (MANY, False)
    part = owner.http.get(url, params={"limit": 2})
    assert (part.json(), "next" in part.links) == (whole.json()[:2], True)
    assert part.headers["X-Total-Count"] == str(MANY)
    assert owner.http.get(url, params={"limit": 2, "offset": 100}).json() == whole.json()[100:]
    assert walked(owner, url, limit=40) == whole.json()


@PATHS
@pytest.mark.parametrize("limit", [0, 101, "all"])
def test_a_wrong_limit_is_named(large: tuple[Owner, str], path: str, limit: int | str) -> None:
    """Where a limit is sent it is from 1 to 100, as everywhere."""
    owner, agent = large
    answer = owner.http.get(path.format(agent=agent), params={"limit": limit})
    assert list(complaints(answer)) == ["limit"]
