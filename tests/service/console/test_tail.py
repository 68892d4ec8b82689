"""An open page of the audit log: entries as they are written, for as long as the session lasts."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import httpx
import pytest
from support.console import Reader
from support.gateway import PASSWORD, LiveGateway, Owner
from support.inside import InsideGateway

from toolgate_service.console import live

EVENTS = "/console/logs/events"


class Follower:
    """An open page's stream; the gateway ends it, or says something every ten seconds."""

    def __init__(self, answer: httpx.Response) -> None:
        self._lines = answer.iter_lines()
        self.seen: list[str] = []

    def until(self, *ids: str) -> str:
        """Read on until these entries were told, each once, and return the rows that told the last of them."""
        for line in self._lines:
            if line.startswith("data: "):
                told = json.loads(line.removeprefix("data: "))
                came = re.findall(r'<tr id="entry-([0-9a-f-]{36})"', told["rows"])
                assert len(came) == told["count"]
                self.seen += came[::-1]
                if set(ids) <= set(self.seen):
                    rows: str = told["rows"]
                    return rows
        raise AssertionError("the stream ended")

    def ended(self) -> bool:
        """Wait for the word that the session has ended, and the end."""
        told = [line for line in self._lines if line.startswith("event: ")]
        return told[-1:] == ["event: ended"]


@contextmanager
def following(reader: Reader, **query: str) -> Iterator[Follower]:
    """Open a page, and the stream that it names."""
    page = reader.http.get("/console/logs", params=query).text
    found = re.search(r'data-follow="([^"]*)"', page)
    assert found, page
    with reader.http.stream("GET", found[1].replace("&amp;", "&"), timeout=30) as answer:
        assert answer.status_code == 200
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        yield Follower(answer)


@pytest.fixture
def agent(newcomer: Owner) -> str:
    """An agent of a fresh organization."""
    return newcomer.agent()


def write(owner: Owner, agent: str, action: str = "a", status: str = "success", **fields: object) -> str:
    entry: str = owner.log(agent, action, status, **fields).json()["id"]
    return entry


def test_entries_come_as_they_are_written(newcomer: Owner, agent: str) -> None:
    """Each once, as text, in the order in which they were written."""
    with Reader.of(newcomer.url, newcomer.email) as reader, following(reader) as page:
        first = write(newcomer, agent, context={"x": "<script>\u202e"})
        rows = page.until(first)
        assert ("&lt;script&gt;" in rows, "<script>" in rows, "\u202e" in rows) == (True, False, False)
        more = [write(newcomer, agent) for _ in range(3)]
        page.until(*more)
        assert page.seen == [first, *more]


@pytest.mark.parametrize(
    "query",
    [
        {"action": "wanted"},
        {"status": "denied", "action": "wanted"},
        {"q": "É", "when": "1h"},
        {"action": "wanted", "q": "é", "from": "2026-01-01"},
    ],
)
def test_it_keeps_to_the_filters(newcomer: Owner, agent: str, query: dict[str, str]) -> None:
    """Whatever the page is filtered by or searches for; nothing else is told."""
    with Reader.of(newcomer.url, newcomer.email) as reader, following(reader, **query) as page:
        write(newcomer, agent, "other", "denied", context={"x": "e"})
        one = write(newcomer, agent, "wanted", "denied", context={"x": "café"})
        page.until(one)
        write(newcomer, agent, "others", context={"x": "cafe"})
        two = write(newcomer, agent, "wanted", "denied", context={"x": "É"})
        page.until(two)
        assert page.seen == [one, two]


def test_the_other_environment_and_organization_are_not_told_of(
    newcomer: Owner, agent: str, rival: Owner
) -> None:
    """A page hears of its own world alone."""
    key = newcomer.http.get("/api/organization/test-key").json()["api_key"]
    there = newcomer.http.post("/api/agents?environment=test", json={"name": "t"}).json()["id"]
    body = {"agent_id": there, "action": "a", "status": "success"}
    with Reader.of(newcomer.url, newcomer.email) as reader, following(reader, environment="test") as page:
        write(newcomer, agent)
        write(rival, rival.agent())
        test = newcomer.http.post("/sdk/log", json=body, headers={"X-API-Key": key}).json()["id"]
        page.until(test)
        assert page.seen == [test]


def test_the_stream_ends_with_the_session(newcomer: Owner, agent: str) -> None:
    """Another password: the open page is told so, and hears nothing more."""
    with Reader.of(newcomer.url, newcomer.email) as reader, following(reader) as page:
        page.until(write(newcomer, agent))
        body = {"current_password": PASSWORD, "new_password": "a new correct horse"}
        assert newcomer.http.post("/auth/password", json=body).status_code == 200
        assert page.ended()


def test_another_gateway_on_the_same_database_is_heard(tmp_path: Path) -> None:
    """What one gateway writes, a page open at another shows: workers and replicas."""
    with LiveGateway(tmp_path) as first, LiveGateway(tmp_path) as second, Owner(first.url) as owner:
        agent = owner.agent()
        with Reader.of(second.url, owner.email) as reader, following(reader) as page:
            page.until(write(owner, agent))


def test_more_than_a_page_can_follow_is_said(newcomer: Owner, agent: str) -> None:
    """A hundred at once: the newest fifty, and that more was written."""
    sent = [{"agent_id": agent, "action": f"n.{n}", "status": "success"} for n in range(100)]
    with Reader.of(newcomer.url, newcomer.email) as reader, following(reader) as page:
        page.until(write(newcomer, agent))
        answer = newcomer.http.post("/sdk/logs", json={"entries": sent}, headers={"X-API-Key": newcomer.key})
        rows = page.until(answer.json()["results"][-1]["entry"]["id"])
        assert (rows.count("<tr id="), "More was written here than is shown" in rows) == (50, True)


def test_pages_that_cannot_be_added_to_are_not_followed(newcomer: Owner) -> None:
    """With an end in time, and behind a cursor, there is nothing to wait for."""
    with Reader.of(newcomer.url, newcomer.email) as reader:
        assert "data-follow" in reader.page("/console/logs?when=1h")
        assert "data-follow" not in reader.page("/console/logs?to=2100-01-01")


@pytest.mark.parametrize("since", ["", "x", "-1", "9" * 30, "9" * 5000, "٣"])
def test_a_stream_begins_where_a_page_was(newcomer: Owner, since: str) -> None:
    """What is no moment of ours is refused."""
    with Reader.of(newcomer.url, newcomer.email) as reader:
        assert reader.http.get(EVENTS, params={"since": since}).status_code == 400


def test_pages_of_one_person_are_bounded(tmp_path: Path) -> None:
    """They count with those of the inbox: beyond the bound the next is refused until one is closed."""
    with InsideGateway(tmp_path, console_hosts="gateway") as gateway, patch.object(live, "MOST_PAGES", 0):
        headers = {"Origin": "http://gateway"}
        fields = {"email": "a@example.test", "password": PASSWORD, "organization_name": "A"}
        gateway.send("POST", "/console/register", data=fields, headers=headers)
        assert gateway.send("GET", f"{EVENTS}?since=1").status_code == 429
