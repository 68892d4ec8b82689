"""Every page and form, requested by users who must not have access."""

import pytest
from support.console import Reader
from support.decisions import decision_id
from support.gateway import LiveGateway, Owner
from support.insight import set_active
from support.team import Colleague, invite
from support.verified_log import until_sealed

from toolgate_service.console.app import PUBLIC_ROUTES, ROUTES

#: the own password, which every user may change, also in an inactive organization
OWN = "/console/settings/account/password"
INNER = [route for route in ROUTES if route not in PUBLIC_ROUTES]
PAGES = [route.path for route in INNER if "GET" in (route.methods or ())]
FORMS = [route.path for route in INNER if "POST" in (route.methods or ())]
#: forms that show a key and change nothing
SHOWING = [path for path in FORMS if path.endswith("keys/show")]
CHANGING = [path for path in FORMS if path not in {OWN, *SHOWING}]
#: paths of resources that belong to both environments
SHARED = ("/console/freezes", "/console/settings/team", "/console/settings/slack/links")
#: fields that forms require
FIELDS = {"digest": "0" * 64, "role": "member", "newest": "", "status": "off"}


@pytest.fixture(scope="module")
def things(acme: Owner) -> dict[str, str]:
    """One resource of each kind in the module's organization."""
    agent = acme.agent("walked")
    permission = acme.permit(agent, "walk.held", requires_approval=True)
    granted, approval = (acme.check(agent, "walk.held", {"n": n}).json()["approval_id"] for n in (1, 2))
    body = {"grant": {"uses": 5, "seconds": 3600}}
    assert acme.http.post(f"/api/approvals/{granted}/approve", json=body).status_code == 200
    entry = acme.log(agent, "walk.held").json()["id"]
    decision = decision_id(acme.check(agent, "walk.held", {"n": 2}))
    [grant] = acme.http.get("/api/grants").json()
    frozen = acme.http.post("/api/freeze", json={"action": "walk.frozen", "reason": "a test"}).json()
    body = {"name": "walked", "effect": "forbid", "actions": ["walk.ruled"]}
    rule = acme.http.post("/api/rules", json=body).json()
    body = {"name": "walked", "actions": ["walk.counted"], "window": "day", "limit": 5}
    budget = acme.http.post("/api/budgets", json=body).json()
    key = acme.http.post(f"/api/agents/{agent}/keys").json()
    webhook = acme.http.post("/api/webhooks", json={"url": "https://example.com/walked"}).json()
    delivery = acme.http.post(f"/api/webhooks/{webhook['id']}/test").json()
    until_sealed(acme)
    with Colleague(acme) as colleague:
        return {
            "approval_id": approval,
            "grant_id": grant["id"],
            "freeze_id": frozen["id"],
            "rule_id": rule["id"],
            "budget_id": budget["id"],
            "agent_id": agent,
            "permission_id": permission,
            "entry_id": entry,
            "decision_id": decision,
            "key_id": key["id"],
            "webhook_id": webhook["id"],
            "delivery_id": delivery["id"],
            "user_id": colleague.id,
            "invitation_id": invite(acme).json()["id"],
            # No such link: creating one needs Slack.
            "link_id": grant["id"],
        }


def filled(path: str, things: dict[str, str]) -> str:
    for name, value in things.items():
        path = path.replace(f"{{{name}}}", value)
    assert "{" not in path, f"say in `things` what {path} speaks of"
    return path


@pytest.mark.parametrize("path", PAGES)
def test_pages_need_a_session(stranger: Reader, things: dict[str, str], path: str) -> None:
    """Pages redirect to the sign-in page; scripts get 401."""
    answer = stranger.get(filled(path, things))
    assert answer.status_code == 303
    assert answer.headers["Location"].startswith("/console/sign-in")
    assert stranger.get(filled(path, things), **{"X-Toolgate-Part": "1"}).status_code == 401


@pytest.mark.parametrize("path", FORMS)
def test_forms_need_a_session(stranger: Reader, things: dict[str, str], path: str) -> None:
    answer = stranger.submit(filled(path, things), token="x")
    assert answer.status_code == 303
    assert answer.headers["Location"].startswith("/console/sign-in")


@pytest.mark.parametrize("path", [path for path in FORMS if path != OWN])
def test_a_viewer_changes_nothing(viewer: Reader, things: dict[str, str], path: str) -> None:
    """403 as from the API, for pages and scripts."""
    for part in (False, True):
        answer = viewer.submit(filled(path, things), part=part, token=viewer.token(), **FIELDS)
        assert answer.status_code == 403
        assert "which may only read" in answer.text


@pytest.mark.parametrize("path", [path for path in PAGES if not path.endswith("/events")])
def test_a_viewer_reads(viewer: Reader, things: dict[str, str], path: str) -> None:
    """Pages offer a viewer no form except sign-out and the own password."""
    page = viewer.page(filled(path, things))
    own = ('action="/console/sign-out"', f'action="{OWN}"')
    assert page.count('method="post"') == sum(map(page.count, own))


@pytest.mark.parametrize("path", [path for path in PAGES + FORMS if "{" in path])
@pytest.mark.parametrize("environment", ["production", "test"])
def test_resources_of_other_organizations_are_not_found(
    rival: Owner, things: dict[str, str], path: str, environment: str
) -> None:
    with Reader.of(rival.url, rival.email) as reader:
        way = f"{filled(path, things)}?environment={environment}"
        fields = {"token": reader.token()} | FIELDS
        answer = reader.submit(way, **fields) if path in FORMS else reader.get(way)
        assert answer.status_code == 404
        assert "walked" not in answer.text


@pytest.mark.parametrize(
    "path", [path for path in PAGES + FORMS if "{" in path and not path.startswith(SHARED)]
)
def test_resources_of_the_other_environment_are_not_found(
    maya: Reader, things: dict[str, str], path: str
) -> None:
    way = f"{filled(path, things)}?environment=test"
    answer = maya.submit(way, token=maya.token(), **FIELDS) if path in FORMS else maya.get(way)
    assert answer.status_code == 404


def test_error_pages_keep_the_environment(maya: Reader) -> None:
    for query, way in (("?environment=test", "?environment=test"), ("", "")):
        answer = maya.get(f"/console/agents/nobody{query}")
        assert (answer.status_code, f'href="/console/approvals{way}"' in answer.text) == (404, True)


@pytest.mark.parametrize("path", CHANGING)
def test_an_inactive_organization_changes_nothing(
    gateway: LiveGateway, acme: Owner, maya: Reader, things: dict[str, str], path: str
) -> None:
    """Reading is allowed."""
    token = maya.token()
    set_active(gateway, acme, active=False)
    try:
        answer = maya.submit(filled(path, things), token=token, **FIELDS)
        assert (answer.status_code, "Organization is not active" in answer.text) == (403, True)
        maya.page("/console/approvals")
    finally:
        set_active(gateway, acme, active=True)


@pytest.mark.parametrize("path", SHOWING)
def test_an_inactive_organizations_admin_sees_its_keys(
    gateway: LiveGateway, acme: Owner, maya: Reader, things: dict[str, str], path: str
) -> None:
    token = maya.token()
    set_active(gateway, acme, active=False)
    try:
        assert maya.submit(filled(path, things), token=token).status_code == 200
    finally:
        set_active(gateway, acme, active=True)


@pytest.mark.parametrize("environment", ["staging", "", "%00", "<script>"])
def test_an_unknown_environment_is_refused(maya: Reader, environment: str) -> None:
    answer = maya.get(f"/console/approvals?environment={environment}")
    assert answer.status_code == 400
    assert "<script>" not in answer.text
