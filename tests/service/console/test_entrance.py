"""Signing in and out, registering, joining, and the pages that links in mails lead to."""

import re

import pytest
from support.console import Reader, field
from support.gateway import PASSWORD, LiveGateway, Owner
from support.insight import set_role
from support.team import fresh_email, invite, token_of

NEW = "a new correct horse"


def is_out(reader: Reader) -> bool:
    answer = reader.get("/console/approvals")
    return answer.status_code == 303 and "/console/sign-in" in answer.headers["Location"]


def test_whoever_signs_in_comes_where_they_wanted(acme: Owner, stranger: Reader) -> None:
    """A page asked for before leads to the form, and from there back to it, in its environment."""
    asked = stranger.get("/console/approvals/decided?environment=test")
    form = stranger.page(asked.headers["Location"])
    then = field(form, "next")
    answer = stranger.submit("/console/sign-in", email=acme.email, password=PASSWORD, next=then)
    assert (answer.status_code, answer.headers["Location"]) == (
        303,
        "/console/approvals/decided?environment=test",
    )
    assert "Test environment" in stranger.page(answer.headers["Location"])


def test_an_address_keeps_what_it_asks_for(acme: Owner, stranger: Reader) -> None:
    """A page of the log that was passed on shows the same after signing in: its filters stand in its address."""
    way = "/console/logs?environment=test&status=denied&when=7d&q=%C3%A9+%26+%3Cb%3E%25"
    then = field(stranger.page(stranger.get(way).headers["Location"]), "next")
    answer = stranger.submit("/console/sign-in", email=acme.email, password=PASSWORD, next=then)
    assert answer.headers["Location"] == way
    page = stranger.page(way)
    assert ("Test environment" in page, field(page, "q")) == (True, "é & <b>%")
    [again] = re.findall('href="([^"]*)">Sign in again', page)
    stranger.http.cookies.clear()
    assert field(stranger.page(again), "next") == way


@pytest.mark.parametrize(
    "way",
    [
        "https://evil.test",
        "//evil.test",
        "/\\evil.test",
        "/console/../api",
        "/consolex",
        "/console\n/x",
        "javascript:1",
        "/console?a=b#c",
        "/console?a=b\r\nSet-Cookie: x=1",
        "/console?" + "a" * 4_000,
    ],
)
def test_nobody_is_led_elsewhere(acme: Owner, stranger: Reader, way: str) -> None:
    """Whatever a link says, one goes on within the console."""
    answer = stranger.submit("/console/sign-in", email=acme.email, password=PASSWORD, next=way)
    assert answer.headers["Location"] == "/console/approvals"


def test_a_wrong_password_is_told_and_not_repeated(acme: Owner, stranger: Reader) -> None:
    """401 on the form itself, with the e-mail and without the password; no cookie."""
    answer = stranger.submit("/console/sign-in", email=acme.email, password="not this one")
    assert answer.status_code == 401
    assert "Invalid e-mail or password" in answer.text
    assert field(answer.text, "email") == acme.email
    assert "not this one" not in answer.text
    assert "Set-Cookie" not in answer.headers


def test_what_was_typed_is_escaped(stranger: Reader) -> None:
    """A form shows what it was sent as text."""
    answer = stranger.submit("/console/sign-in", email='"><script>x</script>', password="x")
    assert "<script>x" not in answer.text


def test_signing_out_ends_the_session(newcomer: Owner) -> None:
    """The cookie is taken, and the token in it works no more."""
    with Reader.of(newcomer.url, newcomer.email) as reader, Reader(newcomer.url) as thief:
        thief.http.cookies.update(reader.http.cookies)
        assert not is_out(thief)
        answer = reader.submit("/console/sign-out", token=reader.token())
        assert answer.headers["Location"] == "/console/sign-in"
        assert "Max-Age=0" in answer.headers["Set-Cookie"]
        assert is_out(reader)
        assert is_out(thief)


def test_a_session_ends_with_the_password(newcomer: Owner) -> None:
    """Changed elsewhere, the password takes every session with it."""
    with Reader.of(newcomer.url, newcomer.email) as reader:
        assert not is_out(reader)
        body = {"current_password": PASSWORD, "new_password": NEW}
        assert newcomer.http.post("/auth/password", json=body).status_code == 200
        assert is_out(reader)


def test_a_role_counts_from_the_next_request_on(gateway: LiveGateway, newcomer: Owner) -> None:
    """User and role are read anew: whoever was made a viewer decides nothing any more."""
    agent = newcomer.agent()
    newcomer.permit(agent, "a.b", requires_approval=True)
    approval = newcomer.check(agent, "a.b").json()["approval_id"]
    with Reader.of(newcomer.url, newcomer.email) as reader:
        token = reader.token()
        set_role(gateway, newcomer, "viewer")
        answer = reader.submit(f"/console/approvals/{approval}/approve", token=token, digest="0" * 64)
        assert answer.status_code == 403


@pytest.mark.parametrize("cookie", ["", "garbage", "ey.ey.ey", "a.b.c" * 500])
def test_a_made_up_cookie_opens_nothing(stranger: Reader, cookie: str) -> None:
    """Whatever is no token of ours leads to the form."""
    answer = stranger.get("/console/approvals", Cookie=f"toolgate-console={cookie}")
    assert (answer.status_code, answer.headers["Location"]) == (
        303,
        "/console/sign-in?next=/console/approvals",
    )


def test_an_organization_is_created(stranger: Reader) -> None:
    """Registration signs its owner in; a field that is wrong is named beside it."""
    wrong = stranger.submit("/console/register", email="x", password="short", organization_name="")
    assert wrong.status_code == 400
    assert wrong.text.count('aria-invalid="true"') == 3
    answer = stranger.submit(
        "/console/register", email=fresh_email(), password=PASSWORD, organization_name="Über & Söhne"
    )
    assert answer.status_code == 303
    assert "Über &amp; Söhne" in stranger.page("/console/approvals")


def test_the_link_of_an_invitation_leads_in(acme: Owner, stranger: Reader) -> None:
    """The page is where links of mails point; without scripts the whole link is pasted."""
    invited = invite(acme, role="member")
    link = invited.json()["link"]
    assert re.match(r"http://[^/]+/console/invitation#token=", link)
    assert 'name="token"' in stranger.page("/console/invitation")
    answer = stranger.submit("/console/invitation", token=link, password=PASSWORD)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/console/approvals")
    assert "member" in stranger.page("/console/approvals")
    again = stranger.submit("/console/invitation", token=token_of(invited), password=PASSWORD)
    assert (again.status_code, "used already" in again.text) == (400, True)


def test_a_reset_without_a_good_token_changes_nothing(acme: Owner, stranger: Reader) -> None:
    """A stale link is told on the page itself."""
    assert 'name="new_password"' in stranger.page("/console/password-reset")
    answer = stranger.submit("/console/password-reset", token="nobody's", new_password=NEW)
    assert answer.status_code == 400
    with Reader.of(acme.url, acme.email) as reader:
        assert not is_out(reader)
