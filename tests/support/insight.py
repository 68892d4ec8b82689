"""Looking into a live gateway's database, and changing what no endpoint changes."""

from support.gateway import SECRET, LiveGateway, Owner
from support.tables import execute, rows
from toolgate_service.core.crypto import Vault

__all__ = ["execute", "key_to_test", "move_into", "rows", "set_active", "set_role", "vault"]


def vault() -> Vault:
    """Return the vault of a gateway that has the tests' secret."""
    return Vault(SECRET.encode())


def key_to_test(gateway: LiveGateway, owner: Owner) -> str:
    """Return an organization's key to its test environment, unsealed from the database."""
    query = (
        "SELECT id, ciphertext FROM api_keys "
        "WHERE organization_id = ? AND environment = 'test' AND revoked_at IS NULL"
    )
    organization = owner.user["organization_id"]
    [(row, sealed)] = rows(gateway, query, organization)
    key = vault().open(sealed, table="ApiKey", row=row, organization=organization)
    assert key is not None
    return key


def set_role(gateway: LiveGateway, owner: Owner, role: str) -> None:
    """Give a user another role."""
    assert execute(gateway, "UPDATE users SET role = ? WHERE id = ?", role, owner.user["id"]) == 1


def set_plan(gateway: LiveGateway, owner: Owner, plan: str) -> None:
    """Change an organization's plan."""
    organization = owner.user["organization_id"]
    assert execute(gateway, "UPDATE organizations SET plan = ? WHERE id = ?", plan, organization) == 1


def set_active(gateway: LiveGateway, owner: Owner, *, active: bool) -> None:
    """Switch an organization off or on, as a failed payment would."""
    organization = owner.user["organization_id"]
    assert execute(gateway, "UPDATE organizations SET is_active = ? WHERE id = ?", active, organization) == 1


def move_into(gateway: LiveGateway, user: Owner, owner: Owner) -> None:
    """Make a user of one organization a user of another's, as an invitation would."""
    values = (owner.user["organization_id"], user.user["id"])
    for statement in (
        "UPDATE users SET organization_id = ? WHERE id = ?",
        "UPDATE sessions SET organization_id = ? WHERE user_id = ?",
    ):
        # What the user did in the old organization stays there.
        execute(gateway, statement, *values, constrained=False)
