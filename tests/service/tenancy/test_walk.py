"""Nobody gets anywhere without the right to it: every route, walked as everybody who must not be there."""

from collections.abc import Iterator, Mapping
from contextlib import nullcontext

import httpx
import pytest
from support.gateway import LiveGateway
from support.provider import SECRET as PROVIDER_SECRET
from support.walk.asking import ask, ask_rightly
from support.walk.callers import Caller, bearer, callers
from support.walk.routes import routes
from support.walk.stage import Stage
from support.walk.table import WALK, Stop

#: one denial blocks, so that there is a block to clear
ENV = {
    "TOOLGATE_STRIPE_WEBHOOK_SECRET": PROVIDER_SECRET,
    "TOOLGATE_DENIALS_BEFORE_BLOCK": "1",
    "TOOLGATE_WEBHOOKS_ALLOW_PRIVATE": "true",
    # The walk is one long minute of one admin's.
    "TOOLGATE_MANAGEMENT_REQUESTS_PER_MINUTE": "1000000",
}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The organization that is walked around in, on a gateway of its own."""
    with LiveGateway(tmp_path_factory.mktemp("walk"), env=ENV) as gateway, Stage(gateway) as stage:
        yield stage


def test_the_table_has_every_route() -> None:
    """A route without an entry is one that nobody has tried to get into; an entry without a route is stale."""
    found = set(routes())
    assert len(found) > 30
    new, gone = sorted(found - set(WALK)), sorted(set(WALK) - found)
    assert not new, f"add to WALK in tests/support/walk/table.py, with the right that each takes: {new}"
    assert not gone, f"remove from WALK in tests/support/walk/table.py: {gone}"


@pytest.mark.parametrize("route", sorted(WALK))
def test_nobody_gets_in_without_the_right(stage: Stage, route: str) -> None:
    """Everybody without the right is refused, learns nothing and changes nothing; with the right one gets in."""
    stop, people = WALK[route], "{user_id}" in route or "{invitation_id}" in route
    sealed = "/receipt" in route or "/tlog/" in route
    things = {
        "production": stage.things(people=people, sealed=sealed),
        "test": stage.things("test", sealed=sealed),
    }
    before, telltales = stage.contents(), stage.telltales()
    for caller in callers(stage):
        expected = caller.expected(stop)
        if expected is None:
            continue
        named = things[caller.about] | caller.instead
        with stage.inactive() if caller.asleep else nullcontext():
            answer = ask(stage, route, stop, named, caller.headers, caller.asks)
        assert answer.status_code == expected, f"{caller.who}: {answer.status_code} {answer.text}"
        _is_refused(answer, stop, caller)
        own = bearer(stage.owner.token) == caller.headers
        known = stage.known_to(caller.headers)
        _tells_nothing(answer, (stage.in_environment(named) if own else telltales) - known, caller)
    assert stage.contents() == before
    _gets_in(stage, route, stop, things["production"])
    if not route.startswith("GET "):
        # A denied check of production records the action of the test environment that its caller named.
        is_check = "/sdk/" in route or "/access/v1/" in route
        stage.used_up(f"{route} {stop.query} {stop.body}", in_test=is_check)


def _gets_in(stage: Stage, route: str, stop: Stop, named: Mapping[str, str]) -> None:
    # Otherwise it would be the request that is wrong, and not who sent it.
    if stop.right == "none":
        return
    answer = ask_rightly(stage, route, stop, named)
    assert answer.status_code == stop.success, answer.text
    if "/sdk/check" in route:
        assert answer.json()["approval_id"] is not None
    if "/sdk/logs" in route:
        assert [one["status"] for one in answer.json()["results"]] == [200]
    if route == "POST /access/v1/evaluation":
        assert answer.json()["context"]["approval_id"] is not None


def _is_refused(answer: httpx.Response, stop: Stop, caller: Caller) -> None:
    """Assert that a refusal is one: in the words that are the same for everybody."""
    if answer.status_code == 401 and stop.right == "key":
        words = {"Missing API key", "Invalid API key", "Organization is not active"}
        message = answer.json()
        assert (message if isinstance(message, str) else message["detail"]) in words, caller.who
    elif answer.status_code == 401 and stop.right != "none":
        assert answer.json()["detail"] == "Not authenticated", caller.who
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    elif answer.url.path.startswith("/access/v1/"):
        _is_refused_by_authzen(answer, caller)
    elif answer.status_code in {403, 404}:
        assert answer.json().keys() == {"detail", "code"}, caller.who
        assert isinstance(answer.json()["detail"], str)
    elif answer.url.path == "/sdk/check":
        result = answer.json()
        assert (result["allowed"], result["requires_approval"]) == (False, False), caller.who
    elif answer.url.path == "/sdk/logs":
        assert [one["status"] for one in answer.json()["results"]] == [404], caller.who


def _is_refused_by_authzen(answer: httpx.Response, caller: Caller) -> None:
    """Assert that a caller gets a message, a denial, or a search without results."""
    refusal = answer.json()
    if answer.status_code == 200:
        for decision in refusal.get("evaluations", [refusal]):
            assert decision.get("decision", False) is False, caller.who
        assert refusal.get("results", []) == [], caller.who
    else:
        # Errors of access requests are problems of RFC 9457.
        message = refusal["detail"] if answer.url.path.startswith("/access/v1/requests") else refusal
        assert isinstance(message, str), caller.who


def _tells_nothing(answer: httpx.Response, telltales: set[str], caller: Caller) -> None:
    """Assert that an answer has no word that the caller did not say."""
    request = answer.request
    said = f"{request.url} {request.content.decode()}"
    told = answer.text + repr(answer.headers.multi_items())
    assert [word for word in telltales if word in told and word not in said] == [], caller.who
