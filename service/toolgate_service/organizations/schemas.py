"""Request and response bodies of the routes of organizations."""

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, WithJsonSchema

from toolgate_service.core.schemas import NETWORKS, Body, Name, example
from toolgate_service.organizations.ip_allowlist import normalize_networks


class OrganizationView(BaseModel):
    """Organization in API responses. `api_key` is shown in full to admins and masked for other users."""

    id: str
    name: str
    slug: str
    plan: str
    api_key: str
    is_active: bool
    created_at: datetime


class KeylessOrganizationView(BaseModel):
    """Organization without its API key, as it is sent in webhook events."""

    id: str
    name: str
    slug: str
    plan: str
    is_active: bool
    created_at: datetime


class OrganizationChange(Body):
    """Request body of PUT /api/organization."""

    model_config = example(name="Acme")

    name: Name


class AllowedNetworks(BaseModel):
    """Networks from which clients may use the organization's API keys. An empty list allows every address."""

    networks: list[str]


class AllowedNetworksChange(Body):
    """Request body of PUT /api/organization/allowed-networks."""

    model_config = example(networks=["127.0.0.0/8", "2001:db8::/32"])

    networks: Annotated[list[str], AfterValidator(normalize_networks), WithJsonSchema(NETWORKS)]


class KeyView(BaseModel):
    """API key of an organization. `id`, `name` and `created_at` describe the organization, not the key."""

    id: str
    name: str
    api_key: str
    created_at: datetime
