"""What every rule needs: two organizations, their credentials, the clock, and a way to choose."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import ClassVar, TypeVar

import httpx
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from support.gateway import PASSWORD
from support.inside import TICK, Clock, InsideGateway
from support.machine.counts import Counts
from support.reference.facts import Tenant, read
from support.reference.world import World
from support.shapes import problem

T = TypeVar("T")

ACTIONS = ("mail.send", "pay.out", "db.drop")
#: of seven choices of a tenant, how many fall on each
WEIGHTS = (4, 1, 1, 1)

_number = count()


@dataclass(frozen=True, slots=True)
class Organization:
    """One of the two, with its admin's token and its keys by environment."""

    id: str
    user_id: str
    token: str
    keys: Mapping[str, str]
    #: ids and tokens of everybody, the one who founded it first
    people: Sequence[tuple[str, str]]


class Driver(RuleBasedStateMachine):
    """The machine without its rules. The class that is run sets the three attributes of the class."""

    gateway: ClassVar[InsideGateway]
    clock: ClassVar[Clock]
    counts: ClassVar[Counts]

    def __init__(self) -> None:
        super().__init__()
        self.clock.back_to_present()
        self.began = self.clock.now()
        self.world = World()
        # Several people decide in the first, where most things happen.
        self.organizations = {made.id: made for made in (self._register(2), self._register(0))}
        self.tenants = [Tenant(one, name) for one in self.organizations for name in ("production", "test")]
        self.counts.runs += 1

    def now(self) -> datetime:
        """Return the gateway's moment."""
        return self.clock.now()

    def tenant(self, data: st.DataObject) -> Tenant:
        """Choose a tenant: mostly the first, so that things happen to the same things."""
        weighted = [one for one, weight in zip(self.tenants, WEIGHTS, strict=True) for _ in range(weight)]
        return self.choose(data, weighted, "tenant")

    def whoever(self, data: st.DataObject, owner: Tenant) -> Tenant:
        """Choose who asks for a tenant's thing: now and then it is somebody else."""
        return self.choose(data, [owner] * 12 + [one for one in self.tenants if one != owner], "asked by")

    def choose(self, data: st.DataObject, things: Sequence[T], label: str) -> T:
        """Choose one of several things, by its place: identifiers are other ones in every run."""
        return things[data.draw(st.integers(0, len(things) - 1), label=label)]

    def manage(
        self, method: str, tenant: Tenant, path: str, body: object = None, **params: object
    ) -> httpx.Response:
        """Ask as a tenant's admin."""
        return self.manage_everywhere(
            method, tenant, path, body, **params | {"environment": tenant.environment}
        )

    def people(self, tenant: Tenant) -> list[str]:
        """Return the ids of the users of a tenant's organization, its founder first."""
        return [one for one, _ in self.organizations[tenant.organization].people]

    def managers(self, tenant: Tenant) -> list[str]:
        """Return the users who may change permissions."""
        return [one for one in self.people(tenant) if one not in self.world.viewers]

    def manage_now(
        self, method: str, tenant: Tenant, path: str, body: object = None, **params: object
    ) -> httpx.Response:
        """Ask as a tenant's admin at this very moment: what ends at the next is in a list as it is expected there."""
        self.clock.advance(-TICK)
        return self.manage(method, tenant, path, body, **params)

    def manage_as(self, method: str, person: str, tenant: Tenant, path: str, body: object) -> httpx.Response:
        """Ask as one of an organization's people, in an environment."""
        token = dict(self.organizations[tenant.organization].people)[person]
        headers = {"Authorization": f"Bearer {token}"}
        return self._send(
            method, path, json=body, headers=headers, params={"environment": tenant.environment}
        )

    def manage_everywhere(
        self,
        method: str,
        tenant: Tenant,
        path: str,
        body: object = None,
        *,
        person: str | None = None,
        **params: object,
    ) -> httpx.Response:
        """Send a request whose path is the same for both environments, as a user or as the organization's founder."""
        organization = self.organizations[tenant.organization]
        token = organization.token if person is None else dict(organization.people)[person]
        headers = {"Authorization": f"Bearer {token}"}
        return self._send(method, path, json=body, headers=headers, params=params)

    def call(
        self, method: str, tenant: Tenant, path: str, body: bytes | None = None, key: str | None = None
    ) -> httpx.Response:
        """Ask as a tenant's agent."""
        headers = {"X-API-Key": self.organizations[tenant.organization].keys[tenant.environment]}
        if key is not None:
            headers["Idempotency-Key"] = key
        return self._send(method, path, content=body, headers=headers)

    def _send(self, method: str, path: str, **request: object) -> httpx.Response:
        self.clock.advance()
        answer = self.gateway.send(method, path, **request)
        assert answer.status_code < 500, answer.text
        return answer

    def _register(self, others: int) -> Organization:
        body = {
            "email": f"machine-{next(_number)}@example.test",
            "password": PASSWORD,
            "organization_name": "Machine",
        }
        made = self._send("POST", "/auth/register", json=body).json()
        headers = {"Authorization": f"Bearer {made['access_token']}"}
        keys = {
            name: self._send("GET", f"/api/organization{path}", headers=headers).json()["api_key"]
            for name, path in (("production", ""), ("test", "/test-key"))
        }
        user = made["user"]
        people = [(user["id"], made["access_token"]), *(self._join(headers) for _ in range(others))]
        return Organization(user["organization_id"], user["id"], made["access_token"], keys, people)

    def _join(self, headers: Mapping[str, str]) -> tuple[str, str]:
        invited = {"email": f"machine-{next(_number)}@example.test", "role": "admin"}
        link = self._send("POST", "/api/team/invitations", json=invited, headers=headers).json()["link"]
        accepted = {"token": link.partition("#token=")[2], "password": PASSWORD}
        made = self._send("POST", "/auth/accept-invitation", json=accepted).json()
        return made["user"]["id"], made["access_token"]


def told(answer: httpx.Response, status: int = 200) -> object:
    """Return what an answer says, every number by its digits, once its status is the expected one."""
    assert answer.status_code == status, (answer.status_code, answer.text)
    return read(answer.content) if answer.content else None


def refused(answer: httpx.Response, status: int, detail: str) -> None:
    """Assert that an answer is this refusal."""
    assert (answer.status_code, answer.json()) == (status, problem(status, detail))
