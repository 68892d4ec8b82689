"""What an organization looks like on the wire (spec §2)."""

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, WithJsonSchema

from toolgate_service.organizations.networks import canonical
from toolgate_service.web.bodies import Body, example
from toolgate_service.web.field_schemas import NETWORKS
from toolgate_service.web.fields import Name


class OrganizationView(BaseModel):
    """An organization. `api_key` is whole for admins, masked for others."""

    id: str
    name: str
    slug: str
    plan: str
    api_key: str
    is_active: bool
    created_at: datetime


class KeylessOrganizationView(BaseModel):
    """An organization as events show it: without its key."""

    id: str
    name: str
    slug: str
    plan: str
    is_active: bool
    created_at: datetime


class OrganizationChange(Body):
    """PUT /api/organization."""

    model_config = example(name="Acme")

    name: Name


class AllowedNetworks(BaseModel):
    """Where an organization's API keys work; without networks, everywhere."""

    networks: list[str]


class AllowedNetworksChange(Body):
    """PUT /api/organization/allowed-networks."""

    model_config = example(networks=["127.0.0.0/8", "2001:db8::/32"])

    networks: Annotated[list[str], AfterValidator(canonical), WithJsonSchema(NETWORKS)]


class KeyView(BaseModel):
    """An organization's key: what a regeneration answers. `id`, `name` and `created_at` are the organization's."""

    id: str
    name: str
    api_key: str
    created_at: datetime
