"""Colleagues: invited, joined, and talking to the gateway over HTTP, each from an address of its own if need be."""

import time
from typing import Any, Self

import httpx

from support.gateway import PASSWORD, LiveGateway, Owner
from support.tables import rows

TOO_LATE = "2020-01-01T00:00:00.000000Z"


def fresh_email(name: str = "colleague") -> str:
    """Return an e-mail address that nobody has."""
    return f"{name}-{time.time_ns()}@example.test"


def client(url: str, token: str | None = None, *, address: str | None = None) -> httpx.Client:
    """Return a client, with a token if there is one, calling from an address of this machine."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    transport = httpx.HTTPTransport(local_address=address)
    return httpx.Client(base_url=url, timeout=30, headers=headers, transport=transport)


def invite(owner: Owner, email: str | None = None, role: str = "member") -> httpx.Response:
    """Invite somebody."""
    return owner.http.post("/api/team/invitations", json={"email": email or fresh_email(), "role": role})


def token_of(invitation: httpx.Response) -> str:
    """Return the token of an invitation's link."""
    assert invitation.status_code == 201, invitation.text
    link: str = invitation.json()["link"]
    return link.partition("#token=")[2]


def accept(url: str, token: str, password: str = PASSWORD) -> httpx.Response:
    """Accept an invitation."""
    return httpx.post(
        f"{url}/auth/accept-invitation", json={"token": token, "password": password}, timeout=30
    )


class Colleague:
    """A user who joined by invitation."""

    def __init__(self, owner: Owner, role: str = "member") -> None:
        self.url = owner.url
        self.email = fresh_email(role)
        answer = accept(owner.url, token_of(invite(owner, self.email, role)))
        assert answer.status_code == 200, answer.text
        self.user: dict[str, Any] = answer.json()["user"]
        self.id: str = self.user["id"]
        self.token: str = answer.json()["access_token"]
        self.http = client(owner.url, self.token)

    def login(self, **fields: object) -> httpx.Response:
        """Log in."""
        body = {"email": self.email, "password": PASSWORD} | fields
        return httpx.post(f"{self.url}/auth/login", json=body, timeout=30)

    def close(self) -> None:
        """Hang up."""
        self.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def audited(gateway: LiveGateway, resource_id: str) -> list[tuple[str, str]]:
    """Return what happened to something, and by whose hand, in order."""
    query = "SELECT kind, user_id FROM audit_entries WHERE resource_id = ? ORDER BY created_at, id"
    return [(kind, user_id) for kind, user_id in rows(gateway, query, resource_id)]
