"""Every change of the management surface against every kind of caller (decisions §9)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from support.gateway import PASSWORD, LiveGateway, Owner
from support.insight import set_active
from support.shapes import refused
from support.team import Colleague, client

from toolgate_service.api.app import _fastapi_app
from toolgate_service.core.settings import Settings
from toolgate_service.gateway import Gateway

#: what it takes: `change` any user but a viewer, `full` also a full login, `admin` also an admin
RIGHTS = {
    ("POST", "/api/agents"): "change",
    ("PUT", "/api/agents/x"): "change",
    ("DELETE", "/api/agents/x"): "change",
    ("POST", "/api/freeze"): "change",
    ("POST", "/api/rules"): "admin",
    ("PUT", "/api/rules/x"): "admin",
    ("DELETE", "/api/rules/x"): "admin",
    ("POST", "/api/budgets"): "admin",
    ("PUT", "/api/budgets/x"): "admin",
    ("DELETE", "/api/budgets/x"): "admin",
    ("POST", "/api/policy/apply"): "admin",
    ("PUT", "/api/policy/shadow"): "admin",
    ("DELETE", "/api/policy/shadow"): "admin",
    ("POST", "/api/policy/shadow/promote"): "admin",
    ("POST", "/api/policy/revisions/1/restore"): "admin",
    ("DELETE", "/api/agents/x/permissions/y"): "full",
    ("DELETE", "/api/permissions/y"): "full",
    ("POST", "/api/approvals/z/approve"): "full",
    ("POST", "/api/approvals/z/deny"): "full",
    ("POST", "/api/approvals/z/reject"): "full",
    ("POST", "/api/grants/x/revoke"): "full",
    ("POST", "/api/agents/x/permissions"): "admin",
    ("PUT", "/api/permissions/y"): "admin",
    ("POST", "/api/agents/x/keys"): "admin",
    ("DELETE", "/api/agents/x/keys/y"): "admin",
    ("PUT", "/api/organization"): "admin",
    ("PUT", "/api/organization/allowed-networks"): "admin",
    ("POST", "/api/organization/regenerate-key"): "admin",
    ("POST", "/api/organization/test-key/regenerate"): "admin",
    ("POST", "/api/team/invitations"): "admin",
    ("DELETE", "/api/team/invitations/x"): "admin",
    ("PUT", "/api/team/x"): "admin",
    ("POST", "/api/webhooks"): "admin",
    ("PUT", "/api/webhooks/x"): "admin",
    ("DELETE", "/api/webhooks/x"): "admin",
    ("POST", "/api/webhooks/x/test"): "admin",
    ("POST", "/api/webhooks/x/rotate-secret"): "admin",
    ("POST", "/api/webhooks/x/deliveries/y/retry"): "admin",
    ("DELETE", "/api/team/x"): "admin",
    ("POST", "/api/freeze/x/lift"): "admin",
}
#: routes that only read, and whose body is too large for a query
READING_POSTS = {"/api/policy/plan", "/api/policy/evaluate", "/api/policy/replay"}
READS = (
    "/auth/me",
    "/api/agents",
    "/api/approvals",
    "/api/audit",
    "/api/billing/plan",
    "/api/billing/usage",
    "/api/billing/invoices",
    "/api/decisions",
    "/api/freeze",
    "/api/grants",
    "/api/logs",
    "/api/organization",
    "/api/policy",
    "/api/policy/revisions",
    "/api/policy/suggestions",
    "/api/rules",
    "/api/budgets",
    "/api/budgets/reservations",
    "/api/organization/allowed-networks",
    "/api/organization/test-key",
    "/api/team",
    "/api/webhooks",
)
ROUTES = pytest.mark.parametrize(
    ("method", "path", "right"),
    [(method, path, right) for (method, path), right in RIGHTS.items()],
    ids=[f"{method}-{path}" for method, path in RIGHTS],
)

VIEWER = "Your role is 'viewer', which may only read; ask an admin"
MEMBER = "Your role is 'member'; only an admin may do that"
CLI = "The scope of this token is 'cli', which does not permit this operation; log in with the scope 'full'"


class Callers(NamedTuple):
    """One of each kind."""

    admin: httpx.Client
    member: httpx.Client
    viewer: httpx.Client
    cli: httpx.Client
    inactive: httpx.Client


@pytest.fixture(scope="module")
def callers(gateway: LiveGateway) -> Iterator[Callers]:
    """Users of every role, an admin's `cli` token, and the admin of an inactive organization."""
    with (
        Owner(gateway.url) as owner,
        Colleague(owner, "member") as member,
        Colleague(owner, "viewer") as viewer,
        Owner(gateway.url, organization="Asleep") as asleep,
    ):
        body = {"email": owner.email, "password": PASSWORD, "scope": "cli"}
        token = owner.http.post("/auth/login", json=body).json()["access_token"]
        set_active(gateway, asleep, active=False)
        with client(gateway.url, token) as cli:
            yield Callers(owner.http, member.http, viewer.http, cli, asleep.http)


def let_through(answer: httpx.Response) -> None:
    """Assert that whatever is wrong with a request, it is not who asks."""
    assert answer.status_code in {200, 400, 404}, answer.text


@ROUTES
def test_a_change_takes_its_right(callers: Callers, method: str, path: str, right: str) -> None:
    """Each kind of caller is let through, or gets the 403 that says why not, before anything else is looked at."""
    let_through(callers.admin.request(method, path))
    refused(callers.viewer.request(method, path), 403, VIEWER)
    refused(callers.inactive.request(method, path), 403, "Organization is not active")
    as_member, as_cli = callers.member.request(method, path), callers.cli.request(method, path)
    if right == "admin":
        refused(as_member, 403, MEMBER)
    else:
        let_through(as_member)
    if right == "change":
        let_through(as_cli)
    else:
        refused(as_cli, 403, CLI)


@pytest.mark.parametrize("path", READS)
def test_everybody_reads(callers: Callers, path: str) -> None:
    """Every role, a `cli` token and an inactive organization's users read (decisions §9)."""
    assert [caller.get(path).status_code for caller in callers] == [200] * len(callers)


@pytest.mark.parametrize("path", ["/api/organization", "/api/organization/test-key"])
def test_only_a_fully_logged_in_admin_sees_keys(callers: Callers, path: str) -> None:
    """Members, viewers and an admin's `cli` token see the last four characters."""
    shown = callers.admin.get(path).json()["api_key"]
    assert len(shown) == 40
    for other in (callers.member, callers.viewer, callers.cli):
        assert other.get(path).json()["api_key"] in {f"ak_…{shown[-4:]}", f"test_…{shown[-4:]}"}


def _routes(app: Any) -> Iterator[Any]:
    for route in app.routes:
        # Newer FastAPIs keep a router that was included whole.
        included = getattr(route, "original_router", None)
        yield from _routes(included) if included is not None else [route]


def _proofs(dependant: Any) -> set[str]:
    found: set[str] = set()
    for inner in dependant.dependencies:
        found |= {inner.call.__name__} | _proofs(inner)
    return found


def test_no_route_forgets_to_ask_who_calls(tmp_path: Path) -> None:
    """Whatever routes there are, /api/* wants a user, and to change anything one who may."""
    settings = Settings(database_url=f"sqlite:///{tmp_path}/x.db", secret="long enough a secret")  # type: ignore[arg-type]  # read as text
    found = [route for route in _routes(_fastapi_app(Gateway(settings))) if route.path.startswith("/api/")]
    assert len(found) > len(RIGHTS)
    for route in found:
        reads = route.methods <= {"GET", "HEAD"} or route.path in READING_POSTS
        wanted = "authenticate_token" if reads else "changing"
        assert wanted in _proofs(route.dependant), f"{route.methods} {route.path}"
