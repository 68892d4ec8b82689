"""The examples of the OpenAPI document work, and responses conform to it."""

import pytest
from support.conformity import conforms, document
from support.gateway import LiveGateway, Owner
from support.scene import Scene, find, operation_ids, request_schema
from support.shapes import complaints

SECURED = [name for name in operation_ids() if find(name)[2]["security"]]
WITH_BODY = [name for name in operation_ids() if request_schema(name) is not None]
WITH_ID = [name for name in SECURED if "404" in find(name)[2]["responses"]]

#: a subscription comes from the payment provider, a token by mail, a block from ten denials: their own tests succeed
EMPTY_HANDED = {
    "getSubscription": 404, "confirmPasswordReset": 400, "clearDenialBlock": 404,
    # A shadow policy exists only after another operation.
    "getShadow": 404, "discardShadow": 404, "promoteShadow": 404,
    # An approval request is erased after it is closed.
    "eraseApprovalRequest": 409,
}  # fmt: skip


@pytest.fixture
def scene(acme: Owner) -> Scene:
    """New resources in a shared organization."""
    return Scene(acme)


@pytest.mark.parametrize("operation", operation_ids())
def test_every_operation_succeeds_with_its_example(
    request: pytest.FixtureRequest, acme: Owner, operation: str
) -> None:
    """Each operation, sent as the example shows, returns a documented success."""
    # Operations on accounts may end the session, or the user, that performs them.
    alone = set(find(operation)[2]["tags"]) & {"accounts", "team"}
    owner: Owner = request.getfixturevalue("newcomer") if alone else acme
    answer = Scene(owner).perform(operation)
    conforms(answer)
    assert answer.is_success or answer.status_code == EMPTY_HANDED.get(operation), answer.text


@pytest.mark.parametrize("operation", SECURED)
def test_every_operation_refuses_strangers(scene: Scene, operation: str) -> None:
    """Without a credential, or with one of the other kind, it is 401 as documented."""
    path, method, _ = find(operation)
    both = {"Authorization": "Bearer no", "X-API-Key": "ak_no"}
    for headers in ({}, both):
        answer = scene.owner.http.request(method, path, headers={"Authorization": ""} | headers)
        conforms(answer)
        assert answer.status_code == 401


@pytest.mark.parametrize("operation", WITH_BODY)
def test_every_body_is_judged(scene: Scene, operation: str) -> None:
    """A body that is not a JSON object is 400, and one that is too large is 413, as documented."""
    answer = scene.send(operation, content=b"[1]")
    if find(operation)[2]["tags"] == ["authzen"]:
        # Its standard defines other error bodies.
        conforms(answer)
        assert answer.status_code == 400
    else:
        assert list(complaints(answer)) == ["body"]
    # Policies may be larger than other bodies.
    assert scene.send(operation, content=b" " * 1_100_000).status_code == 413


@pytest.mark.parametrize("operation", WITH_ID)
def test_nothing_is_found_under_a_strange_id(scene: Scene, operation: str) -> None:
    """An operation that documents 404 returns it for an unknown id."""
    stranger = "01890000-0000-7000-8000-000000000000"
    body = scene.example(operation)
    if body is not None and "agent_id" in body:
        body["agent_id"] = stranger
    answer = scene.send(operation, lambda _: stranger, json=body)
    conforms(answer)
    assert answer.status_code == 404


def test_the_plan_limit_is_announced(free_gateway: LiveGateway, frugal: Owner) -> None:
    """The 403 for an agent beyond the plan's limit has the documented object."""
    for expected in (201, 201, 403):
        answer = frugal.http.post("/api/agents", json={"name": "n"})
        conforms(answer)
        assert answer.status_code == expected
    assert "PlanLimitProblem" in document()["components"]["schemas"]


def test_the_rate_limit_is_announced(free_gateway: LiveGateway, frugal: Owner) -> None:
    """The 429 of a check over the rate limit has the documented headers."""
    bot = frugal.agent()
    answers = [frugal.check(bot, "x") for _ in range(201)]
    refusal = next(answer for answer in answers if answer.status_code == 429)
    conforms(refusal)
    assert int(refusal.headers["Retry-After"]) > 0
