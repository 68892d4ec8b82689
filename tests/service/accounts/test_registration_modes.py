"""`TOOLGATE_REGISTRATION`: open, by invitation, closed (decisions §7)."""

from pathlib import Path

import httpx
from support.gateway import PASSWORD, LiveGateway, Owner
from support.serving import Serving
from support.shapes import refused
from support.team import accept, fresh_email, invite, token_of

CLOSED = "This gateway accepts no new users; ask its operator for an account"


def register(url: str) -> httpx.Response:
    body = {"email": fresh_email(), "password": PASSWORD, "organization_name": "Acme"}
    return httpx.post(f"{url}/auth/register", json=body, timeout=30)


def test_by_invitation_and_closed(tmp_path: Path) -> None:
    """`invite` refuses registration and takes the invited; `closed` refuses both, and leaves logging in alone."""
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner:
        tokens = [token_of(invite(owner)) for _ in range(2)]
        email, session = owner.email, owner.token
    headers = {"Authorization": f"Bearer {session}"}
    wanted = {"email": fresh_email(), "role": "member"}
    with LiveGateway(tmp_path, env={"TOOLGATE_REGISTRATION": "invite"}) as gateway:
        answer = register(gateway.url)
        refused(
            answer,
            403,
            "Registration is by invitation only; ask an admin of your organization for an invitation",
        )
        assert accept(gateway.url, tokens[0]).status_code == 200
        url = f"{gateway.url}/api/team/invitations"
        assert httpx.post(url, json=wanted, headers=headers).status_code == 201
    with LiveGateway(tmp_path, env={"TOOLGATE_REGISTRATION": "closed"}) as gateway:
        refused(
            register(gateway.url),
            403,
            "Registration is closed on this gateway; ask its operator for an account",
        )
        refused(accept(gateway.url, tokens[1]), 403, CLOSED)
        url = f"{gateway.url}/api/team/invitations"
        refused(httpx.post(url, json=wanted, headers=headers), 403, CLOSED)
        body = {"email": email, "password": PASSWORD}
        assert httpx.post(f"{gateway.url}/auth/login", json=body, timeout=30).status_code == 200


def test_the_startup_summary_warns_only_where_strangers_can_register(tmp_path: Path) -> None:
    """The warning is printed on an address that others reach, while registration is open."""
    home = tmp_path / "home"
    home.mkdir()
    for mode, warns in (("open", True), ("invite", False), ("closed", False)):
        with Serving(home, "--host", "0.0.0.0", extra={"TOOLGATE_REGISTRATION": mode}) as gateway:
            gateway.listening()
            assert ("anyone who can reach this address can register" in gateway.summary) is warns
