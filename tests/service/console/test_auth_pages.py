"""Sign-in, registration, invitation and password reset."""

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


def test_sign_in_leads_back_to_the_requested_page(acme: Owner, stranger: Reader) -> None:
    """The environment is kept."""
    asked = stranger.get("/console/approvals/decided?environment=test")
    form = stranger.page(asked.headers["Location"])
    then = field(form, "next")
    answer = stranger.submit("/console/sign-in", email=acme.email, password=PASSWORD, next=then)
    assert (answer.status_code, answer.headers["Location"]) == (
        303,
        "/console/approvals/decided?environment=test",
    )
    assert "Test environment" in stranger.page(answer.headers["Location"])


def test_sign_in_keeps_the_query_of_the_requested_page(acme: Owner, stranger: Reader) -> None:
    """Filters of the log survive the sign-in."""
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
def test_sign_in_never_redirects_to_another_site(acme: Owner, stranger: Reader, way: str) -> None:
    """Every other `next` leads to the inbox."""
    answer = stranger.submit("/console/sign-in", email=acme.email, password=PASSWORD, next=way)
    assert answer.headers["Location"] == "/console/approvals"


def test_a_wrong_password_is_refused(acme: Owner, stranger: Reader) -> None:
    """The form returns 401 with the e-mail, without the password and without a cookie."""
    answer = stranger.submit("/console/sign-in", email=acme.email, password="not this one")
    assert answer.status_code == 401
    assert "Invalid e-mail or password" in answer.text
    assert field(answer.text, "email") == acme.email
    assert "not this one" not in answer.text
    assert "Set-Cookie" not in answer.headers


def test_typed_values_are_escaped(stranger: Reader) -> None:
    answer = stranger.submit("/console/sign-in", email='"><script>x</script>', password="x")
    assert "<script>x" not in answer.text


def test_signing_out_ends_the_session(newcomer: Owner) -> None:
    """The cookie is deleted and its token no longer works."""
    with Reader.of(newcomer.url, newcomer.email) as reader, Reader(newcomer.url) as thief:
        thief.http.cookies.update(reader.http.cookies)
        assert not is_out(thief)
        answer = reader.submit("/console/sign-out", token=reader.token())
        assert answer.headers["Location"] == "/console/sign-in"
        assert "Max-Age=0" in answer.headers["Set-Cookie"]
        assert is_out(reader)
        assert is_out(thief)


def test_a_session_ends_with_the_password(newcomer: Owner) -> None:
    """Changing the password elsewhere ends every session."""
    with Reader.of(newcomer.url, newcomer.email) as reader:
        assert not is_out(reader)
        body = {"current_password": PASSWORD, "new_password": NEW}
        assert newcomer.http.post("/auth/password", json=body).status_code == 200
        assert is_out(reader)


def test_a_changed_role_applies_to_the_next_request(gateway: LiveGateway, newcomer: Owner) -> None:
    """A user who became a viewer cannot decide."""
    agent = newcomer.agent()
    newcomer.permit(agent, "a.b", requires_approval=True)
    approval = newcomer.check(agent, "a.b").json()["approval_id"]
    with Reader.of(newcomer.url, newcomer.email) as reader:
        token = reader.token()
        set_role(gateway, newcomer, "viewer")
        answer = reader.submit(f"/console/approvals/{approval}/approve", token=token, digest="0" * 64)
        assert answer.status_code == 403


@pytest.mark.parametrize("cookie", ["", "garbage", "ey.ey.ey", "a.b.c" * 500])
def test_an_invalid_cookie_is_refused(stranger: Reader, cookie: str) -> None:
    answer = stranger.get("/console/approvals", Cookie=f"toolgate-console={cookie}")
    assert (answer.status_code, answer.headers["Location"]) == (
        303,
        "/console/sign-in?next=/console/approvals",
    )


def test_an_organization_is_created(stranger: Reader) -> None:
    """Registration signs the owner in; errors are shown at their field."""
    wrong = stranger.submit("/console/register", email="x", password="short", organization_name="")
    assert wrong.status_code == 400
    assert wrong.text.count('aria-invalid="true"') == 3
    answer = stranger.submit(
        "/console/register", email=fresh_email(), password=PASSWORD, organization_name="Über & Söhne"
    )
    assert answer.status_code == 303
    assert "Über &amp; Söhne" in stranger.page("/console/approvals")


def test_an_invitation_is_accepted(acme: Owner, stranger: Reader) -> None:
    """E-mails link to this page; without scripts the whole link is pasted."""
    invited = invite(acme, role="member")
    link = invited.json()["link"]
    assert re.match(r"http://[^/]+/console/invitation#token=", link)
    assert 'name="token"' in stranger.page("/console/invitation")
    answer = stranger.submit("/console/invitation", token=link, password=PASSWORD)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/console/approvals")
    assert "member" in stranger.page("/console/approvals")
    again = stranger.submit("/console/invitation", token=token_of(invited), password=PASSWORD)
    assert (again.status_code, "used already" in again.text) == (400, True)


def test_a_reset_with_an_invalid_token_changes_nothing(acme: Owner, stranger: Reader) -> None:
    assert 'name="new_password"' in stranger.page("/console/password-reset")
    answer = stranger.submit("/console/password-reset", token="nobody's", new_password=NEW)
    assert answer.status_code == 400
    with Reader.of(acme.url, acme.email) as reader:
        assert not is_out(reader)
