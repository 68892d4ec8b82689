"""Linking: a Slack user is a member by that member's own login, one to one, and for as long as that holds."""

import re
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from support.gateway import PASSWORD, LiveGateway, Owner
from support.people import Board
from support.slack import SlackHook, command
from support.tables import execute, rows
from support.team import Colleague

from toolgate_service.slack.service import ALREADY, ELSEWHERE, LINKED, TAKEN, WRONG


@pytest.fixture
def hook(two: Board) -> SlackHook:
    """A Slack webhook of an organization with two admins."""
    return SlackHook(two.people[0])


def code_of(member: httpx.Client) -> str:
    answer = member.post("/api/slack/link-codes")
    assert answer.status_code == 201, answer.text
    assert answer.headers["Cache-Control"] == "no-store"
    code: str = answer.json()["code"]
    return code


def links(member: httpx.Client) -> list[tuple[str, str, str]]:
    return [
        (one["user_id"], one["team_id"], one["slack_user_id"])
        for one in member.get("/api/slack/links").json()
    ]


def test_a_code_links_once(teller: LiveGateway, two: Board, hook: SlackHook) -> None:
    """Typed as it was printed, or sloppily; used up by that, and stored nowhere in the open."""
    first, second = two.people
    code = code_of(first.http)
    assert re.fullmatch(r"(?:[0-9A-HJKMNP-TV-Z]{4}-){3}[0-9A-HJKMNP-TV-Z]{4}", code)
    stored = repr(rows(teller, "SELECT * FROM slack_link_codes"))
    assert code not in stored
    assert code.replace("-", "") not in stored
    assert hook.say(f"  LINK   {code.lower()} ") == LINKED
    assert links(first.http) == [(first.user["id"], "T1DC2JH3J", "U2CERLKJA")]
    assert hook.say(f"link {code}") == ALREADY
    assert hook.say(f"link {code}", user="U0OTHER") == WRONG
    assert len(links(second.http)) == 1


def test_one_slack_user_is_one_member(two: Board, hook: SlackHook) -> None:
    """Neither two members on one Slack account nor two accounts for one member; the code stays good."""
    first, second = two.people
    assert hook.link(first.http) == LINKED
    assert hook.link(second.http) == TAKEN
    again = code_of(first.http)
    assert hook.say(f"link {again}", user="U0OTHER") == ELSEWHERE
    [link] = first.http.get("/api/slack/links").json()
    assert first.http.delete(f"/api/slack/links/{link['id']}").status_code == 204
    assert hook.say(f"link {again}", user="U0OTHER") == LINKED
    assert hook.link(second.http) == LINKED
    # The same id in another workspace is somebody else.
    assert hook.link(second.http, team="T0OTHER") == ELSEWHERE


def test_a_code_is_of_one_organization(teller: LiveGateway, hook: SlackHook) -> None:
    """Typed in another organization's Slack it is wrong, and stays good in its own."""
    with Owner(teller.url, organization="Elsewhere") as other:
        own = SlackHook(other)
        code = code_of(other.http)
        assert hook.say(f"link {code}") == WRONG
        assert own.say(f"link {code}") == LINKED


def test_a_code_ends_with_time_with_its_successor_and_with_the_login(
    teller: LiveGateway, two: Board, hook: SlackHook
) -> None:
    """After ten minutes; when another is made; when the password, and with it every token, is changed."""
    member = two.people[1]
    late = code_of(member.http)
    execute(
        teller, "UPDATE slack_link_codes SET expires_at = created_at WHERE user_id = ?", member.user["id"]
    )
    assert hook.say(f"link {late}", user="U1") == WRONG
    former, present = code_of(member.http), code_of(member.http)
    assert hook.say(f"link {former}", user="U2") == WRONG
    body = {"current_password": PASSWORD, "new_password": PASSWORD + "!"}
    assert member.http.post("/auth/password", json=body).status_code == 200
    assert hook.say(f"link {present}", user="U3") == WRONG


@pytest.mark.parametrize("how", ["removed", "password"])
def test_a_link_ends_with_the_member_and_with_the_password(two: Board, hook: SlackHook, how: str) -> None:
    """Whoever is gone decides nothing, and whoever takes an account back by a new password is alone in it."""
    owner = two.people[0]
    with Colleague(owner, "member") as colleague:
        assert hook.link(colleague.http) == LINKED
        if how == "removed":
            assert owner.http.delete(f"/api/team/{colleague.id}").status_code == 204
        else:
            body = {"current_password": PASSWORD, "new_password": PASSWORD + "!"}
            assert colleague.http.post("/auth/password", json=body).status_code == 200
    assert links(owner.http) == []
    [ended] = [one for one in owner.http.get("/api/audit").json() if one["kind"] == "slack.unlinked"]
    assert ended["changes"]["user_id"] == colleague.id


def test_only_oneself_and_admins_see_and_end_a_link(two: Board, hook: SlackHook) -> None:
    """A member sees the own one; another's is not there for them. Linking and its end are audited as the member's."""
    owner = two.people[0]
    with Colleague(owner, "member") as one, Colleague(owner, "member") as other:
        hook.link(one.http, user="U1")
        hook.link(other.http, user="U2")
        [mine], everybodys = links(one.http), links(owner.http)
        assert mine == (one.id, "T1DC2JH3J", "U1")
        assert {user for user, *_ in everybodys} == {one.id, other.id}
        ids = {link["user_id"]: link["id"] for link in owner.http.get("/api/slack/links").json()}
        assert one.http.delete(f"/api/slack/links/{ids[other.id]}").status_code == 404
        assert one.http.delete(f"/api/slack/links/{ids[one.id]}").status_code == 204
        assert owner.http.delete(f"/api/slack/links/{ids[other.id]}").status_code == 204
        told = [
            (entry["kind"], entry["user_id"], entry["resource_id"])
            for entry in reversed(owner.http.get("/api/audit").json())
            if entry["kind"].startswith("slack.")
        ]
        assert told == [
            ("slack.linked", one.id, ids[one.id]),
            ("slack.linked", other.id, ids[other.id]),
            ("slack.unlinked", one.id, ids[one.id]),
            ("slack.unlinked", owner.user["id"], ids[other.id]),
        ]


def test_who_may_not_decide_makes_no_code(two: Board) -> None:
    """No viewer, and no token that decides nothing."""
    owner = two.people[0]
    with Colleague(owner, "viewer") as viewer:
        assert viewer.http.post("/api/slack/link-codes").status_code == 403
    token = owner.http.post(
        "/auth/login", json={"email": owner.email, "password": PASSWORD, "scope": "cli"}
    ).json()["access_token"]
    answer = owner.http.post("/api/slack/link-codes", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 403


def test_who_guesses_is_slowed_and_keeps_nobody_else_waiting(two: Board, hook: SlackHook) -> None:
    """A few wrong codes are free; then even the right one waits, for this Slack user alone."""
    code = code_of(two.people[0].http)
    said = [hook.say("link AAAA-AAAA-AAAA-AAAA", user="UGUESSER") for _ in range(6)]
    assert said[:5] == [WRONG] * 5
    assert "Too many wrong codes" in hook.say(f"link {code}", user="UGUESSER")
    assert hook.say(f"link {code}") == LINKED


def test_many_guesses_at_once_are_no_more_than_one_after_the_other(two: Board, hook: SlackHook) -> None:
    """Of twenty at once no more are looked at than of twenty in a row."""
    with ThreadPoolExecutor(10) as pool:
        said = list(pool.map(lambda _: hook.say("link AAAA-AAAA-AAAA-AAAA"), range(20)))
    assert 5 <= said.count(WRONG) <= 8
    assert all("Too many" in words for words in said if words != WRONG)


def test_one_code_typed_by_many_at_once_links_one(two: Board, hook: SlackHook) -> None:
    """And many codes typed by one link one."""
    code = code_of(two.people[0].http)
    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(lambda number: hook.say(f"link {code}", user=f"U{number}"), range(8)))
    assert said.count(LINKED) == 1
    assert len(links(two.people[0].http)) == 1


def test_anything_else_is_answered_with_help(hook: SlackHook) -> None:
    """Whatever is typed."""
    for text in ("", "help", "link", "link ", "unlink me", "<!channel>"):
        assert "/toolgate link CODE" in hook.say(text)
    assert hook.send(command("link x", user="U 1")).status_code == 400
