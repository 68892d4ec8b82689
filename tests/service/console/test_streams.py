"""Event stream of the inbox."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pytest
from support.console import Reader
from support.gateway import PASSWORD, LiveGateway, Owner
from support.inside import InsideGateway

from toolgate_service.console import streams

EVENTS = "/console/approvals/events"


class Listener:
    """Event stream of an open page; a comment every ten seconds ends blocked reads."""

    def __init__(self, answer: httpx.Response) -> None:
        self._lines = answer.iter_lines()

    def next(self) -> tuple[str, dict[str, Any]] | None:
        """Return the next event; None at the end of the stream."""
        kind = ""
        for line in self._lines:
            name, _, value = line.partition(": ")
            if name == "event":
                kind = value
            elif name == "data":
                return kind, json.loads(value)
        return None

    def until(self, *ids: str) -> dict[str, Any]:
        """Return the first event with exactly these requests."""
        while (event := self.next()) is not None:
            if set(event[1].get("ids", ())) == set(ids) and event[0] == "waiting":
                return event[1]
        raise AssertionError("the stream ended")

    def ended(self) -> bool:
        """Wait for the event that the session has ended, and for the end of the stream."""
        while (event := self.next()) is not None:
            if event[0] == "ended":
                return self.next() is None
        return False


@contextmanager
def listening(reader: Reader, environment: str = "production") -> Iterator[Listener]:
    with reader.http.stream("GET", f"{EVENTS}?environment={environment}", timeout=30) as answer:
        assert answer.status_code == 200
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        yield Listener(answer)


@pytest.fixture
def agent(newcomer: Owner) -> str:
    """An agent of a new organization with one action that needs an approval."""
    agent = newcomer.agent()
    newcomer.permit(agent, "wait", requires_approval=True)
    return agent


def ask(owner: Owner, agent: str, n: int) -> str:
    approval: str = owner.check(agent, "wait", {"n": n}).json()["approval_id"]
    return approval


def test_changes_are_sent(newcomer: Owner, agent: str) -> None:
    """The pending requests at first, new ones, and decided ones."""
    with Reader.of(newcomer.url, newcomer.email) as reader, listening(reader) as page:
        assert page.until() == {"count": 0, "more": False, "ids": [], "votes": {}, "with_call": []}
        one = ask(newcomer, agent, 1)
        assert page.until(one)["count"] == 1
        two = ask(newcomer, agent, 2)
        assert page.until(one, two)["ids"] == [two, one]
        newcomer.http.post(f"/api/approvals/{one}/deny")
        page.until(two)


def test_a_vote_is_sent(newcomer: Owner) -> None:
    """The number of votes of a request that stays pending."""
    agent = newcomer.agent()
    newcomer.permit(agent, "wait", requires_approval=True, required_approvals=2)
    with Reader.of(newcomer.url, newcomer.email) as reader, listening(reader) as page:
        one = ask(newcomer, agent, 1)
        assert page.until(one)["votes"] == {}
        assert newcomer.http.post(f"/api/approvals/{one}/approve").status_code == 200
        assert page.until(one)["votes"] == {one: 1}


def test_changes_of_the_other_environment_are_not_sent(newcomer: Owner, agent: str) -> None:
    with (
        Reader.of(newcomer.url, newcomer.email) as reader,
        listening(reader) as here,
        listening(reader, "test") as there,
    ):
        one = ask(newcomer, agent, 1)
        here.until(one)
        assert there.until()["count"] == 0


def test_the_stream_needs_a_session(stranger: Reader) -> None:
    """401, so that a page can say that it must sign in."""
    assert stranger.get(EVENTS, **{"X-Toolgate-Part": "1"}).status_code == 401
    assert stranger.get(EVENTS).status_code == 303


@pytest.mark.parametrize("how", ["password", "sign-out"])
def test_the_stream_ends_with_the_session(newcomer: Owner, agent: str, how: str) -> None:
    """The page gets an event and nothing more."""
    with Reader.of(newcomer.url, newcomer.email) as reader, listening(reader) as page:
        page.until()
        if how == "password":
            body = {"current_password": PASSWORD, "new_password": "a new correct horse"}
            assert newcomer.http.post("/auth/password", json=body).status_code == 200
        else:
            with Reader(newcomer.url) as other:
                other.http.cookies.update(reader.http.cookies)
                assert other.submit("/console/sign-out", token=other.token()).status_code == 303
        assert page.ended()


def test_streams_of_one_user_are_limited(tmp_path: Path) -> None:
    with (
        InsideGateway(tmp_path, console_hosts="gateway") as gateway,
        patch.object(streams, "MAX_STREAMS_PER_USER", 0),
    ):
        headers = {"Origin": "http://gateway"}
        fields = {"email": "a@example.test", "password": PASSWORD, "organization_name": "A"}
        gateway.send("POST", "/console/register", data=fields, headers=headers)
        answer = gateway.send("GET", EVENTS, headers={"X-Toolgate-Part": "1"})
        assert (answer.status_code, answer.headers["Retry-After"]) == (429, "5")


def test_changes_by_another_gateway_are_sent(tmp_path: Path) -> None:
    """The gateways share the database, as workers and replicas do."""
    with LiveGateway(tmp_path) as first, LiveGateway(tmp_path) as second, Owner(first.url) as owner:
        agent = owner.agent()
        owner.permit(agent, "wait", requires_approval=True)
        with Reader.of(second.url, owner.email) as reader, listening(reader) as page:
            page.until()
            one = ask(owner, agent, 1)
            page.until(one)
            assert reader.decide(one, "approve").status_code == 303
            page.until()
            assert owner.http.get(f"/api/approvals/{one}").json()["status"] == "approved"


def test_a_stopping_gateway_ends_its_streams(tmp_path: Path) -> None:
    """Open pages do not delay shutdown, and their streams end cleanly."""
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner, ExitStack() as open_pages:
        reader = open_pages.enter_context(Reader.of(gateway.url, owner.email))
        page = open_pages.enter_context(listening(reader))
        page.until()
        gateway.stop()
        assert page.next() is None
