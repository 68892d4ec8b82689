"""Event stream of an open log page."""

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

from toolgate_service.console import streams

EVENTS = "/console/logs/events"


class Follower:
    """Event stream of an open page; the gateway sends a comment at least every ten seconds."""

    def __init__(self, answer: httpx.Response) -> None:
        self._lines = answer.iter_lines()
        self.seen: list[str] = []

    def until(self, *ids: str) -> str:
        """Read until these entries were sent, each once; return the rows of the last event."""
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
        """Wait for the event that the session has ended, and for the end of the stream."""
        told = [line for line in self._lines if line.startswith("event: ")]
        return told[-1:] == ["event: ended"]


@contextmanager
def following(reader: Reader, **query: str) -> Iterator[Follower]:
    """Open a page and the stream that it names."""
    page = reader.http.get("/console/logs", params=query).text
    found = re.search(r'data-follow="([^"]*)"', page)
    assert found, page
    with reader.http.stream("GET", found[1].replace("&amp;", "&"), timeout=30) as answer:
        assert answer.status_code == 200
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        yield Follower(answer)


@pytest.fixture
def agent(newcomer: Owner) -> str:
    """An agent of a new organization."""
    return newcomer.agent()


def write(owner: Owner, agent: str, action: str = "a", status: str = "success", **fields: object) -> str:
    entry: str = owner.log(agent, action, status, **fields).json()["id"]
    return entry


def test_new_entries_are_sent_once(newcomer: Owner, agent: str) -> None:
    """Escaped, in the order of writing."""
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
def test_only_matching_entries_are_sent(newcomer: Owner, agent: str, query: dict[str, str]) -> None:
    with Reader.of(newcomer.url, newcomer.email) as reader, following(reader, **query) as page:
        write(newcomer, agent, "other", "denied", context={"x": "e"})
        one = write(newcomer, agent, "wanted", "denied", context={"x": "café"})
        page.until(one)
        write(newcomer, agent, "others", context={"x": "cafe"})
        two = write(newcomer, agent, "wanted", "denied", context={"x": "É"})
        page.until(two)
        assert page.seen == [one, two]


def test_entries_of_other_environments_and_organizations_are_not_sent(
    newcomer: Owner, agent: str, rival: Owner
) -> None:
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
    """After a password change the page gets an event and nothing more."""
    with Reader.of(newcomer.url, newcomer.email) as reader, following(reader) as page:
        page.until(write(newcomer, agent))
        body = {"current_password": PASSWORD, "new_password": "a new correct horse"}
        assert newcomer.http.post("/auth/password", json=body).status_code == 200
        assert page.ended()


def test_entries_of_another_gateway_are_sent(tmp_path: Path) -> None:
    """The gateways share the database, as workers and replicas do."""
    with LiveGateway(tmp_path) as first, LiveGateway(tmp_path) as second, Owner(first.url) as owner:
        agent = owner.agent()
        with Reader.of(second.url, owner.email) as reader, following(reader) as page:
            page.until(write(owner, agent))


def test_a_burst_is_cut_off_with_a_note(newcomer: Owner, agent: str) -> None:
    """Of a hundred entries the newest fifty are sent."""
    sent = [{"agent_id": agent, "action": f"n.{n}", "status": "success"} for n in range(100)]
    with Reader.of(newcomer.url, newcomer.email) as reader, following(reader) as page:
        page.until(write(newcomer, agent))
        answer = newcomer.http.post("/sdk/logs", json={"entries": sent}, headers={"X-API-Key": newcomer.key})
        rows = page.until(answer.json()["results"][-1]["entry"]["id"])
        assert (rows.count("<tr id="), "Some entries are missing here" in rows) == (50, True)


def test_closed_ranges_and_older_pages_have_no_stream(newcomer: Owner) -> None:
    with Reader.of(newcomer.url, newcomer.email) as reader:
        assert "data-follow" in reader.page("/console/logs?when=1h")
        assert "data-follow" not in reader.page("/console/logs?to=2100-01-01")


@pytest.mark.parametrize("since", ["", "x", "-1", "9" * 30, "9" * 5000, "٣"])
def test_an_invalid_begin_is_refused(newcomer: Owner, since: str) -> None:
    with Reader.of(newcomer.url, newcomer.email) as reader:
        assert reader.http.get(EVENTS, params={"since": since}).status_code == 400


def test_streams_of_one_user_are_limited(tmp_path: Path) -> None:
    """Streams of the inbox count too."""
    with (
        InsideGateway(tmp_path, console_hosts="gateway") as gateway,
        patch.object(streams, "MAX_STREAMS_PER_USER", 0),
    ):
        headers = {"Origin": "http://gateway"}
        fields = {"email": "a@example.test", "password": PASSWORD, "organization_name": "A"}
        gateway.send("POST", "/console/register", data=fields, headers=headers)
        assert gateway.send("GET", f"{EVENTS}?since=1").status_code == 429
