"""Scratch organizations in which the guarantees are tested, with their users and agents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from toolgate_cli.verify.client import Answer, ApiClient, Call, UnexpectedResponse

SCRATCH_PATH: Final = "/api/operator/scratch-organizations"
ADMINS: Final = 4
MEMBERS: Final = 3
#: members whose role a test may change
SPARES: Final = 5
#: roles of the users of the main organization
ROLES: Final = ("admin",) * ADMINS + ("member",) * (MEMBERS + SPARES) + ("viewer",)
OTHER_ROLES: Final = ("admin", "admin", "member")


@dataclass(frozen=True, slots=True)
class User:
    """User of a scratch organization."""

    api: ApiClient = field(repr=False)
    id: str
    email: str
    role: str
    token: str = field(repr=False)

    @property
    def credential(self) -> Mapping[str, str]:
        """Headers that authenticate the user."""
        return {"Authorization": f"Bearer {self.token}"}

    async def send(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, replica: int | None = None
    ) -> Answer:
        """Send a request and return the response, even with an error status."""
        return await self.api.send(Call(method, path, body, self.credential, replica=replica))

    async def get(self, path: str) -> Any:
        """Return the JSON of a GET request.

        Raises:
            UnexpectedResponse: the status is an error.
        """
        return expect(await self.send("GET", path), path)

    async def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a POST request and return the JSON of the response; errors are those of `get`."""
        return expect(await self.send("POST", path, body), path)

    async def put(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send a PUT request and return the JSON of the response; errors are those of `get`."""
        return expect(await self.send("PUT", path, body), path)

    async def delete(self, path: str) -> None:
        """Send a DELETE request; errors are those of `get`."""
        expect(await self.send("DELETE", path), path)


def expect(answer: Answer, path: str) -> Any:
    """Return the JSON of a successful response.

    Raises:
        UnexpectedResponse: the status is an error.
    """
    if not answer.is_success:
        raise UnexpectedResponse(f"{path}: status {answer.status}, {answer.text[:300]}")
    return answer.json()


@dataclass(slots=True)
class Organization:
    """Scratch organization.

    Attributes:
        key: API key of the production environment.
        test_key: API key of the test environment.
        spares: members whose role a test may change; a test removes the member that it uses.
    """

    id: str
    name: str
    expires_at: str
    users: Sequence[User]
    key: str = field(default="", repr=False)
    test_key: str = field(default="", repr=False)
    spares: list[User] = field(default_factory=list)

    def with_role(self, role: str) -> list[User]:
        """Return the users who had this role at the beginning, without the spares."""
        found = [user for user in self.users if user.role == role]
        return found[:MEMBERS] if role == "member" else found


async def create_organization(
    api: ApiClient, operator: Mapping[str, str], seconds: int, roles: Sequence[str]
) -> Organization:
    """Create a scratch organization whose users have the given roles.

    Raises:
        UnexpectedResponse: the gateway refuses to create it.
    """
    body = {"expires_in_seconds": seconds, "users": list(roles)}
    created = expect(await api.send(Call("POST", SCRATCH_PATH, body, operator)), SCRATCH_PATH)
    users = [User(api, one["id"], one["email"], one["role"], one["access_token"]) for one in created["users"]]
    spares = [user for user in users if user.role == "member"][MEMBERS:]
    return Organization(created["id"], created["name"], created["expires_at"], users, spares=spares)


async def read_keys(organization: Organization) -> None:
    """Read the API keys of an organization."""
    owner = organization.users[0]
    organization.key = (await owner.get("/api/organization"))["api_key"]
    organization.test_key = (await owner.get("/api/organization/test-key"))["api_key"]


async def delete_organization(api: ApiClient, operator: Mapping[str, str], organization_id: str) -> Answer:
    """Delete a scratch organization and return the response."""
    return await api.send(Call("DELETE", f"{SCRATCH_PATH}/{organization_id}", None, operator))
