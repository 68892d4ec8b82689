"""Whatever is sent, the gateway answers JSON, never with a 5xx, never with its inside."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.gateway import Owner
from support.shapes import nothing_inside

FEW = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
MANY = settings(FEW, max_examples=2_000)

numbers = st.integers() | st.floats() | st.integers(10**390, 10**410)
texts = st.text(st.characters(codec=None), max_size=20)
anything = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)
FIELDS = (
    "agent_id",
    "action",
    "status",
    "context",
    "ip_address",
    "occurred_at",
    "decision_id",
    "approval_id",
    "call_id",
    "run_id",
    "dry_run",
    "name",
    "description",
    "requires_approval",
    "max_amount",
    "amount_required",
    "email",
    "password",
    "scope",
    "role",
    "token",
    "new_password",
    "note",
)
bodies = st.dictionaries(st.sampled_from(FIELDS), anything, max_size=8) | anything
PATHS = (
    "/sdk/check",
    "/sdk/log",
    "/auth/login",
    "/auth/password-reset",
    "/auth/password-reset/confirm",
    "/auth/accept-invitation",
    "/api/team/invitations",
    "/api/team/{bot}",
    "/api/agents",
    "/api/agents/{bot}",
    "/api/agents/{bot}/permissions",
    "/api/permissions/{permission}",
    "/api/approvals/{approval}/deny",
    "/api/organization",
)


@pytest.fixture(scope="module")
def places(acme: Owner) -> list[tuple[str, str]]:
    """Every way to send a body: methods and paths with ids that exist."""
    bot = acme.agent()
    names = {"bot": bot, "permission": acme.permit(bot, "held", requires_approval=True)}
    names["approval"] = acme.check(bot, "held").json()["approval_id"]
    return [(method, path.format(**names)) for path in PATHS for method in ("POST", "PUT")]


def survive(acme: Owner, places: list[tuple[str, str]], content: bytes, query: str = "") -> None:
    for method, path in places:
        url = f"{path}?{query}" if query else path
        nothing_inside(acme.http.request(method, url, content=content, headers={"X-API-Key": acme.key}))


def written(value: object) -> bytes:
    # Surrogates stay escaped, NaN stays NaN: exactly what a careless client sends.
    return json.dumps(value).encode()


@FEW
@given(body=bodies)
def test_no_json_is_too_strange(acme: Owner, places: list[tuple[str, str]], body: object) -> None:
    """Arbitrary JSON, with known field names and without, on every path."""
    survive(acme, places, written(body))


@FEW
@given(content=st.binary(max_size=200))
def test_no_bytes_are_too_strange(acme: Owner, places: list[tuple[str, str]], content: bytes) -> None:
    """Arbitrary bytes on every path."""
    survive(acme, places, content)


@pytest.mark.slow
@MANY
@given(body=bodies)
def test_no_json_is_too_strange_at_length(acme: Owner, places: list[tuple[str, str]], body: object) -> None:
    """The same for longer."""
    survive(acme, places, written(body))


@pytest.fixture(scope="module")
def scribe(acme: Owner) -> str:
    """An agent whose entries are written one by one."""
    return acme.agent("scribe")


@FEW
@given(context=st.dictionaries(texts, anything, max_size=6))
def test_what_was_logged_can_be_read(acme: Owner, scribe: str, context: dict[str, object]) -> None:
    """Whatever entry is accepted, the listing shows it with the same context: no entry hides the others."""
    body = written({"agent_id": scribe, "action": "a", "status": "success", "context": context})
    answer = acme.http.post("/sdk/log", content=body, headers={"X-API-Key": acme.key})
    # The answer contains the context, in which a generated text may happen to be a word of the gateway's inside.
    assert answer.status_code < 500, answer.text
    listing = acme.http.get("/api/logs", params={"limit": 1, "agent_id": scribe})
    assert listing.status_code == 200
    if answer.status_code == 200:
        kept = answer.text[answer.text.index('"context":') : -1]
        assert kept in listing.text


@FEW
@given(values=st.lists(texts.filter(lambda text: text.isprintable()), min_size=5, max_size=5))
def test_no_query_is_too_strange(acme: Owner, values: list[str]) -> None:
    """Arbitrary text in every query parameter of the listings."""
    names = ("agent_id", "status", "action", "limit", "environment")
    for path in ("/api/logs", "/api/approvals", "/api/agents"):
        nothing_inside(acme.http.get(path, params=dict(zip(names, values, strict=True))))
