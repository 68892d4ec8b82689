"""Presses on buttons: whoever presses decides as the member they are linked to, by the rules of now, or nothing."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.gateway import LiveGateway, Owner
from support.insight import set_active, set_plan, set_role
from support.people import Board, board
from support.receiver import Receiver
from support.slack import SlackHook, block_actions, buttons_of, command, form, signed
from support.tables import execute

from toolgate_service.slack.schemas import APPROVE, DENY
from toolgate_service.slack.service import LINKED

NOBODY = "01890000-0000-7000-8000-000000000000"


class Channel:
    """A channel of Slack to which an organization's requests go; its first admins are linked as U0 and U1."""

    def __init__(self, people: Board, slack: Receiver, *, linked: int = 2) -> None:
        self.people = people
        self.slack = slack
        self.hook = SlackHook(people.people[0], slack.url, events=["approval.requested"])
        self._answers = 0
        for number, person in enumerate(people.people[:linked]):
            assert self.hook.link(person.http, user=f"U{number}") == LINKED

    def asked(self, context: object = None) -> dict[str, str]:
        """Let the agent ask, and return the buttons of the message that comes."""
        approval = self.people.ask(context)
        found = self.slack.wait(where=lambda got: approval.encode() in got.body and b"blocks" in got.body)
        return buttons_of(found[0].event)

    def body(self, action: str, value: str, user: str = "U0") -> bytes:
        """Return a press as Slack sends it."""
        url = f"http://127.0.0.1:{self.slack.port}/actions"
        return form(block_actions(action, value, user=user, response_url=url))

    def press(self, action: str, value: str, user: str = "U0") -> str:
        """Press a button, and return what the one who pressed is told."""
        assert self.hook.send(self.body(action, value, user)).status_code == 200
        self._answers += 1
        return self.told()[self._answers - 1]

    def told(self) -> list[str]:
        """Return everything that was said to who pressed, once there is as much as was asked for."""
        replies = self.slack.wait(self._answers, lambda got: got.path == "/actions")
        for got in replies:
            assert (got.event["response_type"], got.event["replace_original"]) == ("ephemeral", False)
        return [got.event["text"] for got in replies]


@pytest.fixture
def channel(two: Board, slack: Receiver) -> Channel:
    """A channel with both admins linked."""
    return Channel(two, slack)


def id_in(buttons: dict[str, str]) -> str:
    return buttons[APPROVE].split(".")[1]


def test_a_press_approves_as_the_linked_member(channel: Channel, two: Board) -> None:
    """The check passes once; who decided is the member, and the audit says through what."""
    buttons = channel.asked({"amount": 5})
    assert channel.press(APPROVE, buttons[APPROVE], "U1") == "Approved: the call may run once."
    shown = two.shown(id_in(buttons))
    assert (shown["status"], shown["decided_by"]) == ("approved", two.people[1].user["id"])
    assert two.allowed({"amount": 5})
    assert not two.allowed({"amount": 5})
    entries = two.people[0].http.get("/api/audit").json()
    [entry] = [one for one in entries if one["kind"] == "approval.approved"]
    assert (entry["user_id"], entry["changes"]["via"]) == (two.people[1].user["id"], "slack")
    assert entry["ip_address"] is None


def test_a_press_denies(channel: Channel, two: Board) -> None:
    """And the agent is told no."""
    buttons = channel.asked()
    assert channel.press(DENY, buttons[DENY]).startswith("Rejected")
    assert two.shown(id_in(buttons))["status"] == "denied"
    assert not two.allowed()


def test_an_unlinked_user_decides_nothing(channel: Channel, two: Board) -> None:
    """They are told how to link."""
    buttons = channel.asked()
    for action in (APPROVE, DENY):
        assert "toolgate slack link" in channel.press(action, buttons[action], "USTRANGER")
    shown = two.shown(id_in(buttons))
    assert (shown["status"], shown["votes"]) == ("pending", [])


def test_a_quorum_of_two_is_two_people(teller: LiveGateway, slack: Receiver) -> None:
    """One person's two presses are one vote."""
    with board(teller, people=2, required_approvals=2) as people:
        channel = Channel(people, slack)
        buttons = channel.asked()
        assert "needs further approvals" in channel.press(APPROVE, buttons[APPROVE], "U0")
        assert "already" in channel.press(APPROVE, buttons[APPROVE], "U0")
        assert people.shown(id_in(buttons))["status"] == "pending"
        assert channel.press(APPROVE, buttons[APPROVE], "U1") == "Approved: the call may run once."
        assert people.allowed()


def test_presses_at_once_are_votes_one_after_the_other(teller: LiveGateway, slack: Receiver) -> None:
    """Two people's race makes a quorum of two; one person's many make one vote."""
    with board(teller, people=2, required_approvals=2) as people:
        channel = Channel(people, slack)
        buttons = channel.asked()
        bodies = [channel.body(APPROVE, buttons[APPROVE], user) for user in ("U0", "U1") * 4]
        with ThreadPoolExecutor(8) as pool:
            assert {answer.status_code for answer in pool.map(channel.hook.send, bodies)} == {200}
        shown = people.shown(id_in(buttons))
        assert shown["status"] == "approved"
        assert {vote["user_id"] for vote in shown["votes"]} == {one.user["id"] for one in people.people}
        assert [people.allowed() for _ in range(3)] == [True, False, False]


def test_approve_and_deny_at_once_have_one_winner(channel: Channel, two: Board) -> None:
    """The other is told that it is decided."""
    buttons = channel.asked()
    bodies = [channel.body(APPROVE, buttons[APPROVE], "U0"), channel.body(DENY, buttons[DENY], "U1")]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(channel.hook.send, bodies))
    channel._answers = 2
    won = [words for words in channel.told() if not words.startswith("Nothing was decided")]
    assert len(won) == 1
    assert two.shown(id_in(buttons))["status"] == ("denied" if won[0].startswith("Rejected") else "approved")


def test_a_replayed_press_changes_nothing_more(channel: Channel, two: Board) -> None:
    """The same bytes under the same signature, after the approval was used."""
    buttons = channel.asked()
    body = channel.body(APPROVE, buttons[APPROVE])
    headers = signed(body)
    assert channel.hook.send(body, headers).status_code == 200
    assert two.allowed()
    before = two.shown(id_in(buttons))
    assert channel.hook.send(body, headers).status_code == 200
    assert two.shown(id_in(buttons)) == before
    assert not two.allowed()


def test_what_is_no_longer_pending_is_told(channel: Channel, two: Board, teller: LiveGateway) -> None:
    """Decided elsewhere, run out, of another digest, or not there: nothing is decided."""
    decided, expired, other = (channel.asked({"n": number}) for number in range(3))
    two.deny(id_in(decided))
    assert "it is denied" in channel.press(APPROVE, decided[APPROVE])
    execute(teller, "UPDATE approvals SET expires_at = created_at WHERE id = ?", id_in(expired))
    assert "it is expired" in channel.press(APPROVE, expired[APPROVE])
    forged = f"v1.{id_in(other)}.{'0' * 64}"
    assert "differ from the arguments in this message" in channel.press(APPROVE, forged)
    assert "no longer exists" in channel.press(APPROVE, f"v1.{NOBODY}.{'0' * 64}")
    assert two.shown(id_in(other))["status"] == "pending"


@pytest.mark.parametrize("action", [APPROVE, DENY])
def test_rights_are_read_at_the_press(channel: Channel, two: Board, teller: LiveGateway, action: str) -> None:
    """Whoever has become a viewer, or was removed, decides nothing by the button that came before."""
    buttons = channel.asked()
    set_role(teller, two.people[1], "viewer")
    assert "viewer" in channel.press(action, buttons[action], "U1")
    set_role(teller, two.people[1], "admin")
    assert two.people[0].http.delete(f"/api/team/{two.people[1].user['id']}").status_code == 204
    assert "toolgate slack link" in channel.press(action, buttons[action], "U1")
    assert two.shown(id_in(buttons))["status"] == "pending"


def test_separation_of_duties_holds_in_slack(teller: LiveGateway, slack: Receiver) -> None:
    """Whoever made the agent may not approve, another may."""
    with board(teller, people=2, separation_of_duties=True) as people:
        channel = Channel(people, slack)
        buttons = channel.asked()
        assert "separation of duties" in channel.press(APPROVE, buttons[APPROVE], "U0")
        assert people.shown(id_in(buttons))["votes"] == []
        assert channel.press(APPROVE, buttons[APPROVE], "U1") == "Approved: the call may run once."


def test_another_organizations_and_environments_requests_are_not_there(
    channel: Channel, two: Board, teller: LiveGateway, slack: Receiver
) -> None:
    """A button's value, taken to another webhook, decides nothing, whoever presses."""
    buttons = channel.asked()
    test = SlackHook(two.people[0], slack.url, environment="test")
    assert test.send(channel.body(APPROVE, buttons[APPROVE])).status_code == 200
    with Owner(teller.url, organization="Elsewhere") as stranger:
        elsewhere = SlackHook(stranger, slack.url)
        assert elsewhere.link(stranger.http, user="U0") == LINKED
        assert elsewhere.send(channel.body(APPROVE, buttons[APPROVE])).status_code == 200
    channel._answers = 2
    assert all("no longer exists" in words for words in channel.told())
    assert two.shown(id_in(buttons))["status"] == "pending"


def test_channels_of_one_environment_may_share_an_app(channel: Channel, two: Board, slack: Receiver) -> None:
    """An app has one request URL: it may be another webhook's of the same organization and environment."""
    buttons = channel.asked()
    other = SlackHook(two.people[0], slack.url, events=["agent.created"])
    assert other.send(channel.body(APPROVE, buttons[APPROVE])).status_code == 200
    assert two.shown(id_in(buttons))["status"] == "approved"


def test_without_a_signature_of_this_webhook_everything_is_one_401(channel: Channel, two: Board) -> None:
    """Unknown webhook, another's secret, old or future timestamp, changed body, deleted webhook: the same answer."""
    buttons = channel.asked()
    body = channel.body(APPROVE, buttons[APPROVE])
    good, at = signed(body), time.time()
    standard = (
        two.people[0].http.post("/api/webhooks", json={"url": "https://hooks.example.com/x"}).json()["id"]
    )
    gone = SlackHook(two.people[0], channel.slack.url)
    assert two.people[0].http.delete(gone.path).status_code == 204
    intake = channel.hook.intake.rpartition("/")[0]
    tries = [
        (channel.hook.intake, body, signed(body, "another secret of another app")),
        (channel.hook.intake, body, signed(body, at=at - 400)),
        (channel.hook.intake, body, signed(body, at=at + 400)),
        (channel.hook.intake, body, {**good, "X-Slack-Request-Timestamp": "soon"}),
        (channel.hook.intake, body, {}),
        (channel.hook.intake, body + b"&", good),
        (channel.hook.intake, body, {**good, "Content-Encoding": "gzip, identity"}),
        (f"{intake}/{NOBODY}", body, good),
        (f"{intake}/no-id", body, good),
        (f"{intake}/{standard}", body, good),
        (gone.intake, body, good),
    ]
    answers = [httpx.post(url, content=sent, headers=headers) for url, sent, headers in tries]
    refused = [
        (one.status_code, one.text) for one in answers if one.request.headers.get("content-encoding") is None
    ]
    assert set(refused) == {
        (
            401,
            (
                '{"detail":"The request is not signed with the Slack signing secret of this webhook",'
                '"code":"unauthenticated"}'
            ),
        )
    }
    assert {one.status_code for one in answers} <= {400, 401}
    assert two.shown(id_in(buttons))["status"] == "pending"


def test_what_is_switched_off_takes_nothing(channel: Channel, two: Board, teller: LiveGateway) -> None:
    """An inactive webhook, an inactive organization and a plan without webhooks refuse, and do so for commands too."""
    buttons = channel.asked()
    body, owner = channel.body(APPROVE, buttons[APPROVE]), two.people[0]

    def refused() -> bool:
        sent = [channel.hook.send(one) for one in (body, command("link ABC"))]
        return [one.status_code for one in sent] == [403, 403]

    assert owner.http.put(channel.hook.path, json={"is_active": False}).status_code == 200
    assert refused()
    assert owner.http.put(channel.hook.path, json={"is_active": True}).status_code == 200
    set_active(teller, owner, active=False)
    assert refused()
    set_active(teller, owner, active=True)
    set_plan(teller, owner, "free")
    assert refused()
    set_plan(teller, owner, "enterprise")
    assert two.shown(id_in(buttons))["status"] == "pending"
    assert channel.press(APPROVE, buttons[APPROVE]) == "Approved: the call may run once."


def test_a_new_signing_secret_holds_at_once(channel: Channel, two: Board) -> None:
    """And the former one no more."""
    new = "ffffffffffffffffffffffffffffffff"
    assert two.people[0].http.put(channel.hook.path, json={"signing_secret": new}).status_code == 200
    body = command("help")
    assert channel.hook.send(body).status_code == 401
    assert channel.hook.send(body, signed(body, new)).status_code == 200


def test_words_go_nowhere_but_to_slack(channel: Channel, two: Board) -> None:
    """A press whose answer is wanted elsewhere decides, and says nothing to anybody."""
    with Receiver() as other:
        for url in (
            other.url,
            "http://hooks.slack.com/x",
            "https://hooks.slack.com.evil.example/",
            "",
            "//x",
            5,
        ):
            buttons = channel.asked({"to": str(url)})
            payload = block_actions(APPROVE, buttons[APPROVE], user="U0")
            payload["response_url"] = url
            assert channel.hook.send(form(payload)).status_code == 200
            assert two.shown(id_in(buttons))["status"] == "approved"
        # Said in order: what was to be said before has been, or never is.
        assert (
            channel.press(APPROVE, channel.asked({"last": 1})[APPROVE]) == "Approved: the call may run once."
        )
        assert other.got == []


@pytest.fixture(scope="module")
def signer(teller: LiveGateway) -> Iterator[SlackHook]:
    """A Slack webhook to throw things at."""
    with Owner(teller.url, organization="Thrown at") as owner:
        yield SlackHook(owner)


PAYLOADS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_nothing_that_is_signed_makes_the_gateway_fail(signer: SlackHook, data: st.DataObject) -> None:
    """Any bytes, and any change of what Slack sends, are answered with 200 or 400."""
    payload: Any = block_actions(APPROVE, f"v1.{NOBODY}.{'0' * 64}")
    holder = data.draw(st.sampled_from([payload, payload["user"], payload["team"], payload["actions"][0]]))
    holder[data.draw(st.sampled_from(sorted(holder)))] = data.draw(PAYLOADS)
    text = data.draw(st.text(max_size=80))
    bodies = [data.draw(st.binary(max_size=200)), form(json.loads(json.dumps(payload)))]
    for body in [*bodies, command(text), command(f"link {text}", user="U" + str(time.time_ns()))]:
        assert signer.send(body).status_code in {200, 400}


def test_what_is_too_large_is_refused_unread(signer: SlackHook) -> None:
    """413 beyond 256 KiB, whoever signed it."""
    assert signer.send(b"payload=" + b"x" * 300_000).status_code == 413
