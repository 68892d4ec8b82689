"""Settings of the organization's name and team."""

import re
from functools import partial
from pathlib import Path

import pytest
from support.console import Reader, field, text_of
from support.crowd import together
from support.gateway import LiveGateway, Owner
from support.mailbox import Mailbox
from support.team import Colleague, accept, fresh_email, invite

TEAM = "/console/settings/team"


def people(owner: Owner) -> dict[str, str]:
    return {one["email"]: one["role"] for one in owner.http.get("/api/team").json()["users"]}


def invited(owner: Owner) -> list[str]:
    return [one["email"] for one in owner.http.get("/api/team").json()["invitations"]]


def ask(reader: Reader, email: str, role: str = "member") -> dict[str, str]:
    return {
        "token": reader.token(),
        "newest": field(reader.page(TEAM), "newest"),
        "email": email,
        "role": role,
    }


def test_the_organization_is_renamed(newcomer: Owner) -> None:
    """The name is escaped; an invalid one is refused and kept in the form."""
    with Reader.of(newcomer.url, newcomer.email) as reader:
        way = "/console/settings/name"
        assert reader.submit(way, token=reader.token(), name="<b>New</b>").status_code == 303
        assert newcomer.http.get("/api/organization").json()["name"] == "<b>New</b>"
        page = reader.page("/console/settings")
        assert ("&lt;b&gt;New" in page, "<b>New" in page) == (True, False)
        answer = reader.submit(way, token=reader.token(), name="x" * 101)
        assert (answer.status_code, 'class="problem"' in answer.text, "x" * 101 in answer.text) == (
            400,
            True,
            True,
        )


def test_settings_explain_test_mode(maya: Reader) -> None:
    """Settings of both environments are not labelled as test."""
    page = maya.page("/console/settings?environment=test")
    assert 'href="/console/settings"' in page
    assert "test_" in page
    assert "Production is not affected" not in page
    assert "Production is not affected" in maya.page("/console/settings/keys?environment=test")


def test_a_user_is_invited(newcomer: Owner) -> None:
    """The link is shown once and works; a repeated form does nothing."""
    email = fresh_email()
    with Reader.of(newcomer.url, newcomer.email) as reader:
        form = ask(reader, email, "viewer")
        answer = reader.submit(f"{TEAM}/invitations", **form)
        [token] = re.findall(r"/console/invitation#token=([\w-]+)", answer.text)
        assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-store")
        page = reader.page(TEAM)
        assert (email in page, token in page) == (True, False)
        again = reader.submit(f"{TEAM}/invitations", **form)
        assert (again.status_code, invited(newcomer)) == (409, [email])
    assert accept(newcomer.url, token).status_code == 200
    assert people(newcomer)[email] == "viewer"


def test_of_two_simultaneous_invitations_one_succeeds(newcomer: Owner) -> None:
    """No link that was shown is replaced unseen."""
    with Reader.of(newcomer.url, newcomer.email) as one, Reader.of(newcomer.url, newcomer.email) as other:
        for _ in range(3):
            posts = [
                partial(reader.submit, f"{TEAM}/invitations", **ask(reader, "a@b.test"))
                for reader in (one, other)
            ]
            assert sorted(answer.status_code for answer in together(*posts)) == [200, 409]
    assert invited(newcomer) == ["a@b.test"]


def test_an_invitation_is_revoked(maya: Reader, acme: Owner) -> None:
    link = invite(acme, fresh_email()).json()
    way = f"{TEAM}/invitations/{link['id']}/revoke"
    assert maya.submit(way, token=maya.token()).status_code == 303
    assert link["email"] not in invited(acme)
    assert accept(acme.url, link["link"].partition("#token=")[2]).status_code == 400
    assert maya.submit(way, token=maya.token()).status_code == 404


@pytest.mark.parametrize(("email", "role"), [("nobody", "member"), ("a@b.test", "owner"), ("", "member")])
def test_an_invalid_invitation_is_refused(maya: Reader, acme: Owner, email: str, role: str) -> None:
    """400 on the page with the typed values."""
    before = invited(acme)
    answer = maya.submit(f"{TEAM}/invitations", **ask(maya, email, role))
    assert (answer.status_code, 'role="alert"' in answer.text) == (400, True)
    assert field(answer.text, "email") == email
    assert invited(acme) == before


def test_a_registered_email_is_not_invited(maya: Reader, acme: Owner) -> None:
    """The page shows the service's error."""
    answer = maya.submit(f"{TEAM}/invitations", **ask(maya, acme.email))
    assert (answer.status_code, "E-mail already registered" in answer.text) == (400, True)


def test_a_full_plan_refuses_invitations(frugal: Owner) -> None:
    """The page shows the limit and links to the plans."""
    with Reader.of(frugal.url, frugal.email) as reader:
        answer = reader.submit(f"{TEAM}/invitations", **ask(reader, fresh_email()))
        assert (answer.status_code, "limit of team_members is reached: 1/1" in answer.text) == (403, True)


def test_roles_change_and_members_are_removed(newcomer: Owner) -> None:
    """A changed role requires a new sign-in; a removed member is signed out."""
    with (
        Reader.of(newcomer.url, newcomer.email) as reader,
        Colleague(newcomer) as ben,
        Reader.of(newcomer.url, ben.email) as other,
    ):
        token = reader.token()
        assert ben.email in text_of(reader.page(TEAM))
        assert reader.submit(f"{TEAM}/{ben.id}/role", token=token, role="viewer").status_code == 303
        assert people(newcomer)[ben.email] == "viewer"
        assert other.get("/console/approvals").status_code == 303
        wrong = reader.submit(f"{TEAM}/{ben.id}/role", token=token, role="king")
        assert (wrong.status_code, people(newcomer)[ben.email]) == (400, "viewer")
        assert reader.submit(f"{TEAM}/{ben.id}/remove", token=token).status_code == 303
        assert ben.email not in people(newcomer)


def test_the_last_admin_stays(maya: Reader, acme: Owner) -> None:
    """409 with the service's error, and nothing changes."""
    way = f"{TEAM}/{acme.user['id']}"
    for what, more in (("role", {"role": "viewer"}), ("remove", {})):
        answer = maya.submit(f"{way}/{what}", token=maya.token(), **more)
        assert (answer.status_code, "last admin" in answer.text) == (409, True)
    assert people(acme)[acme.email] == "admin"


def test_a_member_reads_the_team(acme: Owner) -> None:
    """Without invitations and without forms."""
    link = invite(acme, fresh_email()).json()
    with Colleague(acme) as colleague, Reader.of(acme.url, colleague.email) as member:
        page = member.page(TEAM)
        assert (acme.email in page, link["email"] in page, "Remove" in page) == (True, False, False)
        token = member.token()
        for what, more in (
            ("invitations", {"email": fresh_email(), "role": "admin", "newest": ""}),
            (f"invitations/{link['id']}/revoke", {}),
            (f"{colleague.id}/role", {"role": "admin"}),
            (f"{acme.user['id']}/remove", {}),
        ):
            assert member.submit(f"{TEAM}/{what}", token=token, **more).status_code == 403
        assert member.submit("/console/settings/name", token=token, name="Mine").status_code == 403
    assert link["email"] in invited(acme)


def test_a_link_sent_by_mail_is_not_on_the_page(tmp_path: Path) -> None:
    """Invitations and password resets."""
    with Mailbox() as mailbox:
        env = {
            "TOOLGATE_SMTP_URL": mailbox.url(),
            "TOOLGATE_MAIL_FROM": "Toolgate <toolgate@example.test>",
            "TOOLGATE_PUBLIC_URL": "http://127.0.0.1:1",
        }
        with LiveGateway(tmp_path, env=env) as gateway, Owner(gateway.url) as owner:
            email = fresh_email()
            with Reader.of(owner.url, owner.email) as reader:
                answer = reader.submit(f"{TEAM}/invitations", **ask(reader, email))
                assert ("An e-mail with the link" in answer.text, "#token=" in answer.text) == (True, False)
            assert "#token=" in mailbox.next().get_content()
            with Reader(owner.url) as stranger:
                told = {
                    text_of(stranger.submit("/console/forgotten", email=one).text)
                    for one in (owner.email, fresh_email())
                }
            [said] = told
            assert "If this e-mail address is registered" in said
            assert "/console/password-reset#token=" in mailbox.next(1).get_content()
