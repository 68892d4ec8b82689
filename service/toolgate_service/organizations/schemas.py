"""What an organization looks like on the wire (spec §2)."""

from datetime import datetime

from pydantic import BaseModel

from toolgate_service.web.bodies import Body, example
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


class KeyView(BaseModel):
    """An organization's key: what a regeneration answers. `id`, `name` and `created_at` are the organization's."""

    id: str
    name: str
    api_key: str
    created_at: datetime
