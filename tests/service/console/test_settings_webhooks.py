"""Pages of webhooks and Slack."""

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from support.console import Reader, field, text_of
from support.crowd import together
from support.gateway import LiveGateway, Owner
from support.receiver import Answer, Receiver
from support.slack import SIGNING_SECRET, URL, command, signed
from support.team import Colleague
from support.waiting import until

HOOKS = "/console/settings/webhooks"
SLACK = "/console/settings/slack"
SECRET = re.compile(r"whsec_[\w+/=]+")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway whose webhooks may reach this machine."""
    env = {
        "TOOLGATE_WEBHOOKS_ALLOW_PRIVATE": "true",
        "TOOLGATE_MANAGEMENT_REQUESTS_PER_MINUTE": "1000000",
    }
    with LiveGateway(tmp_path_factory.mktemp("hooked"), env=env) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def member(acme: Owner) -> Iterator[Reader]:
    """Browser of a member without administrative rights."""
    with Colleague(acme) as colleague, Reader.of(acme.url, colleague.email) as reader:
        yield reader


def add(reader: Reader, environment: str = "production", **fields: str) -> tuple[int, str]:
    way = f"{HOOKS}?environment={environment}"
    form = {"token": reader.token(), "newest": field(reader.page(way), "newest"), "which": "all"} | fields
    answer = reader.submit(way, **form)
    return answer.status_code, answer.text


def all_of(owner: Owner, **params: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = owner.http.get("/api/webhooks", params=params).json()
    return found


def test_a_webhook_is_created(newcomer: Owner) -> None:
    """Its secret is shown once; a repeated form does nothing; it belongs to the shown environment."""
    with Reader.of(newcomer.url, newcomer.email) as reader:
        assert "No webhooks in production" in reader.page(HOOKS)
        form = {
            "token": reader.token(),
            "newest": "",
            "which": "some",
            "events": "approval.requested",
            "url": "https://hooks.example.com/x",
            "description": "<i>pager</i>",
        }
        answer = reader.submit(HOOKS, **form)
        assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-store")
        assert len(SECRET.findall(answer.text)) == 1
        assert reader.submit(HOOKS, **form).status_code == 409
        [made] = all_of(newcomer)
        assert (made["events"], made["include_context"]) == (["approval.requested"], False)
        for way in (HOOKS, f"{HOOKS}/{made['id']}"):
            page = reader.page(way)
            assert (SECRET.findall(page), "<i>pager" in page, "&lt;i&gt;pager" in page) == ([], False, True)
        assert add(reader, "test", url="https://hooks.example.com/t", include_context="on")[0] == 200
        [tested] = all_of(newcomer, environment="test")
        assert (tested["include_context"], "log.created" in tested["events"]) == (True, False)
        assert "agent.created" in tested["events"]
        assert reader.get(f"{HOOKS}/{tested['id']}").status_code == 404


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"url": "ftp://example.com/"}, "url: must begin with"),
        ({"url": "https://u:p@example.com/"}, "must not contain a user"),
        ({"url": ""}, "url: is not a URL"),
        ({"url": "https://example.com/", "which": "some"}, "events:"),
        ({"url": "https://example.com/", "which": "some", "events": "x.y"}, "unknown event type"),
        ({"url": "https://example.com/", "description": "x" * 1001}, "description:"),
    ],
)
def test_what_the_api_refuses_is_refused(
    maya: Reader, acme: Owner, fields: dict[str, str], said: str
) -> None:
    """400 on the page with the typed values, and no webhook."""
    before = all_of(acme)
    status, text = add(maya, **fields)
    assert (status, said in text, field(text, "url")) == (400, True, fields["url"])
    assert all_of(acme) == before


def test_a_webhook_is_changed_disabled_and_deleted(newcomer: Owner) -> None:
    """One form changes all terms."""
    with Reader.of(newcomer.url, newcomer.email) as reader:
        add(reader, url="https://hooks.example.com/1")
        [one] = all_of(newcomer)
        way, token = f"{HOOKS}/{one['id']}", reader.token()
        changed = {"url": "https://hooks.example.com/2", "which": "some", "events": "log.created"}
        assert reader.submit(way, token=token, description="now", **changed).status_code == 303
        [one] = all_of(newcomer)
        assert (one["url"], one["events"], one["description"]) == (
            changed["url"],
            ["log.created"],
            "now",
        )
        refused = reader.submit(way, token=token, which="all", url="https://10.0.0.1:0/")
        assert (refused.status_code, field(refused.text, "url")) == (400, "https://10.0.0.1:0/")
        assert reader.submit(f"{way}/switch", token=token, status="off").status_code == 303
        assert "disabled" in reader.page(way)
        assert reader.submit(f"{way}/test", token=token).status_code == 409
        assert reader.submit(f"{way}/switch", token=token, status="maybe").status_code == 400
        assert reader.submit(f"{way}/switch", token=token, status="on").status_code == 303
        assert all_of(newcomer)[0]["is_active"] is True
        assert reader.submit(f"{way}/delete", token=token).status_code == 303
        assert (all_of(newcomer), reader.get(way).status_code) == ([], 404)


def test_a_secret_is_rotated(newcomer: Owner) -> None:
    """The new secret is shown once; a repeated form does nothing."""
    with Reader.of(newcomer.url, newcomer.email) as reader:
        [first] = SECRET.findall(add(reader, url="https://hooks.example.com/1")[1])
        way = f"{HOOKS}/{all_of(newcomer)[0]['id']}"
        form = {"token": reader.token(), "newest": field(reader.page(way), "newest")}
        [second] = SECRET.findall(reader.submit(f"{way}/rotate-secret", **form).text)
        assert second != first
        again = reader.submit(f"{way}/rotate-secret", **form)
        assert (again.status_code, SECRET.findall(again.text)) == (409, [])


def test_of_two_simultaneous_forms_one_creates(newcomer: Owner) -> None:
    """One webhook, one secret, and a 409 for the other."""
    with Reader.of(newcomer.url, newcomer.email) as one, Reader.of(newcomer.url, newcomer.email) as other:

        def both(way: str, **fields: str) -> list[int]:
            posts = [partial(reader.submit, way, token=reader.token(), **fields) for reader in (one, other)]
            return sorted(answer.status_code for answer in together(*posts))

        for number in range(3):
            newest = field(one.page(HOOKS), "newest")
            assert both(HOOKS, newest=newest, which="all", url="https://hooks.example.com/1") == [200, 409]
            hooks = all_of(newcomer)
            assert len(hooks) == number + 1
            way = f"{HOOKS}/{hooks[0]['id']}"
            assert both(f"{way}/rotate-secret", newest=field(one.page(way), "newest")) == [200, 409]


def test_deliveries_are_listed_and_retried(newcomer: Owner) -> None:
    """A refused test event is listed with its code, retried, and filtered by state."""
    with Receiver(Answer(500)) as receiver, Reader.of(newcomer.url, newcomer.email) as reader:
        add(reader, url=receiver.url)
        way = f"{HOOKS}/{all_of(newcomer)[0]['id']}"
        assert "No deliveries." in reader.page(way)
        answer = reader.submit(f"{way}/test", token=reader.token())
        assert (answer.status_code, answer.headers["Location"]) == (303, f"{way}#deliveries")
        until(lambda: "500" in text_of(reader.page(f"{way}?status=failed")))
        [delivery] = re.findall(r"/deliveries/([0-9a-f-]+)/retry", reader.page(way))
        assert "webhook.test" in reader.page(way)
        assert "No deliveries with the status delivered" in reader.page(f"{way}?status=delivered")
        assert "No deliveries." in reader.page(f"{way}?offset=999999&status=nonsense")
        assert reader.submit(f"{way}/deliveries/{delivery}/retry", token=reader.token()).status_code == 303
        until(lambda: "webhook.test" in reader.page(f"{way}?status=delivered"))
        assert len(receiver.wait(2)) == 2
        assert reader.submit(f"{way}/deliveries/{way[-36:]}/retry", token=reader.token()).status_code == 404


def test_a_member_reads_webhooks(maya: Reader, member: Reader, acme: Owner) -> None:
    """Without forms; submitting one all the same is a 403."""
    add(maya, url="https://hooks.example.com/watched")
    one = all_of(acme)[0]
    way = f"{HOOKS}/{one['id']}"
    assert "hooks.example.com/watched" in member.page(way)
    assert "New secret" not in member.page(way)
    assert "Add a webhook" not in member.page(HOOKS)
    for what in ("", "/switch", "/delete", "/rotate-secret", "/test", "/deliveries/x/retry"):
        answer = member.submit(way + what, token=member.token(), status="off", which="all")
        assert (answer.status_code, SECRET.findall(answer.text)) == (403, [])
    assert add_status(member) == 403
    assert all_of(acme)[0] == one


def add_status(reader: Reader) -> int:
    form = {"token": reader.token(), "newest": "", "which": "all", "url": "https://hooks.example.com/"}
    return reader.submit(HOOKS, **form).status_code


def test_a_plan_without_webhooks_says_so(frugal: Owner) -> None:
    """No form, a link to the plans, and a 403 with the service's error."""
    with Reader.of(frugal.url, frugal.email) as reader:
        page = reader.page(HOOKS)
        assert ("does not include webhooks" in page, "Add a webhook" in page) == (True, False)
        form = {"token": reader.token(), "newest": "", "which": "all", "url": "https://example.com/"}
        answer = reader.submit(HOOKS, **form)
        assert (answer.status_code, "The free plan does not include webhooks" in answer.text) == (403, True)


def test_a_channel_is_connected(newcomer: Owner) -> None:
    """No page shows the URL and secret from Slack; the request URL for Slack is shown; empty fields keep stored values."""
    with Reader.of(newcomer.url, newcomer.email) as reader:
        wrong = {"token": reader.token(), "url": URL, "signing_secret": "too short", "description": "#kept"}
        refused = reader.submit(SLACK, **wrong)
        assert (refused.status_code, "#kept" in refused.text) == (400, True)
        assert ("marked-credential" in refused.text, "too short" in refused.text) == (False, False)
        form = wrong | {"signing_secret": SIGNING_SECRET, "description": "#approvals"}
        way = reader.submit(SLACK, **form, include_context="on").headers["Location"]
        page = reader.page(way)
        [one] = all_of(newcomer)
        assert f"{newcomer.url}/integrations/slack/{one['id']}" in page
        assert all(given not in page for given in ("marked-credential", SIGNING_SECRET))
        assert "#approvals" in reader.page(SLACK)
        change = {"token": reader.token(), "url": "", "signing_secret": "", "which": "all"}
        assert reader.submit(way, **change, description="#renamed").status_code == 303
        [one] = all_of(newcomer)
        assert (one["description"], one["include_context"], one["url"]) == (
            "#renamed",
            False,
            "https://hooks.slack.com/…",
        )
        rotated = reader.submit(f"{way}/rotate-secret", token=reader.token(), newest="")
        assert (rotated.status_code, "replace it in Slack" in rotated.text) == (409, True)


def test_a_channels_events_stay_as_they_are(newcomer: Owner) -> None:
    """The form has every event that the API allows for a channel."""
    body = {"kind": "slack", "url": URL, "signing_secret": SIGNING_SECRET, "events": ["agent.created"]}
    hook = newcomer.http.post("/api/webhooks", json=body).json()["id"]
    with Reader.of(newcomer.url, newcomer.email) as reader:
        page = reader.page(f"{HOOKS}/{hook}")
        ticked = re.findall(r'name="events" value="([a-z_.]+)" checked', page)
        assert (ticked, 'value="some" checked' in page) == (["agent.created"], True)


def test_a_slack_account_is_linked_and_unlinked(newcomer: Owner) -> None:
    """By a code that is shown once; an administrator sees and removes the link."""
    body = {"kind": "slack", "url": URL, "signing_secret": SIGNING_SECRET}
    hook = newcomer.http.post("/api/webhooks", json=body).json()["id"]
    with (
        Colleague(newcomer) as ben,
        Reader.of(newcomer.url, ben.email) as his,
        Reader.of(newcomer.url, newcomer.email) as reader,
    ):
        answer = his.submit(f"{SLACK}/code", token=his.token())
        [code] = re.findall(r"/toolgate link ([0-9A-Z-]+)", answer.text)
        assert code not in his.page(SLACK)
        typed = command(f"link {code}")
        way = f"{newcomer.url}/integrations/slack/{hook}"
        assert "Linked" in newcomer.http.post(way, content=typed, headers=signed(typed)).text
        assert "Linked since" in his.page(SLACK)
        assert ben.email in reader.page(SLACK)
        [link] = newcomer.http.get("/api/slack/links").json()
        ending = f"{SLACK}/links/{link['id']}/end"
        with Colleague(newcomer) as cid, Reader.of(newcomer.url, cid.email) as other:
            assert ben.email not in other.page(SLACK)
            assert other.submit(ending, token=other.token()).status_code == 404
        assert reader.submit(ending, token=reader.token()).status_code == 303
        assert newcomer.http.get("/api/slack/links").json() == []
