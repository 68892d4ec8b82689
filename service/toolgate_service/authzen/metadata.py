"""Metadata of the AuthZEN API: the document at `/.well-known/authzen-configuration`."""

from pydantic import BaseModel, Field

from toolgate_service.core.schemas import example

WELL_KNOWN = "/.well-known/authzen-configuration"
EVALUATION = "/access/v1/evaluation"
EVALUATIONS = "/access/v1/evaluations"
SEARCH_SUBJECT = "/access/v1/search/subject"
SEARCH_RESOURCE = "/access/v1/search/resource"
SEARCH_ACTION = "/access/v1/search/action"
ACCESS_REQUESTS = "/access/v1/requests"
JWKS = "/access/v1/jwks"
#: capabilities of the gateway: the Access Request and Approval Profile, and the implemented draft of this profile
CAPABILITIES = (
    "urn:openid:authzen:capability:access-request",
    "urn:toolgate:authzen:access-request:draft-1",
)

_EXAMPLE = "https://toolgate.example.com"


class AuthzenConfiguration(BaseModel):
    """Metadata of the gateway as an AuthZEN policy decision point."""

    model_config = example(
        policy_decision_point=_EXAMPLE,
        access_evaluation_endpoint=f"{_EXAMPLE}{EVALUATION}",
        access_evaluations_endpoint=f"{_EXAMPLE}{EVALUATIONS}",
        search_subject_endpoint=f"{_EXAMPLE}{SEARCH_SUBJECT}",
        search_resource_endpoint=f"{_EXAMPLE}{SEARCH_RESOURCE}",
        search_action_endpoint=f"{_EXAMPLE}{SEARCH_ACTION}",
        access_request_endpoint=f"{_EXAMPLE}{ACCESS_REQUESTS}",
        jwks_uri=f"{_EXAMPLE}{JWKS}",
        capabilities=list(CAPABILITIES),
    )

    policy_decision_point: str = Field(
        description="URL of the gateway: `TOOLGATE_PUBLIC_URL`, or the URL of the request if this setting is not set."
    )
    access_evaluation_endpoint: str = Field(description="URL of access evaluations.")
    access_evaluations_endpoint: str = Field(description="URL of several access evaluations in one request.")
    search_subject_endpoint: str = Field(description="URL of searches for subjects.")
    search_resource_endpoint: str = Field(description="URL of searches for resources.")
    search_action_endpoint: str = Field(description="URL of searches for actions.")
    access_request_endpoint: str = Field(description="URL of access requests.")
    jwks_uri: str = Field(description="URL of the public keys that verify the values signed by the gateway.")
    capabilities: list[str] = Field(description="URNs of the profiles that the gateway supports.")


def build_metadata(base_url: str) -> AuthzenConfiguration:
    """Return the metadata of the gateway with this URL, which must not end with a slash."""
    return AuthzenConfiguration(
        policy_decision_point=base_url,
        access_evaluation_endpoint=base_url + EVALUATION,
        access_evaluations_endpoint=base_url + EVALUATIONS,
        search_subject_endpoint=base_url + SEARCH_SUBJECT,
        search_resource_endpoint=base_url + SEARCH_RESOURCE,
        search_action_endpoint=base_url + SEARCH_ACTION,
        access_request_endpoint=base_url + ACCESS_REQUESTS,
        jwks_uri=base_url + JWKS,
        capabilities=list(CAPABILITIES),
    )
