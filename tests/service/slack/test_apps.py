"""A link counts for requests of the app that made it, and ends with that app's signing secret."""

import httpx
import pytest
from support.gateway import LiveGateway, Owner
from support.people import Board, board
from support.receiver import Receiver
from support.slack import URL, SlackHook, buttons_of
from support.tables import execute
from support.team import Colleague

from toolgate_service.slack.schemas import APPROVE, DENY
from toolgate_service.slack.service import LINKED, WRONG

OTHER_SECRET = "0th3r-app-signing-secret-00000001"
THIRD_SECRET = "0th3r-app-signing-secret-00000002"


@pytest.fixture
def hook(two: Board, slack: Receiver) -> SlackHook:
    """The organization's Slack app, in which its second admin is linked as U1."""
    hook = SlackHook(two.people[0], slack.url, events=["approval.requested"])
    assert hook.link(two.people[1].http, user="U1") == LINKED
    return hook


@pytest.fixture
def attacker(two: Board) -> SlackHook:
    """A second app, whose signing secret the first admin chose."""
    return SlackHook(two.people[0], URL, secret=OTHER_SECRET, events=["agent.created"])


def asked(people: Board, slack: Receiver) -> tuple[str, dict[str, str]]:
    """Let the agent ask, and return the request's id and the values of its buttons."""
    approval = people.ask()
    [found] = slack.wait(where=lambda got: approval.encode() in got.body and b"blocks" in got.body)
    return approval, buttons_of(found.event)


def code_of(member: httpx.Client, **body: object) -> str:
    answer = member.post("/api/slack/link-codes", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["code"])


def linked_ids(owner: Owner) -> list[str]:
    return [one["id"] for one in owner.http.get("/api/slack/links").json()]


def assert_undecided(people: Board, approval: str) -> None:
    shown = people.shown(approval)
    assert (shown["status"], shown["votes"]) == ("pending", [])


@pytest.mark.parametrize("action", [APPROVE, DENY])
def test_second_app_does_not_speak_for_a_member_linked_by_the_first(
    two: Board, slack: Receiver, hook: SlackHook, attacker: SlackHook, action: str
) -> None:
    approval, buttons = asked(two, slack)
    assert attacker.press(action, buttons[action], user="U1").status_code == 200
    assert_undecided(two, approval)
    assert hook.press(action, buttons[action], user="U1").status_code == 200
    assert two.shown(approval)["decided_by"] == two.people[1].user["id"]


def test_second_app_links_its_own_users_beside_the_first(
    two: Board, hook: SlackHook, attacker: SlackHook
) -> None:
    """A member of two apps has a link for each; another member may have the same Slack ids in the other app."""
    member = two.people[1].http
    assert attacker.say(f"link {code_of(member, webhook_id=attacker.made['id'])}", user="U1") == LINKED
    assert len(member.get("/api/slack/links").json()) == 2
    assert {one["webhook_id"] for one in member.get("/api/slack/links").json()} == {
        hook.made["id"],
        attacker.made["id"],
    }


def test_code_of_one_app_is_wrong_in_another(two: Board, hook: SlackHook) -> None:
    with Colleague(two.people[0]) as member:
        before = code_of(member.http)
        attacker = SlackHook(two.people[0], URL, secret=OTHER_SECRET)
        assert attacker.say(f"link {before}", user="U9") == WRONG
        assert hook.say(f"link {before}", user="U9") == LINKED


def test_code_names_its_app_where_several_are_connected(
    two: Board, hook: SlackHook, attacker: SlackHook
) -> None:
    member = two.people[0].http
    answer = member.post("/api/slack/link-codes")
    assert answer.status_code == 400
    [complaint] = answer.json()["detail"]["webhook_id"]
    assert hook.made["id"] in complaint
    assert attacker.made["id"] in complaint
    for unknown in ("no-id", "01890000-0000-7000-8000-000000000000"):
        answer = member.post("/api/slack/link-codes", json={"webhook_id": unknown})
        assert list(answer.json()["detail"]) == ["webhook_id"]
    code = code_of(member, webhook_id=hook.made["id"])
    assert attacker.say(f"link {code}", user="U5") == WRONG
    assert hook.say(f"link {code}", user="U5") == LINKED


def test_no_code_without_an_app(two: Board, teller: LiveGateway) -> None:
    answer = two.people[0].http.post("/api/slack/link-codes")
    assert answer.status_code == 409
    with Owner(teller.url, organization="Elsewhere") as stranger:
        foreign = SlackHook(stranger).made["id"]
        answer = two.people[0].http.post("/api/slack/link-codes", json={"webhook_id": foreign})
        assert answer.status_code == 409


def test_webhooks_with_one_secret_are_one_app(two: Board, slack: Receiver, hook: SlackHook) -> None:
    other = SlackHook(two.people[0], slack.url, events=["agent.created"])
    code_of(two.people[0].http)
    approval, buttons = asked(two, slack)
    assert other.press(APPROVE, buttons[APPROVE], user="U1").status_code == 200
    assert two.shown(approval)["status"] == "approved"


@pytest.mark.parametrize("back", [False, True])
def test_replaced_secret_ends_the_links(two: Board, slack: Receiver, hook: SlackHook, back: bool) -> None:
    """Also when the former secret is put back afterwards."""
    [link] = linked_ids(two.people[0])
    approval, buttons = asked(two, slack)
    owner = two.people[0]
    for secret in (OTHER_SECRET, hook.secret) if back else (OTHER_SECRET,):
        assert owner.http.put(hook.path, json={"signing_secret": secret}).status_code == 200
        hook.secret = secret
    assert linked_ids(owner) == []
    assert hook.press(APPROVE, buttons[APPROVE], user="U1").status_code == 200
    assert_undecided(two, approval)
    [ended] = [one for one in owner.http.get("/api/audit").json() if one["kind"] == "slack.unlinked"]
    assert (ended["resource_id"], ended["changes"]["webhook_id"]) == (link, hook.made["id"])
    assert hook.link(two.people[1].http, user="U1") == LINKED
    assert hook.press(APPROVE, buttons[APPROVE], user="U1").status_code == 200
    assert two.shown(approval)["status"] == "approved"


def test_code_ends_with_the_secret(two: Board, hook: SlackHook) -> None:
    code = code_of(two.people[0].http)
    hook.secret = OTHER_SECRET
    assert two.people[0].http.put(hook.path, json={"signing_secret": OTHER_SECRET}).status_code == 200
    assert hook.say(f"link {code}", user="U5") == WRONG


def test_other_changes_of_the_webhook_keep_the_links(two: Board, slack: Receiver, hook: SlackHook) -> None:
    before = linked_ids(two.people[0])
    for change in ({"url": slack.url}, {"description": "#refunds"}, {"signing_secret": hook.secret}):
        assert two.people[0].http.put(hook.path, json=change).status_code == 200
    assert linked_ids(two.people[0]) == before
    approval, buttons = asked(two, slack)
    assert hook.press(APPROVE, buttons[APPROVE], user="U1").status_code == 200
    assert two.shown(approval)["status"] == "approved"


def test_deleted_and_recreated_webhook_has_no_links(two: Board, slack: Receiver, hook: SlackHook) -> None:
    approval, buttons = asked(two, slack)
    assert two.people[0].http.delete(hook.path).status_code == 204
    assert linked_ids(two.people[0]) == []
    again = SlackHook(two.people[0], slack.url)
    assert again.press(APPROVE, buttons[APPROVE], user="U1").status_code == 200
    assert_undecided(two, approval)


def test_second_app_makes_no_quorum(teller: LiveGateway, slack: Receiver) -> None:
    """One admin with an app of his own stays one person: in the quorum, and for separation of duties."""
    with board(teller, people=3, required_approvals=2, separation_of_duties=True) as people:
        hook = SlackHook(people.people[0], slack.url, events=["approval.requested"])
        for number, person in enumerate(people.people):
            assert hook.link(person.http, user=f"U{number}") == LINKED
        attacker = SlackHook(people.people[0], URL, secret=THIRD_SECRET, events=["agent.created"])
        approval, buttons = asked(people, slack)
        for user in ("U1", "U2"):
            assert attacker.press(APPROVE, buttons[APPROVE], user=user).status_code == 200
        assert_undecided(people, approval)
        for user in ("U1", "U2"):
            assert hook.press(APPROVE, buttons[APPROVE], user=user).status_code == 200
        assert people.shown(approval)["status"] == "approved"


def test_secret_replaced_between_signature_and_decision(
    two: Board, slack: Receiver, hook: SlackHook, teller: LiveGateway
) -> None:
    """A link whose secret is no longer stored decides nothing, whichever gateway removed the secret."""
    approval, buttons = asked(two, slack)
    stored = "UPDATE slack_app_links SET secret_id = ? WHERE webhook_id = ?"
    assert execute(teller, stored, "01890000-0000-7000-8000-000000000000", hook.made["id"]) == 1
    assert hook.press(APPROVE, buttons[APPROVE], user="U1").status_code == 200
    assert_undecided(two, approval)


def test_vote_stores_the_credential_that_proved_it(two: Board, slack: Receiver, hook: SlackHook) -> None:
    [link] = two.people[1].http.get("/api/slack/links").json()
    approval, buttons = asked(two, slack)
    assert hook.press(APPROVE, buttons[APPROVE], user="U1").status_code == 200
    [vote] = two.shown(approval)["votes"]
    credential = {
        "type": "slack",
        "kind": "slack",
        "webhook_id": hook.made["id"],
        "link_id": link["id"],
        "team_id": link["team_id"],
        "slack_user_id": "U1",
    }
    assert vote["credential"] == credential
    entries = two.people[0].http.get("/api/audit").json()
    [entry] = [one for one in entries if one["kind"] == "approval.approved"]
    assert entry["changes"]["credential"] == credential
    # What another webhook is told has no credentials.
    told = slack.wait(where=lambda got: approval.encode() in got.body)
    assert all(link["id"].encode() not in got.body for got in told)
