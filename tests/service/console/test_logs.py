"""Log pages: filters, paging, search, one entry, export."""

import html
import re
from datetime import UTC, datetime, timedelta

import pytest
from support.console import Reader, text_of
from support.gateway import LiveGateway, Owner
from support.team import Colleague

LOGS = "/console/logs"
HOSTILE = {
    "script": "<script>alert(1)</script>",
    "amount": "invoice\u202egpj.exe",
    "controls": "a\x1b[31mb\x07\u2028c\x7f",
    "attribute": '" autofocus onfocus="alert(1)',
    "<b>name</b>": "{{ 7 * 7 }}",
    "emoji": "👩\u200d👩\u200d👧 e\u0301\u0301\u0301\u0301\u0301\u0301",
}


def entries(page: str) -> list[str]:
    """Return the ids of the listed entries in order."""
    return re.findall(r'<tr id="entry-([0-9a-f-]{36})"', page)


def link(page: str, words: str) -> str:
    """Return the target of a link."""
    found = re.search(rf'<a [^>]*href="([^"]*)"[^>]*>{words}', page)
    assert found, page[:3000]
    return html.unescape(found[1])


class History:
    """Two agents with 120 entries each, oldest first."""

    def __init__(self, owner: Owner) -> None:
        self.agents = [owner.agent("one"), owner.agent("two")]
        self.ids: list[str] = []
        for start in range(0, 240, 80):
            sent = [
                {
                    "agent_id": self.agents[n % 2],
                    "action": f"action.{n % 3}",
                    "status": ("success", "failed", "pending", "denied")[n % 4],
                    "context": {"number": f"nr {n}", "amount": n},
                }
                for n in range(start, start + 80)
            ]
            answer = owner.http.post("/sdk/logs", json={"entries": sent}, headers={"X-API-Key": owner.key})
            self.ids += [one["entry"]["id"] for one in answer.json()["results"]]


@pytest.fixture(scope="module")
def history(acme: Owner) -> History:
    """Entries for paging; other tests use agents and actions of their own."""
    return History(acme)


def test_pages_follow_each_other(maya: Reader, history: History) -> None:
    """Fifty per page, newest first; entries written meanwhile do not shift pages."""
    page, found = maya.page(f"{LOGS}?action=action.1"), []
    assert "Back to the newest" not in page
    while True:
        found += entries(page)
        if "Older ones" not in page:
            break
        page = maya.page(link(page, "Older ones"))
        assert link(page, "Back to the newest") == f"{LOGS}?action=action.1"
    assert found == [one for n, one in enumerate(history.ids) if n % 3 == 1][::-1]


def test_filters_combine_and_are_in_the_address(maya: Reader, history: History) -> None:
    """Agent, action, status and time; each has a chip that removes it."""
    agent = history.agents[1]
    way = f"{LOGS}?agent_id={agent}&action=action.1&status=denied&when=1h&environment=production"
    page = maya.page(way)
    assert entries(page) == [one for n, one in enumerate(history.ids) if n % 12 == 7][::-1]
    assert "Action action.1" in text_of(page)
    for name, others in {
        "Agent": ["action=action.1", "status=denied", "when=1h"],
        "Status": [f"agent_id={agent}", "action=action.1", "when=1h"],
    }.items():
        lead = link(page, f'<span class="chip-name">{name}</span>')
        assert sorted(lead.removeprefix(f"{LOGS}?").split("&")) == sorted(others)
    assert f'<option value="{agent}" selected>two</option>' in page
    assert "<option selected>denied</option>" in page


def test_empty_fields_of_the_form_are_no_filters(maya: Reader, history: History) -> None:
    """Browsers without scripts send every field."""
    page = maya.page(f"{LOGS}?agent_id=&action=&status=failed&when=&q=&from=&to=")
    assert len(entries(page)) == 50
    assert len(entries(maya.page(link(page, "Older ones")))) == 10
    assert entries(maya.page(f"{LOGS}?action=+action.0+")) == entries(maya.page(f"{LOGS}?action=action.0"))


def test_a_time_range_has_both_ends(maya: Reader, acme: Owner, history: History) -> None:
    """The begin is included, the end excluded; UTC by default."""
    moments = [entry["created_at"] for entry in acme.entries(action="action.2", limit=20)]
    begins, ends = (moment.removesuffix("Z") for moment in (moments[9], moments[4]))
    found = entries(maya.page(f"{LOGS}?action=action.2&from={begins}&to={ends}"))
    assert found == [one for n, one in enumerate(history.ids) if n % 3 == 2][::-1][5:10]
    assert entries(maya.page(f"{LOGS}?action=action.2&to=2020-01-01T00:00")) == []


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("agent_id=x", "'x' is not the id of an agent"),
        ("action=a+b", "'a b' is not an action"),
        ("status=done", "unknown status 'done': expected one of success, failed, pending, denied"),
        ("status=<script>", "unknown status '<script>'"),
        ("when=2h", "unknown time range '2h'"),
        ("from=yesterday", "'yesterday' is not a time"),
        ("to=9999-99-99", "'9999-99-99' is not a time"),
        ("from=2026-01-02&to=2026-01-01", "must be later than 'from'"),
        ("when=1h&from=2026-01-01", "'1h' cannot be combined with 'from' and 'to'"),
        ("q=x&to=2026-01-01", "a text search needs a time range"),
        (f"q={'x' * 201}", "has 201 characters; the maximum is 200"),
        ("cursor=x", "is not a cursor of this list with these filters"),
        ("cursor=%00%ff", "is not a cursor of this list with these filters"),
    ],
)
def test_invalid_filters_are_refused(maya: Reader, query: str, said: str) -> None:
    """The page shows escaped errors and no entries; stream and export refuse them too."""
    answer = maya.get(f"{LOGS}?{query}")
    assert answer.status_code == 400
    assert said in text_of(answer.text)
    assert (entries(answer.text), "<script>" in answer.text) == ([], False)
    if "cursor" not in query:
        for way in ("/export?", "/events?since=1&"):
            assert maya.get(f"{LOGS}{way}{query}").status_code == 400


def test_a_cursor_is_good_for_its_own_filters(maya: Reader, rival: Owner, history: History) -> None:
    """Other filters, the other environment and another organization are refused."""
    lead = link(maya.page(f"{LOGS}?status=failed"), "Older ones")
    assert maya.get(lead).status_code == 200
    for other in (lead.replace("failed", "denied"), f"{lead}&environment=test", f"{lead}&q=a"):
        assert maya.get(other).status_code == 400
    with Reader.of(rival.url, rival.email) as reader:
        assert reader.get(lead).status_code == 400


def test_empty_results_are_explained(maya: Reader, acme: Owner) -> None:
    """An empty log, filters without matches, and an unknown agent."""
    assert "No log entries" in maya.page(f"{LOGS}?environment=test")
    assert "No matching entries" in maya.page(f"{LOGS}?action=nobody.did")
    unknown = "01a202b7-8a24-7f17-929a-19b62fee44cb"
    assert "No matching entries" in maya.page(f"{LOGS}?agent_id={unknown}")


def searched(reader: Reader, **query: str) -> tuple[list[str], int, list[str]]:
    """Search to the end; return the entries found, the number scanned, and the pages."""
    page, pages, found, looked_at = reader.http.get(LOGS, params=query).text, [], [], 0
    while True:
        pages.append(page)
        found += entries(page)
        said = re.search(r"Searched ([0-9,]+) entr", page)
        assert said, page[:3000]
        looked_at += int(said[1].replace(",", ""))
        # On a slow machine a search may end early with a link to continue.
        if "Search further" not in page:
            return found, looked_at, pages
        page = reader.page(link(page, "Search further"))


def test_a_text_is_searched_in_the_arguments(maya: Reader, acme: Owner, history: History) -> None:
    """Literally, within a day by default; the page shows how many entries were scanned and found."""
    agent = acme.agent("searched")
    wanted = acme.log(agent, "search.me", context={"note": 'Ünïcode "100%_\\"'}).json()["id"]
    acme.log(agent, "search.me", context={"note": "100 percent, ASCII"})
    for text in ("ÜNÏCODE", '"', "100%_", "\\", "%_\\"):
        found, looked_at, pages = searched(maya, q=text, action="search.me")
        assert (found, looked_at) == ([wanted], 2), text
        assert "the complete log" in pages[-1]
        assert "Last 24 hours" in text_of(pages[0])
    nothing, _, pages = searched(maya, q="<script>", agent_id=agent)
    assert nothing == []
    for page in pages:
        assert "<script>" not in page
        assert "/console/logs/export" not in page


def test_a_search_continues_on_the_next_page(maya: Reader, history: History) -> None:
    """At most fifty hits per page; the link continues behind the last scanned entry."""
    found, looked_at, pages = searched(maya, q="NR 1", when="1h", agent_id=history.agents[0])
    expected = [one for n, one in enumerate(history.ids) if n % 2 == 0 and f"nr {n}".startswith("nr 1")]
    assert (found, looked_at) == (expected[::-1], 120)
    assert len(pages) > 1
    assert all(len(entries(page)) <= 50 for page in pages)
    assert "back to" in text_of(pages[0])


@pytest.fixture(scope="module")
def hostile(acme: Owner) -> str:
    """An entry with hostile text in every field."""
    agent = acme.agent("<b>bad</b> bot")
    acme.log(agent, "hostile.long", context={"text": "<script>" + "y" * 60_000})
    fields = {
        "run_id": "<script>run",
        "call_id": '"><script>',
        "decision_id": "<script>d",
        "approval_id": "<script>a",
    }
    entry: str = acme.log(agent, "hostile.act", "failed", context=HOSTILE, **fields).json()["id"]
    return entry


def test_hostile_entries_are_escaped(maya: Reader, hostile: str) -> None:
    """In the list, in search results and on the entry's page."""
    pages = [
        maya.page(f"{LOGS}?action=hostile.act"),
        maya.page(f"{LOGS}?action=hostile.long"),
        maya.http.get(LOGS, params={"q": "<SCRIPT>", "action": "hostile.act"}).text,
        maya.page(f"{LOGS}/{hostile}"),
    ]
    for page in pages:
        assert "<script>a" not in page
        assert "<script>y" not in page
        assert "<b>" not in page
        assert " onfocus" not in re.sub(r">[^<]*<", "><", page)
        for bad in "\u202e\x1b\x07\u2028\x7f":
            assert bad not in page
    assert "U+202E" in pages[0]
    assert len(pages[1]) < 40_000
    assert "characters" in text_of(pages[1])
    assert entries(pages[2]) == [hostile]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in pages[3]


def test_an_entry_is_shown_whole(maya: Reader, acme: Owner) -> None:
    """Arguments, agent, time, address, key, and the agent's neighbouring entries."""
    agent = acme.agent("whole")
    before = acme.log(agent, "mail.read", run_id="r-1").json()["id"]
    fields = {"call_id": "c-1", "run_id": "r-1", "decision_id": "d-1", "ip_address": "192.0.2.7"}
    context = {"to": "anna@example.test", "amount": 12.5, "duration_ms": 1234, "error": {"type": "Timeout"}}
    happened = "2026-01-31T12:00:00Z"
    entry = acme.log(agent, "mail.send", "failed", context=context, occurred_at=happened, **fields).json()[
        "id"
    ]
    after = acme.log(agent, "mail.read").json()["id"]
    page = maya.page(f"{LOGS}/{entry}")
    said = text_of(page)
    assert entries(page) == [after, before]
    for words in (
        "failed",
        "mail.send",
        "took 1234 ms",
        "c-1",
        "r-1",
        "d-1",
        "192.0.2.7",
        acme.key[-4:],
        "Timeout",
    ):
        assert words in said, words
    assert "2026-01-31 12:00:00.000 UTC, by the agent" in said
    assert "same run" in said
    assert said.index("12.5") < said.index("anna@example.test")
    assert acme.key not in page
    assert f'href="/console/agents/{agent}"' in page
    big = acme.log(agent, "mail.send", context={"body": "z" * 60_000}).json()["id"]
    assert "z" * 60_000 in maya.page(f"{LOGS}/{big}")


def test_an_entry_shows_its_approval(maya: Reader, acme: Owner, refunder: str) -> None:
    """Who decided, when, with which note and digest, and whether it fits the call."""
    context = {"amount": 33, "to": "anna"}
    held = acme.check(refunder, "stripe.refund", context, call_id="c-33").json()["approval_id"]
    assert maya.decide(held, "approve", note="Seen <b>it</b>").status_code == 303
    passed = acme.check(refunder, "stripe.refund", context, call_id="c-33")
    fields = {"approval_id": held, "decision_id": passed.headers["X-Decision-ID"], "call_id": "c-33"}

    def page(agent: str, **more: object) -> tuple[str, str]:
        sent = context | {"duration_ms": 5} | more
        entry = acme.log(agent, "stripe.refund", context=sent, **fields).json()["id"]
        shown = maya.page(f"{LOGS}/{entry}")
        return text_of(shown), shown

    said, shown = page(refunder)
    digest = acme.http.get(f"/api/approvals/{held}").json()["digest"]
    for words in (
        "approved, used",
        f"by {acme.email}",
        "<b>it</b>",
        digest,
        "This entry contains the same decision id",
    ):
        assert words in said, words
    assert "all arguments are identical" in said
    assert "another agent" not in said
    assert f'href="/console/approvals/{held}"' in shown
    assert "2 arguments differ: amount to" in page(refunder, amount=34, to="bob")[0]
    other = acme.agent("other")
    assert "refers to an approval of another agent or another action" in page(other)[0]
    back = link(maya.page(f"/console/approvals/{held}"), "Later entries of the agent")
    assert len(entries(maya.page(back))) == 2


@pytest.mark.parametrize("approval", ["x", "01a202b7-8a24-7f17-929a-19b62fee44cb", "<script>"])
def test_an_unknown_approval_is_not_shown(maya: Reader, acme: Owner, refunder: str, approval: str) -> None:
    """Ids of other organizations and invalid ids are not looked up."""
    entry = acme.log(refunder, "stripe.refund", approval_id=approval).json()["id"]
    page = maya.page(f"{LOGS}/{entry}")
    assert "This entry refers to an approval that does not exist or was deleted" in page
    assert "<script>" not in page


def test_environments_and_organizations_are_separate(maya: Reader, acme: Owner, rival: Owner) -> None:
    """Pages, searches and exports with equal names everywhere."""
    test_key = acme.http.get("/api/organization/test-key").json()["api_key"]
    mine, theirs = acme.agent("mixed"), rival.agent("their-secret-name")
    there = acme.http.post("/api/agents?environment=test", json={"name": "mixed"}).json()["id"]
    secret = rival.log(theirs, "mixed.act", context={"t": "mixed-up"}).json()["id"]
    production = acme.log(mine, "mixed.act", context={"t": "mixed-up"}).json()["id"]
    body = {"agent_id": there, "action": "mixed.act", "status": "success", "context": {"t": "mixed-up"}}
    test = acme.http.post("/sdk/log", json=body, headers={"X-API-Key": test_key}).json()["id"]
    for environment, own in (("production", production), ("test", test)):
        assert entries(maya.page(f"{LOGS}?action=mixed.act&environment={environment}")) == [own]
        assert searched(maya, q="mixed-up", environment=environment)[0] == [own]
        rows = maya.page(f"{LOGS}/export?action=mixed.act&environment={environment}").splitlines()
        assert len(rows) == 1
        assert own in rows[0]
        for other in {production, test, secret} - {own}:
            assert maya.get(f"{LOGS}/{other}?environment={environment}").status_code == 404
    page = maya.page(f"{LOGS}?agent_id={theirs}")
    assert ("No matching entries" in page, "their-secret-name" in page) == (True, False)


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_an_export_equals_the_apis(maya: Reader, viewer: Reader, acme: Owner, form: str) -> None:
    """Same bytes and file name, with the console's headers; the API accepts no cookie."""
    agent = acme.agent("exported")
    acme.log(agent, f"export.{form}", context={"formula": "=1+1"}, run_id="=HYPERLINK(1)")
    acme.log(agent, f"export.{form}", "denied", run_id="@sum")
    query = {"format": form, "action": f"export.{form}", "from": "2026-01-01", "to": "2100-01-01"}
    expected = acme.http.get("/api/logs/export", params=query)
    for reader in (maya, viewer):
        answer = reader.http.get(f"{LOGS}/export", params=query)
        assert (answer.status_code, answer.content) == (200, expected.content)
        for name in ("Content-Type", "Content-Disposition", "Cache-Control"):
            assert answer.headers[name] == expected.headers[name]
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert reader.get("/api/logs/export").status_code == 401
    if form == "csv":
        assert "'=HYPERLINK(1)" in expected.text
        assert "'@sum" in expected.text
    page = maya.page(f"{LOGS}?action=export.{form}&status=denied")
    lead = link(page, {"csv": "CSV", "jsonl": "JSON lines"}[form])
    assert maya.page(lead).count(f"export.{form}") == 1


@pytest.mark.parametrize(
    ("query", "said"), [("format=xml", "unknown format 'xml'"), ("q=x", "cannot be used for an export")]
)
def test_unsupported_exports_are_refused(maya: Reader, query: str, said: str) -> None:
    """An unknown format, and a text search, which would read the whole log."""
    answer = maya.get(f"{LOGS}/export?{query}")
    assert (answer.status_code, said in text_of(answer.text)) == (400, True)


def test_the_newest_agents_are_offered_and_a_deleted_one_is_named(maya: Reader, acme: Owner) -> None:
    """Entries of a deleted agent are found by its id."""
    agent = acme.agent("gone-by-now")
    entry = acme.log(agent, "gone.act").json()["id"]
    assert acme.http.delete(f"/api/agents/{agent}").status_code == 204
    assert f'<option value="{agent}"' not in maya.page(LOGS)
    page = maya.page(f"{LOGS}?agent_id={agent}")
    assert entries(page) == [entry]
    assert f'<option value="{agent}" selected>gone-by-now</option>' in page
    page = maya.page(f"{LOGS}/{entry}")
    assert ("gone-by-now, which was deleted" in page, f"/console/agents/{agent}" in page) == (True, False)


def test_a_moment_is_shown_to_the_millisecond(maya: Reader, acme: Owner) -> None:
    """Without scripts in UTC, also in its title and machine-readable form."""
    entry = acme.log(acme.agent(), "moment.act").json()
    shown = datetime.fromisoformat(entry["created_at"]).astimezone(UTC)
    assert abs(shown - datetime.now(UTC)) < timedelta(minutes=5)
    assert f"{shown:%Y-%m-%d %H:%M:%S}.{shown.microsecond // 1000:03} UTC" in maya.page(
        f"{LOGS}?action=moment.act"
    )


def test_every_role_reads_the_log(acme: Owner, gateway: LiveGateway, history: History) -> None:
    for role in ("member", "viewer"):
        with Colleague(acme, role) as colleague, Reader.of(gateway.url, colleague.email) as reader:
            assert len(entries(reader.page(f"{LOGS}?action=action.0"))) == 50
            assert "Activity log" in reader.page(f"{LOGS}/{history.ids[0]}")
