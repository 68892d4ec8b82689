"""No request to the AuthZEN endpoints ends in a server error."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.authzen import ENDPOINTS, VALID, Pep
from support.gateway import Owner

JSON = {"Content-Type": "application/json"}

texts = st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(
    ["", "\0", "*", "%", "tool", "agent"]
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
entities = st.fixed_dictionaries(
    {},
    optional={
        "type": texts | anything,
        "id": texts | anything,
        "name": texts | anything,
        "properties": st.dictionaries(
            texts | st.sampled_from(["act", "subject", "context"]), anything, max_size=3
        )
        | anything,
    },
)
pages = st.fixed_dictionaries(
    {}, optional={"token": texts | anything, "limit": st.integers() | anything, "properties": anything}
)
options = st.fixed_dictionaries(
    {},
    optional={
        "evaluations_semantic": st.sampled_from(
            ["execute_all", "deny_on_first_deny", "permit_on_first_permit"]
        )
        | anything,
        "toolgate": st.fixed_dictionaries({}, optional={"explain": anything}) | anything,
    },
)
contexts = st.fixed_dictionaries({}, optional={"time": anything, "toolgate": anything, "x": anything})
members: dict[str, st.SearchStrategy[Any]] = {
    "subject": entities | anything,
    "action": entities | anything,
    "resource": entities | anything,
    "context": contexts | anything,
}
evaluations = st.fixed_dictionaries({}, optional=members)
bodies = st.fixed_dictionaries(
    {},
    optional={
        **members,
        "page": pages | anything,
        "options": options | anything,
        "evaluations": st.lists(evaluations | anything, max_size=3) | anything,
    },
)


def survive(pep: Pep, content: bytes) -> None:
    for path in ENDPOINTS:
        answer = pep.http.post(path, content=content, headers=JSON)
        assert answer.status_code in {200, 400}, (path, content, answer.text)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=bodies)
def test_malformed_bodies_are_answered(pep: Pep, body: dict[str, Any]) -> None:
    survive(pep, json.dumps(body).encode())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(change=bodies, path=st.sampled_from(ENDPOINTS))
def test_valid_bodies_with_malformed_members_are_answered(
    pep: Pep, change: dict[str, Any], path: str
) -> None:
    survive(pep, json.dumps(VALID[path] | change).encode())


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(
    "content",
    [
        b"[" * 5_000,
        b'{"subject":' * 2_000 + b"1" + b"}" * 2_000,
        b'{"evaluations":[' + b",".join([b"{}"] * 4_000) + b"]}",
        b'{"evaluations":[' + b",".join([b"1"] * 6_000) + b"]}",
        b'{"context":{"x":1e400}}',
        b'{"context":{"x":' + b"9" * 500 + b"}}",
        b'{"subject":{"type":"\\ud800","id":"x"}}',
    ],
)
def test_extreme_bodies_are_rejected(pep: Pep, path: str, content: bytes) -> None:
    assert pep.http.post(path, content=content, headers=JSON).status_code == 400


@pytest.mark.parametrize("path", ENDPOINTS)
def test_body_limit_is_that_of_a_check(pep: Pep, path: str) -> None:
    content = json.dumps(VALID[path] | {"unknown": "x" * 300_000})
    answer = pep.http.post(path, content=content, headers=JSON)
    assert (answer.status_code, answer.json()) == (413, "The request is larger than 262144 bytes")


@pytest.mark.parametrize("path", ENDPOINTS)
def test_allowed_networks_are_those_of_a_check(newcomer: Owner, path: str) -> None:
    answer = newcomer.http.put("/api/organization/allowed-networks", json={"networks": ["192.0.2.0/24"]})
    assert answer.is_success, answer.text
    with Pep(newcomer, newcomer.agent()) as client:
        refused = client.post(path, VALID[path])
    assert refused.status_code == 403
    assert "192.0.2" not in refused.json()
    assert isinstance(refused.json(), str)


@pytest.mark.parametrize("path", ENDPOINTS)
def test_rate_limit_is_that_of_a_check(frugal: Owner, path: str) -> None:
    with Pep(frugal, frugal.agent()) as client:
        limit = int(client.post(path, VALID[path]).headers["X-RateLimit-Limit"])
        answer = client.post(path, VALID[path])
        for _ in range(2 * limit):
            if answer.status_code == 429:
                break
            answer = client.post(path, VALID[path])
    assert answer.status_code == 429
    assert answer.json().startswith("Rate limit exceeded; retry after ")
    assert int(answer.headers["Retry-After"]) > 0
