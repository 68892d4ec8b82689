"""Every way into the console, as everybody who must not get anywhere there."""

import pytest
from support.console import Reader
from support.gateway import LiveGateway, Owner
from support.insight import set_active
from support.team import Colleague, invite

from toolgate_service.console.application import ENTRANCE, ROUTES

#: one's own password, which everybody may change (docs: an inactive organization's people too)
OWN = "/console/settings/account/password"
INNER = [route for route in ROUTES if route not in ENTRANCE]
PAGES = [route.path for route in INNER if "GET" in (route.methods or ())]
FORMS = [route.path for route in INNER if "POST" in (route.methods or ())]
#: show a key, and change nothing
SHOWING = [path for path in FORMS if path.endswith("keys/show")]
CHANGING = [path for path in FORMS if path not in {OWN, *SHOWING}]
#: the organization's, whatever environment is looked at
SHARED = ("/console/settings/team", "/console/settings/slack/links")
#: what forms may have to say
FIELDS = {"digest": "0" * 64, "role": "member", "newest": "", "status": "off"}


@pytest.fixture(scope="module")
def things(acme: Owner) -> dict[str, str]:
    """A thing of each kind, of the module's organization."""
    agent = acme.agent("walked")
    permission = acme.permit(agent, "walk.held", requires_approval=True)
    granted, approval = (acme.check(agent, "walk.held", {"n": n}).json()["approval_id"] for n in (1, 2))
    body = {"grant": {"uses": 5, "seconds": 3600}}
    assert acme.http.post(f"/api/approvals/{granted}/approve", json=body).status_code == 200
    entry = acme.log(agent, "walk.held").json()["id"]
    [grant] = acme.http.get("/api/grants").json()
    key = acme.http.post(f"/api/agents/{agent}/keys").json()
    webhook = acme.http.post("/api/webhooks", json={"url": "https://example.com/walked"}).json()
    delivery = acme.http.post(f"/api/webhooks/{webhook['id']}/test").json()
    with Colleague(acme) as colleague:
        return {
            "approval_id": approval,
            "grant_id": grant["id"],
            "agent_id": agent,
            "permission_id": permission,
            "entry_id": entry,
            "key_id": key["id"],
            "webhook_id": webhook["id"],
            "delivery_id": delivery["id"],
            "user_id": colleague.id,
            "invitation_id": invite(acme).json()["id"],
            # None of that id: linking takes a Slack.
            "link_id": grant["id"],
        }


def filled(path: str, things: dict[str, str]) -> str:
    for name, value in things.items():
        path = path.replace(f"{{{name}}}", value)
    assert "{" not in path, f"say in `things` what {path} speaks of"
    return path


@pytest.mark.parametrize("path", PAGES)
def test_nobody_reads_without_signing_in(stranger: Reader, things: dict[str, str], path: str) -> None:
    """Every page leads to the form instead; our own script is told 401."""
    answer = stranger.get(filled(path, things))
    assert answer.status_code == 303
    assert answer.headers["Location"].startswith("/console/sign-in")
    assert stranger.get(filled(path, things), **{"X-Toolgate-Part": "1"}).status_code == 401


@pytest.mark.parametrize("path", FORMS)
def test_nobody_changes_anything_without_signing_in(
    stranger: Reader, things: dict[str, str], path: str
) -> None:
    """Every form leads to signing in, and does nothing."""
    answer = stranger.submit(filled(path, things), token="x")
    assert answer.status_code == 303
    assert answer.headers["Location"].startswith("/console/sign-in")


@pytest.mark.parametrize("path", [path for path in FORMS if path != OWN])
def test_a_viewer_changes_nothing(viewer: Reader, things: dict[str, str], path: str) -> None:
    """A viewer's rights are the API's: 403 in its words, by a page and for our script."""
    for part in (False, True):
        answer = viewer.submit(filled(path, things), part=part, token=viewer.token(), **FIELDS)
        assert answer.status_code == 403
        assert "which may only read" in answer.text


@pytest.mark.parametrize("path", [path for path in PAGES if not path.endswith("/events")])
def test_a_viewer_reads(viewer: Reader, things: dict[str, str], path: str) -> None:
    """A viewer sees every page, and no button on it that changes anything but the own session and password."""
    page = viewer.page(filled(path, things))
    own = ('action="/console/sign-out"', f'action="{OWN}"')
    assert page.count('method="post"') == sum(map(page.count, own))


@pytest.mark.parametrize("path", [path for path in PAGES + FORMS if "{" in path])
@pytest.mark.parametrize("environment", ["production", "test"])
def test_others_things_are_not_there(
    rival: Owner, things: dict[str, str], path: str, environment: str
) -> None:
    """Another organization's admin finds nothing, and learns nothing."""
    with Reader.of(rival.url, rival.email) as reader:
        way = f"{filled(path, things)}?environment={environment}"
        fields = {"token": reader.token()} | FIELDS
        answer = reader.submit(way, **fields) if path in FORMS else reader.get(way)
        assert answer.status_code == 404
        assert "walked" not in answer.text


@pytest.mark.parametrize(
    "path", [path for path in PAGES + FORMS if "{" in path and not path.startswith(SHARED)]
)
def test_the_other_environment_has_its_own(maya: Reader, things: dict[str, str], path: str) -> None:
    """What is production's is not found in test."""
    way = f"{filled(path, things)}?environment=test"
    answer = maya.submit(way, token=maya.token(), **FIELDS) if path in FORMS else maya.get(way)
    assert answer.status_code == 404


def test_a_refusal_leads_back_within_its_environment(maya: Reader) -> None:
    """Whoever looked at test is not led to production unasked."""
    for query, way in (("?environment=test", "?environment=test"), ("", "")):
        answer = maya.get(f"/console/agents/nobody{query}")
        assert (answer.status_code, f'href="/console/approvals{way}"' in answer.text) == (404, True)


@pytest.mark.parametrize("path", CHANGING)
def test_an_inactive_organization_changes_nothing(
    gateway: LiveGateway, acme: Owner, maya: Reader, things: dict[str, str], path: str
) -> None:
    """It may read, nothing else (decisions §9)."""
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
    """Seeing a key changes nothing."""
    token = maya.token()
    set_active(gateway, acme, active=False)
    try:
        assert maya.submit(filled(path, things), token=token).status_code == 200
    finally:
        set_active(gateway, acme, active=True)


@pytest.mark.parametrize("environment", ["staging", "", "%00", "<script>"])
def test_there_are_two_environments(maya: Reader, environment: str) -> None:
    """Another one is refused in words."""
    answer = maya.get(f"/console/approvals?environment={environment}")
    assert answer.status_code == 400
    assert "<script>" not in answer.text
