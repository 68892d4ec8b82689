"""Pages by cursor (decisions §2), held for every list that has them."""

from collections.abc import Iterator
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from support.bulk import write_entries
from support.gateway import LiveGateway, Owner
from support.pages import pages, walked
from support.shapes import complaints

LISTS = ("/api/logs", "/api/approvals", "/api/audit")


@pytest.fixture(scope="module")
def busy(gateway: LiveGateway) -> Iterator[Owner]:
    """An organization with 23 log entries and approvals, and more audit entries."""
    with Owner(gateway.url, organization="Busy") as owner:
        agent = owner.agent()
        owner.permit(agent, "held", requires_approval=True)
        for number in range(23):
            assert owner.log(agent, "a", context={"n": number}).status_code == 200
            assert owner.check(agent, "held", {"n": number}).json()["requires_approval"]
            owner.http.put(f"/api/agents/{agent}", json={"name": f"bot {number}"})
        yield owner


def cursor_of(answer: httpx.Response) -> str:
    return dict(parse_qsl(urlsplit(answer.links["next"]["url"]).query))["cursor"]


@pytest.mark.parametrize("path", LISTS)
def test_following_the_links_reads_the_whole_list_in_order(busy: Owner, path: str) -> None:
    """Page after page, nothing is missing or doubled, newest first, and the last page links nowhere."""
    whole = busy.http.get(path, params={"limit": 100}).json()
    sizes = [len(page.json()) for page in pages(busy, path, limit=5)]
    assert sizes[:-1] == [5] * (len(sizes) - 1)
    assert walked(busy, path, limit=5) == whole
    assert len(whole) >= 23
    order = [(thing["created_at"], thing["id"]) for thing in whole]
    assert order == sorted(order, reverse=True)


@pytest.mark.parametrize("path", LISTS)
def test_a_page_that_holds_the_rest_links_nowhere(busy: Owner, path: str) -> None:
    """A full last page is the last page."""
    total = int(busy.http.get(path).headers["X-Total-Count"])
    assert "next" not in busy.http.get(path, params={"limit": total}).links
    assert "next" in busy.http.get(path, params={"limit": total - 1}).links


@pytest.mark.parametrize("path", LISTS)
def test_the_total_is_counted_whatever_the_page(busy: Owner, path: str) -> None:
    """`X-Total-Count` is the length of the list under its filters, on every page."""
    whole = busy.http.get(path, params={"limit": 100}).json()
    counts = {page.headers["X-Total-Count"] for page in pages(busy, path, limit=7)}
    assert counts == {str(len(whole))}
    assert busy.http.get(path, params={"offset": 1000}).headers["X-Total-Count"] == str(len(whole))


def test_a_link_keeps_filters_and_environment(gateway: LiveGateway, newcomer: Owner) -> None:
    """The next page answers the same question as the one before."""
    made = newcomer.http.post("/api/agents", json={"name": "t"}, params={"environment": "test"})
    agent, other = made.json()["id"], newcomer.agent()
    write_entries(gateway, newcomer, [agent], 48, environment="test")
    write_entries(gateway, newcomer, [other], 48)
    found = walked(
        newcomer,
        "/api/logs",
        environment="test",
        agent_id=agent,
        status="denied",
        action="action.1",
        limit=1,
    )
    assert len(found) == 4
    wanted = (agent, "denied", "action.1")
    assert {(entry["agent_id"], entry["status"], entry["action"]) for entry in found} == {wanted}


def test_what_is_written_between_two_pages_moves_nothing(newcomer: Owner) -> None:
    """Entries that come meanwhile are neither shown twice nor push others out of sight."""
    agent = newcomer.agent()
    first = [newcomer.log(agent, "a").json()["id"] for _ in range(9)]
    seen = []
    for page in pages(newcomer, "/api/logs", limit=2):
        seen += [entry["id"] for entry in page.json()]
        newcomer.log(agent, "a")
        newcomer.log(agent, "a")
    assert seen == first[::-1]


def test_the_count_ends_at_ten_thousand(gateway: LiveGateway, newcomer: Owner) -> None:
    """10,000 entries are counted; one more is `10000+`."""
    agent = newcomer.agent()
    write_entries(gateway, newcomer, [agent], 10_000)
    assert newcomer.http.get("/api/logs", params={"limit": 1}).headers["X-Total-Count"] == "10000"
    newcomer.log(agent, "one.more")
    assert newcomer.http.get("/api/logs", params={"limit": 1}).headers["X-Total-Count"] == "10000+"
    filtered = newcomer.http.get("/api/logs", params={"limit": 1, "action": "one.more"})
    assert filtered.headers["X-Total-Count"] == "1"


@pytest.mark.parametrize("path", LISTS)
def test_a_cursor_that_was_tampered_with_is_refused(busy: Owner, path: str) -> None:
    """Whichever character is changed, added or cut, the answer is 400 under its name."""
    cursor = cursor_of(busy.http.get(path, params={"limit": 1}))
    changed = [
        cursor[:place] + ("A" if cursor[place] != "A" else "B") + cursor[place + 1 :]
        for place in range(0, len(cursor), 5)
    ]
    for wrong in [*changed, cursor[:-1], cursor[:-4], cursor + "A", cursor + "AAAA", "", "x", "é", "\0", " "]:
        assert list(complaints(busy.http.get(path, params={"limit": 1, "cursor": wrong}))) == ["cursor"]
    assert busy.http.get(path, params={"limit": 1, "cursor": cursor}).status_code == 200


def test_a_cursor_answers_only_its_own_question(busy: Owner, rival: Owner) -> None:
    """With other filters, another list, another environment or another organization it is refused."""
    cursor = cursor_of(busy.http.get("/api/logs", params={"limit": 1, "action": "a"}))
    asked = {"limit": 1, "action": "a", "cursor": cursor}
    assert busy.http.get("/api/logs", params=asked | {"limit": 50}).status_code == 200
    for wrong in (asked | {"action": "b"}, asked | {"environment": "test"}, asked | {"status": "success"}):
        assert list(complaints(busy.http.get("/api/logs", params=wrong))) == ["cursor"]
    assert list(complaints(busy.http.get("/api/approvals", params=asked))) == ["cursor"]
    assert list(complaints(rival.http.get("/api/logs", params=asked))) == ["cursor"]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/api/logs", "agent_id"),
        ("/api/logs", "action"),
        ("/api/approvals", "agent_id"),
        ("/api/approvals", "action"),
        ("/api/audit", "kind"),
        ("/api/audit", "user_id"),
    ],
)
@pytest.mark.parametrize(
    "value",
    ["%00", "a%00b", "%ED%A0%80", "%FF", "%F0%9F%98%80", "", "x" * 5000],
    ids=["nul", "nul-inside", "surrogate", "no-utf-8", "emoji", "empty", "long"],
)
def test_a_filter_that_cannot_match_finds_nothing(busy: Owner, path: str, name: str, value: str) -> None:
    """Text that no database column holds is never an error of the gateway."""
    url = httpx.URL(busy.url).copy_with(raw_path=f"{path}?{name}={value}".encode())
    answer = busy.http.get(url)
    assert (answer.status_code, answer.json()) == (200, [])
    assert answer.headers["X-Total-Count"] == "0"
