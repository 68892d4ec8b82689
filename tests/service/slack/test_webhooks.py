"""Slack webhooks over HTTP: made, shown, changed; what Slack gave is shown nowhere."""

from typing import Any

import pytest
from support.gateway import LiveGateway, Owner
from support.people import Board
from support.receiver import Answer, Receiver
from support.shapes import complaints
from support.slack import SIGNING_SECRET, URL, SlackHook, buttons_of, shown_in
from support.tables import rows
from support.waiting import until

from toolgate_service.slack.schemas import APPROVE, DENY
from toolgate_service.webhooks.events import EVENT_TYPES

MASKED = "https://hooks.slack.com/…"


def test_a_slack_webhook_is_shown_without_what_slack_gave(acme: Owner) -> None:
    """The URL by its host, no secret at all; the events about approvals, with contexts."""
    hook = SlackHook(acme)
    assert hook.made["type"] == hook.made["kind"] == "slack"
    assert (hook.made["url"], hook.made["secret"]) == (MASKED, None)
    assert hook.made["events"] == [kind for kind in EVENT_TYPES if kind.startswith("approval.")]
    assert hook.made["include_context"] is True
    assert acme.http.get(hook.path).json()["url"] == MASKED
    assert SlackHook(acme, include_context=False).made["include_context"] is False
    changed = acme.http.put(hook.path, json={"events": ["agent.created"]}).json()
    assert changed["events"] == ["agent.created"]
    assert acme.http.put(hook.path, json={"events": None}).json()["events"] == hook.made["events"]


@pytest.mark.parametrize(
    "names", [{"kind": "slack"}, {"type": "slack"}, {"type": "slack", "kind": "standard"}]
)
def test_type_and_kind_are_the_same_field(acme: Owner, names: dict[str, str]) -> None:
    body = {"url": URL, "signing_secret": SIGNING_SECRET} | names
    made = acme.http.post("/api/webhooks", json=body).json()
    assert (made["type"], made["kind"]) == ("slack", "slack")
    [entry] = [one for one in acme.http.get("/api/audit").json() if one["resource_id"] == made["id"]]
    assert (entry["changes"]["type"], entry["changes"]["kind"]) == ("slack", "slack")
    acme.http.delete(f"/api/webhooks/{made['id']}")


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"url": URL, "signing_secret": SIGNING_SECRET}, "signing_secret", "'slack'"),
        ({"kind": "slack", "url": URL}, "signing_secret", "required"),
        ({"kind": "slack", "url": URL, "signing_secret": None}, "signing_secret", "required"),
        ({"kind": "slack", "url": URL, "signing_secret": "short"}, "signing_secret", "at least 16"),
        ({"kind": "slack", "url": URL, "signing_secret": "with a space in it"}, "signing_secret", "pattern"),
        ({"kind": "slack", "signing_secret": SIGNING_SECRET}, "url", "required"),
        (
            {"kind": "slack", "url": URL.replace("https", "http"), "signing_secret": SIGNING_SECRET},
            "url",
            "https",
        ),
        ({"kind": "teams", "url": URL}, "kind", "slack"),
        ({"type": "teams", "url": URL}, "type", "slack"),
        ({"type": "slack", "url": URL}, "signing_secret", "required"),
        ({"type": "slack", "kind": "standard", "url": URL}, "signing_secret", "required"),
    ],
)
def test_what_is_wrong_is_named(acme: Owner, body: dict[str, object], field: str, words: str) -> None:
    """400, the field and what is wrong with it, and never a secret."""
    answer = acme.http.post("/api/webhooks", json=body)
    found = complaints(answer)
    assert list(found) == [field]
    assert words in found[field][0]
    assert SIGNING_SECRET not in answer.text
    assert "marked-credential" not in answer.text


def test_what_slack_gave_is_kept_nowhere_in_the_open(teller: LiveGateway, two: Board) -> None:
    """Not in the table, not in the audit, not in what a trial or a change says."""
    owner = two.people[0]
    hook = SlackHook(owner, URL)
    new = "another-secret-of-the-app"
    assert owner.http.put(hook.path, json={"url": f"{URL}-2", "signing_secret": new}).status_code == 200
    organization = owner.user["organization_id"]
    stored = rows(
        teller, "SELECT purpose, ciphertext FROM webhook_secrets WHERE organization_id = ?", organization
    )
    assert sorted(purpose for purpose, _ in stored) == ["slack_signing", "slack_url"]
    everything = b"".join(bytes(sealed) for _, sealed in stored).decode("latin-1")
    everything += repr(rows(teller, "SELECT * FROM webhooks WHERE organization_id = ?", organization))
    everything += repr(rows(teller, "SELECT * FROM events WHERE organization_id = ?", organization))
    everything += owner.http.get("/api/audit").text + owner.http.get(hook.path).text
    for secret in ("marked-credential", SIGNING_SECRET, new):
        assert secret not in everything
    [updated] = [one for one in owner.http.get("/api/audit").json() if one["kind"] == "webhook.updated"]
    assert updated["changes"] == {"url": MASKED, "signing_secret_replaced": True}


def test_a_standard_webhook_takes_no_signing_secret_later(acme: Owner) -> None:
    """PUT is no way around it; and what Slack made is not rotated here."""
    made = acme.http.post("/api/webhooks", json={"url": "https://hooks.example.com/x"}).json()
    path = f"/api/webhooks/{made['id']}"
    assert "signing_secret" in complaints(acme.http.put(path, json={"signing_secret": SIGNING_SECRET}))
    answer = acme.http.post(f"{SlackHook(acme).path}/rotate-secret")
    assert answer.status_code == 409
    assert "signing_secret" in answer.json()["detail"]


def test_a_request_arrives_as_a_message_with_buttons(slack: Receiver, two: Board) -> None:
    """At the URL that is nowhere shown, unsigned as Slack wants it, with what the agent wants to do."""
    SlackHook(two.people[0], slack.url)
    approval = two.ask({"amount": 500, "to": "<!channel>"})
    [got] = slack.wait()
    assert got.path == "/hook?token=in-the-query"
    assert "webhook-signature" not in got.headers
    assert got.headers["content-type"] == "application/json"
    assert b"<!channel>" not in got.body
    text = shown_in(got.event)
    assert "stripe.refund" in text
    assert "│ amount  500" in text
    assert '"<!channel>"' in text
    assert set(buttons_of(got.event)) == {APPROVE, DENY}
    assert approval in buttons_of(got.event)[APPROVE]
    two.approved(approval)
    second = slack.wait(2)[1].event
    assert shown_in(second).startswith("*Approved*")
    assert buttons_of(second) == {}


def test_other_events_and_trials_arrive_too(slack: Receiver, two: Board) -> None:
    """Whatever a webhook asks for is told readably."""
    owner = two.people[0]
    hook = SlackHook(owner, slack.url, events=["agent.created"], environment="test")
    owner.http.post("/api/agents", json={"name": "rehearsal"}, params={"environment": "test"})
    [got] = slack.wait()
    assert "*agent.created* · *test environment*" in shown_in(got.event)
    assert '"rehearsal"' in shown_in(got.event)
    assert owner.http.post(f"{hook.path}/test", params=hook.scope).status_code == 202
    assert "*webhook.test*" in shown_in(slack.wait(2)[1].event)


def test_without_contexts_nobody_decides_there(slack: Receiver, two: Board) -> None:
    """A webhook that is not to be told contexts gets none, and no buttons."""
    SlackHook(two.people[0], slack.url, include_context=False)
    two.ask({"secret": "of-the-customer"})
    [got] = slack.wait()
    assert b"of-the-customer" not in got.body
    assert buttons_of(got.event) == {}


def test_a_new_url_is_used_from_then_on(slack: Receiver, two: Board) -> None:
    """And a refusal of Slack is told without it."""
    owner = two.people[0]
    with Receiver(default=Answer(404, body=b"no_service")) as former:
        hook = SlackHook(owner, former.url)
        delivery = owner.http.post(f"{hook.path}/test").json()
        former.wait()

        def told() -> dict[str, Any]:
            [one] = owner.http.get(f"{hook.path}/deliveries").json()
            return one if one["id"] == delivery["id"] and one["status"] == "failed" else {}

        failed = until(told)
        assert failed["error"] == "the receiver responded with 404"
        shown = owner.http.put(hook.path, json={"url": slack.url}).json()["url"]
        assert shown == f"http://127.0.0.1:{slack.port}/…"
        two.ask()
        slack.wait()
        assert len(former.got) == 1
