"""Request and response bodies of organizations."""

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, WithJsonSchema

from toolgate_service.core.schemas import NETWORKS, Body, Name, example
from toolgate_service.organizations.ip_allowlist import normalize_networks


class OrganizationView(BaseModel):
    """Organization. `api_key` is shown in full to admins and masked for others."""

    id: str
    name: str
    slug: str
    plan: str
    api_key: str
    is_active: bool
    created_at: datetime


class KeylessOrganizationView(BaseModel):
    """Organization without its API key, for webhook events."""

    id: str
    name: str
    slug: str
    plan: str
    is_active: bool
    created_at: datetime


class OrganizationChange(Body):
    """Body of PUT /api/organization."""

    model_config = example(name="Acme")

    name: Name


class AllowedNetworks(BaseModel):
    """Networks from which the organization's API keys may be used; an empty list allows every address."""

    networks: list[str]


class AllowedNetworksChange(Body):
    """Body of PUT /api/organization/allowed-networks."""

    model_config = example(networks=["127.0.0.0/8", "2001:db8::/32"])

    networks: Annotated[list[str], AfterValidator(normalize_networks), WithJsonSchema(NETWORKS)]


class KeyView(BaseModel):
    """API key of the organization. `id`, `name` and `created_at` are the organization's."""

    id: str
    name: str
    api_key: str
    created_at: datetime
