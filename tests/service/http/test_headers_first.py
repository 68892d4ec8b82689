"""Requests are authenticated, located and counted by their headers; no byte of a body is waited for before that."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support.databases import CHOICE
from support.gateway import LiveGateway, Owner
from support.provider import SECRET
from support.provider import signed as signed_by_provider
from support.raw import Raw, whole
from support.shapes import problem
from support.slack import command
from support.slack import signed as signed_by_slack

from toolgate_service.http.body_limit import MAX_BODY, MAX_OPEN_BODY

UNKNOWN = "ak_" + "0" * 37
#: what needs a key or a token
CLOSED = [
    ("/sdk/check", {"X-API-Key": UNKNOWN}, "Invalid API key"),
    ("/sdk/check", {"X-API-Key": "short"}, "Invalid API key"),
    ("/sdk/check", {}, "Missing API key"),
    ("/sdk/log", {"X-API-Key": UNKNOWN}, "Invalid API key"),
    ("/sdk/logs", {"X-API-Key": UNKNOWN}, "Invalid API key"),
    ("/sdk/approvals/a/cancel", {"X-API-Key": UNKNOWN}, "Invalid API key"),
    ("/api/agents", {"Authorization": "Bearer a.b.c"}, "Not authenticated"),
    ("/api/team/invitations", {}, "Not authenticated"),
    ("/api/approvals/a/approve", {}, "Not authenticated"),
    ("/auth/password", {}, "Not authenticated"),
    ("/integrations/slack/a", {}, "The request is not signed with the Slack signing secret of this webhook"),
]
#: what needs none
OPEN = (
    "/auth/login",
    "/auth/register",
    "/auth/password-reset",
    "/auth/password-reset/confirm",
    "/auth/accept-invitation",
)


def head(path: str, headers: dict[str, str], length: int, **more: str) -> bytes:
    given = {"Host": "gateway", "Content-Length": str(length), **headers, **more}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode()


@pytest.mark.parametrize(("path", "headers", "detail"), CLOSED)
@pytest.mark.parametrize("length", [MAX_BODY, 10 * MAX_BODY, 100])
def test_unknown_client_is_answered_before_its_body(
    acme: Owner, path: str, headers: dict[str, str], detail: str, length: int
) -> None:
    """The answer comes although nothing of the announced body was sent."""
    with Raw(acme.url) as raw:
        answer = whole(raw.send(head(path, headers, length)).answer())
    assert (answer.status, answer.json()) == (401, problem(401, detail))


def test_unknown_client_is_not_asked_for_its_body(acme: Owner) -> None:
    """Who waits for `100 Continue` gets the refusal in its place."""
    with Raw(acme.url) as raw:
        raw.send(head("/sdk/check", {"X-API-Key": UNKNOWN, "Expect": "100-continue"}, 1000))
        assert whole(raw.answer()).status == 401


def test_connection_of_an_unknown_client_serves_the_next_request(acme: Owner, bot: str) -> None:
    """The refused request's body is skipped, not parsed."""
    body = b"[" * 8_000  # arrives with the head: an answer before the end of a body closes the connection
    good = json.dumps({"agent_id": bot, "action": "a.b"}).encode()
    with Raw(acme.url) as raw:
        raw.send(head("/sdk/check", {"X-API-Key": UNKNOWN}, len(body)), body)
        assert whole(raw.answer()).status == 401
        raw.send(head("/sdk/check", {"X-API-Key": acme.key}, len(good)), good)
        assert whole(raw.answer()).status == 200


def test_body_of_a_known_client_is_judged_after_its_rate(newcomer: Owner) -> None:
    """Beyond the rate the answer is 429 although nothing of the body was sent."""
    _limit_rate(newcomer)
    agent = newcomer.agent()
    for path in ("/sdk/check", "/sdk/log", "/sdk/logs"):
        for _ in range(3):
            newcomer.check(agent, "a.b")
        with Raw(newcomer.url) as raw:
            answer = whole(raw.send(head(path, {"X-API-Key": newcomer.key}, MAX_BODY)).answer())
        assert answer.status == 429
        assert answer.headers["retry-after"]


def _limit_rate(owner: Owner) -> None:
    from support.tables import execute

    organization = owner.http.get("/api/organization").json()["id"]
    execute(
        _gateway_of[owner.url], "UPDATE organizations SET requests_per_minute = 2 WHERE id = ?", organization
    )


_gateway_of: dict[str, LiveGateway] = {}


@pytest.fixture(autouse=True)
def _remember(gateway: LiveGateway) -> Iterator[None]:
    _gateway_of[gateway.url] = gateway
    yield
    _gateway_of.clear()


def test_client_outside_the_allowed_networks_is_answered_before_its_body(newcomer: Owner) -> None:
    """403, with nothing of the body."""
    answer = newcomer.http.put("/api/organization/allowed-networks", json={"networks": ["203.0.113.0/24"]})
    assert answer.status_code == 200, answer.text
    with Raw(newcomer.url) as raw:
        refused = whole(raw.send(head("/sdk/check", {"X-API-Key": newcomer.key}, MAX_BODY)).answer())
    assert refused.status == 403


@pytest.mark.parametrize("path", OPEN)
def test_open_endpoint_takes_small_bodies_only(acme: Owner, path: str) -> None:
    """400 by the announced size, by what came in chunks, and by what it unpacks to; beyond the general limit 413."""
    too_large = problem(
        400, {"body": [f"must not be larger than {MAX_OPEN_BODY} bytes without authentication"]}
    )
    with Raw(acme.url) as raw:
        answer = whole(raw.send(head(path, {}, MAX_OPEN_BODY + 1)).answer())
        assert (answer.status, answer.json()) == (400, too_large)
    with Raw(acme.url) as raw:
        assert whole(raw.send(head(path, {}, MAX_BODY + 1)).answer()).status == 413
    with Raw(acme.url) as raw:
        raw.send(f"POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        raw.send(b"4001\r\n" + b" " * (MAX_OPEN_BODY + 1) + b"\r\n0\r\n\r\n")
        assert whole(raw.answer()).json() == too_large
    packed = gzip.compress(b" " * (MAX_OPEN_BODY + 1))
    with Raw(acme.url) as raw:
        raw.send(head(path, {}, len(packed), **{"Content-Encoding": "gzip"}), packed)
        assert whole(raw.answer()).json() == too_large


@pytest.mark.parametrize("path", OPEN)
def test_open_endpoint_reads_few_values(anyone: httpx.Client, path: str) -> None:
    """A body of many small values is refused before it is parsed, and its fields are not listed in the answer."""
    answer = anyone.post(path, content=b'{"email": [%s]}' % b",".join([b"1"] * 1000))
    assert (answer.status_code, answer.json()) == (
        400,
        problem(400, {"body": ["The body has more than 64 JSON values"]}),
    )


@pytest.mark.parametrize("page", ["sign-in", "register", "invitation", "password-reset", "forgotten"])
def test_console_reads_small_forms_of_people_who_are_not_signed_in(anyone: httpx.Client, page: str) -> None:
    """What a browser sends before it has a session."""
    form = {"Content-Type": "application/x-www-form-urlencoded", "Origin": str(anyone.base_url).rstrip("/")}
    answer = anyone.post(f"/console/{page}", content=b"email=" + b"%41" * 10_000, headers=form)
    assert answer.status_code == 400
    assert str(MAX_OPEN_BODY) in answer.text


def test_key_is_valid_with_white_space_around_it(acme: Owner, bot: str) -> None:
    """Proxies and configuration files leave spaces and tabs."""
    body = json.dumps({"agent_id": bot, "action": "a.b"}).encode()
    for _ in range(2):
        with Raw(acme.url) as raw:
            raw.send(head("/sdk/check", {"X-API-Key": f" \t{acme.key} \t "}, len(body)), body)
            assert whole(raw.answer()).status == 200


@pytest.mark.parametrize(
    "name", ["X-API-Key", "Authorization", "Idempotency-Key", "Content-Type", "X-Request-ID"]
)
@pytest.mark.parametrize("path", ["/sdk/check", "/sdk/log", "/api/agents"])
def test_header_with_one_value_is_refused_twice(acme: Owner, bot: str, name: str, path: str) -> None:
    """A proxy may have judged the other one."""
    body = json.dumps({"agent_id": bot, "action": "a.b", "status": "success"}).encode()
    lines = b"".join(b"%b: %b\r\n" % (name.encode(), value) for value in (acme.key.encode(), b"other"))
    with Raw(acme.url) as raw:
        raw.send(head(path, {"A": "b"}, len(body)).replace(b"A: b\r\n", lines), body)
        answer = whole(raw.answer())
    assert (answer.status, answer.json()) == (
        400,
        problem(400, {name: ["was sent more than once; send this header only once"]}),
    )


@pytest.fixture
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway that answers few failures of an address with 401."""
    folder: Path = tmp_path_factory.mktemp("strict")
    env = {"TOOLGATE_FAILED_AUTHENTICATIONS_PER_MINUTE": "4", "TOOLGATE_STRIPE_WEBHOOK_SECRET": SECRET}
    with LiveGateway(folder, env=env) as gateway:
        yield gateway


@pytest.mark.skipif(CHOICE.replicas > 1, reason="each process counts for itself")
@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/integrations/slack/unknown", signed_by_slack(command("help"), "0" * 32), 401),
        ("/billing/provider-events", signed_by_provider("{}", secret="wrong"), 400),
    ],
)
def test_wrong_signatures_of_an_address_are_limited(
    strict: LiveGateway, path: str, headers: dict[str, str], status: int
) -> None:
    statuses = [
        httpx.post(f"{strict.url}{path}", content=command("help"), headers=headers).status_code
        for _ in range(9)
    ]
    # The minute may end in between.
    assert statuses.count(429) >= 1
    assert set(statuses) == {status, 429}


@pytest.mark.skipif(CHOICE.replicas > 1, reason="each process counts for itself")
def test_failures_of_an_address_are_limited_and_its_valid_keys_are_not(strict: LiveGateway) -> None:
    """Beyond the limit an unknown credential is 429 with the time to wait; a key used for the first time then works."""
    owner = Owner(strict.url)
    agent = owner.agent()
    later = owner.login()
    statuses = [
        httpx.post(f"{strict.url}/sdk/check", headers={"X-API-Key": UNKNOWN}).status_code for _ in range(9)
    ]
    # The minute may end in between.
    assert statuses.count(429) >= 1
    assert set(statuses) == {401, 429}
    while True:
        refused = httpx.post(f"{strict.url}/api/agents", headers={"Authorization": "Bearer a.b.c"})
        if refused.status_code == 429:
            break
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert "Not authenticated" in refused.json()["detail"]
    assert owner.check(agent, "a.b").status_code == 200
    assert owner.http.get("/api/agents").status_code == 200
    assert later.get("/api/agents").status_code == 200
    later.close()
    owner.http.close()


def test_body_of_a_revoked_key_is_not_read(newcomer: Owner) -> None:
    """A key that was used a moment ago is 401 after its replacement, whatever the body is."""
    agent = newcomer.agent()
    old = newcomer.key
    for _ in range(3):
        assert newcomer.check(agent, "a.b").status_code == 200
    newcomer.http.post("/api/organization/regenerate-key")
    for body in (b"{}", b"[" * 100, json.dumps({"agent_id": agent, "action": "a.b"}).encode()):
        answer = newcomer.http.post("/sdk/check", content=body, headers={"X-API-Key": old})
        assert (answer.status_code, answer.json()) == (401, problem(401, "Invalid API key"))
