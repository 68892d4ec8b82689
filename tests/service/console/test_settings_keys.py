"""Pages of API keys: the organization's, and those of single agents."""

import re
from collections.abc import Iterator

import httpx
import pytest
from support.console import Reader, field, text_of
from support.gateway import LiveGateway, Owner
from support.insight import key_to_test
from support.team import Colleague

KEYS = "/console/settings/keys"
WHOLE = re.compile(r"\b(?:ak_[a-z0-9]{37}|test_[a-z0-9]{35})\b")


@pytest.fixture(scope="module")
def member(acme: Owner) -> Iterator[Reader]:
    """Browser of a member, who sees no keys."""
    with Colleague(acme) as colleague, Reader.of(acme.url, colleague.email) as reader:
        yield reader


def works(url: str, key: str) -> bool:
    return httpx.get(f"{url}/sdk/permissions?agent_id=x", headers={"X-API-Key": key}).status_code != 401


def kinds(owner: Owner) -> list[str]:
    return [one["kind"] for one in owner.http.get("/api/audit").json()]


def test_a_key_is_shown_on_request(newcomer: Owner) -> None:
    """Never in an address or cache, and recorded in the audit log."""
    with Reader.of(newcomer.url, newcomer.email) as reader:
        before = len(kinds(newcomer))
        page = reader.page(KEYS)
        assert (f"ak_…{newcomer.key[-4:]}" in page, WHOLE.findall(page)) == (True, [])
        assert len(kinds(newcomer)) == before
        answer = reader.submit(f"{KEYS}/show", token=field(page, "token"))
        assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-store")
        assert set(WHOLE.findall(answer.text)) == {newcomer.key}
        # Without scripts users select the key by hand.
        assert 'data-copy="secret" hidden' in answer.text
        assert kinds(newcomer)[0] == "organization.key_shown"
        assert WHOLE.findall(reader.page(KEYS)) == []
        assert reader.get(f"{KEYS}/show").status_code == 405


def test_each_environment_has_its_own_key(maya: Reader, gateway: LiveGateway, acme: Owner) -> None:
    answer = maya.submit(f"{KEYS}/show?environment=test", token=maya.token())
    assert set(WHOLE.findall(answer.text)) == {key_to_test(gateway, acme)}


def test_a_replaced_key_stops_working_at_once(newcomer: Owner) -> None:
    """A repeated form does nothing."""
    with Reader.of(newcomer.url, newcomer.email) as reader:
        page = reader.page(KEYS)
        assert "stops working immediately" in page
        form = {"token": field(page, "token"), "newest": field(page, "newest")}
        answer = reader.submit(f"{KEYS}/regenerate", **form)
        [made] = set(WHOLE.findall(answer.text))
        assert (works(newcomer.url, newcomer.key), works(newcomer.url, made)) == (False, True)
        again = reader.submit(f"{KEYS}/regenerate", **form)
        assert (again.status_code, "submitted before" in again.text, WHOLE.findall(again.text)) == (
            409,
            True,
            [],
        )
        assert works(newcomer.url, made)


@pytest.mark.parametrize("what", ["show", "regenerate"])
def test_a_member_sees_no_key(member: Reader, what: str) -> None:
    """Masked, without buttons; the form returns 403."""
    page = member.page(KEYS)
    assert (WHOLE.findall(page), "Show the key" in page, "Replace" in page) == ([], False, False)
    answer = member.submit(f"{KEYS}/{what}", token=member.token(), newest=field(page + NOTHING, "newest"))
    assert (answer.status_code, WHOLE.findall(answer.text)) == (403, [])
    assert "only an admin may do that" in answer.text


#: for pages without the field
NOTHING = '<input name="newest" value="">'


def test_an_agent_gets_a_key_of_its_own(maya: Reader, acme: Owner) -> None:
    """It is created, shown, listed masked, shown on request and revoked."""
    agent = acme.agent("keyed")
    way = f"/console/agents/{agent}/keys"
    assert f'href="{way}"' in maya.page(f"/console/agents/{agent}")
    page = maya.page(way)
    assert "No keys" in page
    form = {"token": maya.token(), "newest": field(page, "newest")}
    answer = maya.submit(way, **form)
    assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-store")
    [key] = set(WHOLE.findall(answer.text))
    assert works(acme.url, key)
    again = maya.submit(way, **form)
    assert (again.status_code, WHOLE.findall(again.text)) == (409, [])
    [one] = acme.http.get(f"/api/agents/{agent}/keys").json()
    page = maya.page(way)
    assert (f"ak_…{key[-4:]} " in text_of(page), WHOLE.findall(page)) == (True, [])
    assert WHOLE.findall(maya.submit(f"{way}/show", token=maya.token()).text) == [key]
    assert maya.submit(f"{way}/{one['id']}/delete", token=maya.token()).status_code == 303
    assert not works(acme.url, key)
    assert maya.submit(f"{way}/{one['id']}/delete", token=maya.token()).status_code == 404


def test_advisory_key_is_created_and_marked(maya: Reader, acme: Owner) -> None:
    agent = acme.agent("advised")
    way = f"/console/agents/{agent}/keys"
    newest = field(maya.page(way), "newest")
    answer = maya.submit(way, token=maya.token(), newest=newest, advisory="on")
    assert answer.status_code == 200
    [key] = acme.http.get(f"/api/agents/{agent}/keys").json()
    assert key["advisory"] is True
    assert " advisory " in text_of(maya.page(way))


def test_a_member_sees_no_agents_key(member: Reader, acme: Owner) -> None:
    """Creating, showing and revoking need an administrator."""
    agent = acme.agent()
    key = acme.http.post(f"/api/agents/{agent}/keys").json()
    way = f"/console/agents/{agent}/keys"
    page = member.page(way)
    assert (f"ak_…{key['api_key'][-4:]}" in page, WHOLE.findall(page)) == (True, [])
    for what in ("", "/show", f"/{key['id']}/delete"):
        answer = member.submit(way + what, token=member.token(), newest=key["id"])
        assert (answer.status_code, WHOLE.findall(answer.text)) == (403, [])
    assert len(acme.http.get(f"/api/agents/{agent}/keys").json()) == 1
