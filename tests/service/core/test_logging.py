"""What the gateway writes on standard error: one line each, with the request that caused it, and never a secret."""

import json
import logging
import sqlite3
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from support.forking import FORK_SERVER, Forked
from support.gateway import PASSWORD, LiveGateway, Owner
from support.insight import execute
from support.waiting import until

from toolgate_service.core.errors import StartError
from toolgate_service.core.ids import new_id
from toolgate_service.core.logging import FIELDS, REQUEST, JsonFormat, TextFormat
from toolgate_service.core.settings import load_settings


class Told(LiveGateway):
    """A gateway whose standard error is in a file of its folder."""

    def _begin(self, *arguments: str) -> Forked:
        with (self.folder / "stderr").open("ab") as file:
            return FORK_SERVER.start(*arguments, env=self.env, stderr=file.fileno())


def started(folder: Path, **env: str) -> LiveGateway:
    """Return one, with settings."""
    return Told(folder, env=env)


def lines(gateway: LiveGateway) -> list[str]:
    """Return what it has written so far."""
    return (gateway.folder / "stderr").read_text().splitlines()


def objects(gateway: LiveGateway) -> list[dict[str, Any]]:
    """Return the same, each line read as JSON."""
    return [json.loads(line) for line in lines(gateway)]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway that writes JSON, and a line for each request."""
    env = {"TOOLGATE_LOG_FORMAT": "json", "TOOLGATE_LOG_LEVEL": "debug", "TOOLGATE_ACCESS_LOG": "true"}
    with started(tmp_path_factory.mktemp("json"), **env) as running:
        yield running


@pytest.fixture
def owner(gateway: LiveGateway) -> Iterator[Owner]:
    """An admin of an organization of the test's own."""
    with Owner(gateway.url) as one:
        yield one


def of(gateway: LiveGateway, request_id: str) -> list[dict[str, Any]]:
    """Return the lines about a request, once the last of them is there."""
    until(lambda: any(one["logger"] == "toolgate.access" for one in _of(gateway, request_id)))
    return _of(gateway, request_id)


def _of(gateway: LiveGateway, request_id: str) -> list[dict[str, Any]]:
    return [one for one in objects(gateway) if one.get("request_id") == request_id]


@pytest.mark.parametrize("extra", [{}, {"approval_id": new_id()}])
def test_each_request_has_one_line(gateway: LiveGateway, owner: Owner, extra: dict[str, str]) -> None:
    """Also a check that is answered at once: method, path, status, duration, whose it is, and its own id."""
    agent, request_id = owner.agent(), new_id()
    headers = {"X-API-Key": owner.key, "X-Request-ID": request_id}
    body = {"agent_id": agent, "action": "mail.send", "context": {"to": "a-secret-context"}, **extra}
    assert owner.http.post("/sdk/check", json=body, headers=headers).status_code == 200
    [line] = of(gateway, request_id)
    assert (line["level"], line["logger"]) == ("INFO", "toolgate.access")
    assert (line["method"], line["path"], line["status"]) == ("POST", "/sdk/check", 200)
    assert line["organization_id"] == owner.user["organization_id"]
    assert 0 < line["duration_ms"] < 30_000
    moment = datetime.fromisoformat(line["time"])
    assert line["time"].endswith("Z")
    assert moment.utcoffset() == timedelta(0)


def test_a_management_request_names_its_organization(gateway: LiveGateway, owner: Owner) -> None:
    """The token's user stands for it; whoever brings none has none."""
    request_id, other = new_id(), new_id()
    assert owner.http.get("/api/agents", headers={"X-Request-ID": request_id}).status_code == 200
    [line] = of(gateway, request_id)
    assert line["organization_id"] == owner.user["organization_id"]
    httpx.get(f"{gateway.url}/api/agents", headers={"X-Request-ID": other})
    [line] = of(gateway, other)
    assert (line["status"], line["organization_id"]) == (401, None)


def test_a_path_breaks_no_line_and_a_query_stays_out(gateway: LiveGateway, owner: Owner) -> None:
    """A line break in a path is written as it was sent, a long one is cut, and what was searched for is not told."""
    request_id = new_id()
    path = "/api/agents/x%0AERROR%20forged" + "y" * 500
    owner.http.get(f"{path}?q=a-secret-query", headers={"X-Request-ID": request_id})
    [line] = of(gateway, request_id)
    assert line["path"] == path[:200]
    assert line["method"] == "GET"


@pytest.mark.sqlite_only("the tests' way into PostgreSQL counts changed rows, and a renamed table has none")
def test_whatever_a_request_causes_names_it(tmp_path: Path) -> None:
    """The error behind a 503 has the request's id, in a field of its own, and so has the line of the request."""
    with started(tmp_path, TOOLGATE_LOG_FORMAT="json", TOOLGATE_ACCESS_LOG="true") as gateway:
        with Owner(gateway.url) as owner:
            request_id = new_id()
            execute(gateway, "ALTER TABLE agents RENAME TO nowhere")
            answer = owner.http.get("/api/agents", headers={"X-Request-ID": request_id})
            assert answer.status_code == 503
            told = of(gateway, request_id)
        error = next(one for one in told if one["level"] == "ERROR")
        assert error["logger"] == "toolgate.gateway"
        assert "no such table" in error["exception"]
        assert {one["logger"] for one in told} == {"toolgate.gateway", "toolgate.access"}
        told = objects(gateway)
    assert all({"time", "level", "logger", "message"} <= set(one) for one in told)


def test_no_secret_is_written(gateway: LiveGateway, owner: Owner) -> None:
    """At the lowest level too: no key, token, password, context, nor what the gateway itself is kept secret by."""
    agent = owner.agent()
    owner.permit(agent, "mail.send")
    owner.check(agent, "mail.send", {"to": "a-secret-context"})
    owner.log(agent, "mail.send", context={"to": "a-secret-context"})
    owner.http.post("/auth/login", json={"email": owner.email, "password": "a-secret-password"})
    owner.http.get("/api/logs?q=a-secret-query")
    owner.http.post("/sdk/check", json={}, headers={"X-API-Key": "ak_" + "s" * 37})
    httpx.get(f"{gateway.url}/console/logs", headers={"Cookie": f"toolgate={owner.token}"})
    request_id = new_id()
    owner.http.get("/health", headers={"X-Request-ID": request_id})
    assert of(gateway, request_id)
    text = "\n".join(lines(gateway))
    for secret in (owner.key, owner.token, PASSWORD, "a-secret", "s" * 37, gateway.env["TOOLGATE_SECRET"]):
        assert secret not in text


@pytest.mark.slow
@pytest.mark.sqlite_only("PostgreSQL has no one lock that every writer needs")
def test_a_locked_database_is_one_line_until_it_is_free(tmp_path: Path) -> None:
    """However often somebody asks whether the gateway is ready: a line when it is not, and one when it is again."""
    with started(tmp_path) as gateway, httpx.Client(base_url=gateway.url, timeout=30) as client:
        other = sqlite3.connect(gateway.database, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        statuses = [client.get("/health/ready").status_code for _ in range(2)]
        assert statuses == [503, 503]
        other.execute("ROLLBACK")
        other.close()
        until(lambda: client.get("/health/ready").status_code == 200)
        told = [line for line in lines(gateway) if "atabase" in line]
    assert [
        " ERROR The database did not respond within 2 seconds (request " in line for line in told[:1]
    ] == [True]
    assert " INFO The database is available again (request " in told[-1]
    assert len(told) <= 3, told
    assert not any("Traceback" in line for line in told)


@pytest.mark.sqlite_only("the tests' way into PostgreSQL counts changed rows, and a renamed table has none")
def test_the_level_is_where_lines_begin(tmp_path: Path) -> None:
    """With `error` the line of a recovery is left out, and requests have none without the setting."""
    with started(tmp_path, TOOLGATE_LOG_LEVEL="error") as gateway:
        execute(gateway, "ALTER TABLE organizations RENAME TO elsewhere")
        until(lambda: httpx.get(f"{gateway.url}/health/ready").status_code == 503)
        execute(gateway, "ALTER TABLE elsewhere RENAME TO organizations")
        until(lambda: httpx.get(f"{gateway.url}/health/ready").status_code == 200)
        told = lines(gateway)
    assert [line for line in told if "cannot be read: no such table" in line]
    assert not [line for line in told if " INFO " in line]


def record(message: str, *args: object, **more: Any) -> logging.LogRecord:
    """Return a record as a logger makes it."""
    one = logging.LogRecord(
        "toolgate.gateway", logging.WARNING, __file__, 1, message, args, more.pop("exc_info", None)
    )
    one.__dict__.update(more)
    return one


def test_an_exception_is_a_field() -> None:
    """With its traceback, in the same one line; letters beyond ASCII are escaped."""
    try:
        raise ValueError("ä line\nbreak")
    except ValueError as error:
        line = JsonFormat().format(
            record("it %s", "fäiled", exc_info=(type(error), error, error.__traceback__))
        )
    assert line.isascii()
    assert "\n" not in line
    told = json.loads(line)
    assert told["message"] == "it fäiled"
    assert told["exception"].endswith("ValueError: ä line\nbreak")
    assert "Traceback" in told["exception"]
    assert "request_id" not in told


def test_fields_of_their_own_are_members() -> None:
    """What a record brings stands beside the rest, and the request that is under way."""
    token = REQUEST.set("abc")
    try:
        told = json.loads(JsonFormat().format(record("done", **{FIELDS: {"status": 200}})))
        text = TextFormat().format(record("done"))
        named = TextFormat().format(record("request abc failed"))
    finally:
        REQUEST.reset(token)
    assert (told["status"], told["request_id"]) == (200, "abc")
    assert text.endswith(" WARNING done (request abc)")
    assert named.endswith(" WARNING request abc failed")


def test_others_words_make_no_line_and_move_no_terminal() -> None:
    """What begins a line or commands a terminal is written as an escape, in a message and below it."""
    words = "away\n2026-11-22 ERROR forged\x1b[2J\x9b31m\u2028\x7f"
    said = TextFormat().format(record(words))
    assert said.endswith(r" WARNING away\n2026-11-22 ERROR forged\x1b[2J\x9b31m\u2028\x7f")
    assert json.loads(JsonFormat().format(record(words)))["message"] == words
    try:
        raise ValueError(words)
    except ValueError:
        failed = record("failed")
        failed.exc_info = sys.exc_info()
    told = TextFormat().format(failed)
    assert told.splitlines()[-1] == r"2026-11-22 ERROR forged\x1b[2J\x9b31m\u2028\x7f"
    assert len(JsonFormat().format(failed).splitlines()) == 1


def test_the_trace_under_way_is_named() -> None:
    """By its id and its span's, as OpenTelemetry writes them."""
    with TracerProvider().get_tracer("test").start_as_current_span("one") as span:
        told = json.loads(JsonFormat().format(record("done")))
    context = span.get_span_context()
    assert (told["trace_id"], told["span_id"]) == (f"{context.trace_id:032x}", f"{context.span_id:016x}")
    assert "trace_id" not in json.loads(JsonFormat().format(record("done")))


@pytest.mark.parametrize(
    ("name", "value"), [("log_format", "xml"), ("log_level", "loud"), ("access_log", "perhaps")]
)
def test_unknown_forms_and_levels_are_refused(name: str, value: str) -> None:
    """At start, by the setting's name."""
    with pytest.raises(StartError, match=f"TOOLGATE_{name.upper()}: "):
        load_settings({name: value})


def test_levels_may_be_written_large() -> None:
    """As Python and others write them."""
    assert load_settings({"log_level": "WARNING"}).log_level == "warning"
