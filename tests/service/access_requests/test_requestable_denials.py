"""Requestable denials of access evaluations, and the metadata of the profile."""

from datetime import datetime, timedelta
from typing import Any

import httpx
import jwt
from support.arap import CAPABILITY
from support.authzen import Pep
from support.gateway import Owner
from support.requester import REFUND, Requester


def denial(pep: Requester, access: dict[str, Any] = REFUND) -> dict[str, Any]:
    decision = pep.evaluate(access)
    assert decision["decision"] is False
    context: dict[str, Any] = decision["context"]
    return context


def claims(pep: Requester, token: str) -> dict[str, Any]:
    """Return the claims of a token, verified with a key of the JWK Set."""
    keys = jwt.PyJWKSet.from_dict(pep.http.get(pep.metadata["jwks_uri"]).json())
    kid = jwt.get_unverified_header(token)["kid"]
    base = pep.metadata["policy_decision_point"]
    found: dict[str, Any] = jwt.decode(token, keys[kid].key, algorithms=["EdDSA"], audience=base, issuer=base)
    return found


def test_metadata_must_contain_the_endpoint_the_keys_and_the_capability(pep: Requester) -> None:
    base = pep.metadata["policy_decision_point"]
    assert pep.metadata["access_request_endpoint"] == f"{base}/access/v1/requests"
    assert pep.metadata["jwks_uri"] == f"{base}/access/v1/jwks"
    assert pep.metadata["capabilities"] == [CAPABILITY, "urn:toolgate:authzen:access-request:draft-1"]


def test_key_set_contains_signing_keys_with_ids(pep: Requester, anyone: httpx.Client) -> None:
    answer = anyone.get("/access/v1/jwks")
    assert answer.headers["Cache-Control"] == "max-age=300"
    [key] = answer.json()["keys"]
    assert (key["kty"], key["crv"], key["use"], key["alg"]) == ("OKP", "Ed25519", "sig", "EdDSA")
    assert key.keys() == {"kty", "crv", "x", "kid", "use", "alg"}
    assert claims(pep, denial(pep)["access_request"]["binding_token"])


def test_held_evaluation_stays_a_denial_with_an_access_request(pep: Requester) -> None:
    context = denial(pep)
    assert context["reason"] == "approval_required"
    request = context["access_request"]
    assert request.keys() == {"endpoint", "expires_at", "binding_token"}
    assert request["endpoint"] == pep.metadata["access_request_endpoint"]
    evaluated, expires = (
        datetime.fromisoformat(text) for text in (context["evaluated_at"], request["expires_at"])
    )
    assert expires - evaluated == timedelta(minutes=10)


def test_binding_token_must_protect_the_evaluation_and_its_expiry(pep: Requester) -> None:
    context = denial(pep)
    found = claims(pep, context["access_request"]["binding_token"])
    assert found["evaluation_id"] == found["jti"] == context["evaluation_id"]
    assert found["denial_expires_at"] == context["access_request"]["expires_at"]
    assert found["binding_context_members"] == ["ticket"]
    assert found["exp"] - found["iat"] == 600


def test_denial_that_no_approval_lifts_must_not_be_requestable(pep: Requester) -> None:
    context = denial(pep, REFUND | {"resource": {"type": "tool", "id": "mail.send"}})
    assert context["reason"] == "no_permission"
    assert "access_request" not in context


def test_dry_run_is_not_requestable(pep: Requester) -> None:
    denial(pep)
    context = denial(pep, REFUND | {"context": {"ticket": "t-1", "toolgate": {"dry_run": True}}})
    assert "access_request" not in context


def test_evaluation_with_an_advisory_key_is_not_requestable(pep: Requester) -> None:
    denial(pep)
    with Pep(pep.owner, pep.agent, advisory=True) as advisory:
        assert "access_request" not in advisory.evaluate(REFUND)["context"]


def test_each_held_evaluation_of_several_is_requestable(pep: Requester) -> None:
    with Pep(pep.owner, pep.agent, key=pep.owner.key) as several:
        refunds = [{"action": {"name": "call", "properties": {"amount": amount}}} for amount in (1, 2)]
        subject = {"type": "agent", "id": pep.agent}
        found = several.evaluate_all(subject=subject, resource=REFUND["resource"], evaluations=refunds)
    assert len({one["context"]["access_request"]["binding_token"] for one in found}) == 2


def test_clients_without_the_profile_keep_their_approval(pep: Requester, newcomer: Owner) -> None:
    denial(pep)
    pep.decide()
    assert pep.evaluate(REFUND)["decision"] is True
    assert newcomer.http.get("/api/approvals").json()[0]["status"] == "consumed"
