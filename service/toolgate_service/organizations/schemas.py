"""Request and response bodies of the routes of organizations."""

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, WithJsonSchema

from toolgate_service.core.schemas import (
    EXAMPLE_ID,
    EXAMPLE_TIME,
    NAME_RULE,
    NETWORKS,
    Body,
    CreatedAt,
    Name,
    ResourceId,
    example,
)
from toolgate_service.organizations.ip_allowlist import normalize_networks


class OrganizationView(BaseModel):
    """Organization in API responses."""

    model_config = example(
        id=EXAMPLE_ID,
        name="Acme",
        slug="acme",
        plan="pro",
        api_key="ak_…x7q2",
        is_active=True,
        created_at=EXAMPLE_TIME,
    )

    id: ResourceId
    name: str = Field(description="Name of the organization.")
    slug: str = Field(description="Unique short name, created from the name at registration.")
    plan: str = Field(description="Plan: `free`, `pro`, `business` or `enterprise`.")
    api_key: str = Field(
        description="Production API key: in full for admins, masked (`ak_…` and the last four characters) for others."
    )
    is_active: bool = Field(
        description="False if the organization is deactivated; its API keys are then rejected."
    )
    created_at: CreatedAt


class KeylessOrganizationView(BaseModel):
    """Organization without its API key, as it is sent in webhook events."""

    id: ResourceId
    name: str = Field(description="Name of the organization.")
    slug: str = Field(description="Unique short name, created from the name at registration.")
    plan: str = Field(description="Plan: `free`, `pro`, `business` or `enterprise`.")
    is_active: bool = Field(
        description="False if the organization is deactivated; its API keys are then rejected."
    )
    created_at: CreatedAt


class OrganizationChange(Body):
    """Request body of PUT /api/organization."""

    model_config = example(name="Acme")

    name: Name = Field(description=f"New name of the organization: {NAME_RULE}.")


class AllowedNetworks(BaseModel):
    """Networks from which clients may use the organization's API keys."""

    model_config = example(networks=["203.0.113.0/24"])

    networks: list[str] = Field(
        description="IPv4 and IPv6 networks in CIDR notation. An empty list allows every address."
    )


class AllowedNetworksChange(Body):
    """Request body of PUT /api/organization/allowed-networks."""

    model_config = example(networks=["127.0.0.0/8", "2001:db8::/32"])

    networks: Annotated[list[str], AfterValidator(normalize_networks), WithJsonSchema(NETWORKS)] = Field(
        description="At most 100 IPv4 and IPv6 addresses or networks in CIDR notation. An empty list allows every "
        "address."
    )


class KeyView(BaseModel):
    """API key of an organization. `id`, `name` and `created_at` describe the organization, not the key."""

    model_config = example(id=EXAMPLE_ID, name="Acme", api_key=f"ak_{'x' * 37}", created_at=EXAMPLE_TIME)

    id: str = Field(description="Id of the organization, a UUID.")
    name: str = Field(description="Name of the organization.")
    api_key: str = Field(
        description="The API key: in full for admins, masked for other users. `ak_…` is valid for the production "
        "environment, `test_…` for the test environment."
    )
    created_at: datetime = Field(
        description="Time at which the organization was created (UTC, ISO 8601 with microseconds)."
    )
