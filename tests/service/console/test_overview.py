"""Overview: numbers agree with the log."""

import html
import re
from collections.abc import Iterator
from functools import partial

import pytest
from support.console import Reader, text_of
from support.counted import age_counts, fold_counts
from support.gateway import LiveGateway, Owner
from support.insight import key_to_test
from support.tables import execute
from support.upkeep import ago_text

PAGE = "/console/overview"
#: actions may contain any visible ASCII
HOSTILE = "x.</title></svg><script>alert(1)</script>{{7*7}}"


@pytest.fixture
def reader(newcomer: Owner) -> Iterator[Reader]:
    """Browser of the administrator of the test's own organization."""
    with Reader.of(newcomer.url, newcomer.email) as reader:
        yield reader


def table(page: str, title: str) -> list[list[str]]:
    """Return the rows of the table under a heading as text."""
    after = page[page.index(f">{title}</h2>") :]
    body = re.search(r"<tbody>(.*?)</tbody>", after, re.DOTALL)
    assert body is not None, after[:1000]
    rows = re.findall(r"<tr>(.*?)</tr>", body[1], re.DOTALL)
    return [
        [text_of(cell).strip() for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)] for row in rows
    ]


def sums(page: str) -> list[str]:
    """Return the numbers above the chart: allowed, failed, held, blocked."""
    shown = re.search(r'<dl class="sums">(.*?)</dl>', page, re.DOTALL)
    assert shown is not None
    return re.findall(r"<dd[^>]*>([\d,]+)", shown[1])


def log_all(owner: Owner) -> tuple[str, str]:
    """Log twelve entries of two agents; return the agents."""
    busy, idle = owner.agent("busy <b>bot</b>"), owner.agent("idle bot")
    for agent, action, status, times in (
        (busy, "mail.send", "success", 4),
        (busy, "mail.send", "failed", 2),
        (busy, HOSTILE, "denied", 3),
        (idle, "mail.send", "pending", 1),
        (idle, HOSTILE, "success", 2),
    ):
        for _ in range(times):
            assert owner.log(agent, action, status).status_code == 200
    # Repeated calls share one request.
    owner.permit(idle, "mail.send", requires_approval=True)
    for _ in range(3):
        assert owner.check(idle, "mail.send").json()["requires_approval"] is True
    return busy, idle


@pytest.mark.parametrize("wanted", ["hour", "day", "week", "month", "quarter", "year"])
def test_every_range_shows_what_the_log_has(newcomer: Owner, reader: Reader, wanted: str) -> None:
    """Sums, bars, actions and agents agree in every range."""
    busy, _ = log_all(newcomer)
    page = reader.page(f"{PAGE}?range={wanted}")
    assert sums(page) == ["8", "2", "1", "3"]
    bars = [list(map(int, row[1:])) for row in table(page, "Decisions over time")]
    assert [sum(column) for column in zip(*bars, strict=True)] == [12, 8, 1, 3, 2]
    assert table(page, "Top actions") == [
        ["mail.send", "7", "6", "1", "0", "2"],
        [HOSTILE, "5", "2", "0", "3", "0"],
    ]
    assert table(page, "Top agents") == [
        ["busy <b>bot</b>", "9", "6", "0", "3", "2"],
        ["idle bot", "3", "2", "1", "0", "0"],
    ]
    assert f'href="/console/agents/{busy}"' in page
    assert "8 allowed, 1 approval required, 3 denied" in page
    assert "<script>alert" not in page
    way = html.unescape(re.findall(r'href="(/console/logs\?action=x[^"]*)"', page)[0])
    assert HOSTILE in text_of(reader.page(way))
    assert page.count("<title>") == 1 + len(bars)


def test_rolled_up_entries_are_in_the_right_ranges(
    gateway: LiveGateway, newcomer: Owner, reader: Reader
) -> None:
    """Entries of five hours ago are within 24 hours, not within the last hour; a day later within 7 days."""
    busy, _ = log_all(newcomer)
    age_counts(gateway, newcomer, hours=5)
    fold_counts(gateway)
    assert sums(reader.page(f"{PAGE}?range=hour")) == ["0", "0", "0", "0"]
    assert sums(reader.page(f"{PAGE}?range=day")) == ["8", "2", "1", "3"]
    newcomer.log(busy, "mail.send")
    assert sums(reader.page(f"{PAGE}?range=hour")) == ["1", "0", "0", "0"]
    page = reader.page(f"{PAGE}?range=week")
    assert sums(page) == ["9", "2", "1", "3"]
    assert table(page, "Top agents")[0] == ["busy <b>bot</b>", "10", "7", "0", "3", "2"]
    age_counts(gateway, newcomer, hours=48)
    assert sums(reader.page(PAGE)) == ["0", "0", "0", "0"]


def test_a_deleted_agent_is_named_without_a_link(newcomer: Owner, reader: Reader) -> None:
    busy, _ = log_all(newcomer)
    assert newcomer.http.delete(f"/api/agents/{busy}").status_code == 204
    page = reader.page(PAGE)
    assert table(page, "Top agents")[0][0] == "busy <b>bot</b> deleted"
    assert busy not in page


def test_an_empty_log_shows_no_chart(newcomer: Owner, reader: Reader) -> None:
    page = reader.page(PAGE)
    assert "No log entries in this time range" in page
    assert "<tbody>" not in page
    assert "No requests were decided in this time range." in text_of(page)


def test_the_test_environment_is_separate(gateway: LiveGateway, newcomer: Owner, reader: Reader) -> None:
    """It shows its own entries of a week and no limits."""
    made = newcomer.http.post("/api/agents", json={"name": "t"}, params={"environment": "test"}).json()["id"]
    body = {"agent_id": made, "action": "a", "status": "denied"}
    headers = {"X-API-Key": key_to_test(gateway, newcomer)}
    assert newcomer.http.post("/sdk/log", json=body, headers=headers).status_code == 200
    page = reader.page(f"{PAGE}?environment=test&range=week")
    assert sums(page) == ["0", "0", "0", "1"]
    assert "The test environment does not count towards the plan" in page
    assert reader.get(f"{PAGE}?environment=test&range=month").status_code == 400
    assert sums(reader.page(PAGE)) == ["0", "0", "0", "0"]


def test_ranges_end_with_the_retention(frugal: Owner) -> None:
    """A week on the free plan; the error for another range names the available ones."""
    with Reader.of(frugal.url, frugal.email) as reader:
        page = reader.page(f"{PAGE}?range=week")
        assert re.findall(r"/console/overview\?range=(\w+)", page) == ["hour", "day", "week"]
        refused = reader.get(f"{PAGE}?range=<month>")
    assert refused.status_code == 400
    assert "Unknown time range '<month>': expected one of hour, day, week" in text_of(refused.text)


def test_usage_equals_the_apis(frugal: Owner) -> None:
    """The same numbers and warnings as `GET /api/billing/usage`."""
    agents = [frugal.agent(), frugal.agent()]
    frugal.log(agents[0], "a")
    used = frugal.http.get("/api/billing/usage").json()
    with Reader.of(frugal.url, frugal.email) as reader:
        page = text_of(reader.page(PAGE))
    assert "Agents 2 of 2 100 %" in page
    assert "Log entries 1 of 1,000 this month" in page
    for warning in used["warnings"]:
        assert warning["message"] in page


def test_waits_count_decisions_by_people(gateway: LiveGateway, newcomer: Owner, reader: Reader) -> None:
    """Median and slowest tenth exclude expired requests and temporary approvals."""
    agent = newcomer.agent()
    newcomer.permit(agent, "held", requires_approval=True)
    ask = partial(newcomer.check, agent, "held")
    # Decided now, the given number of minutes after the request.
    minutes = [2, 3, 10, 30, 200]
    for number, waited in enumerate(minutes):
        approval = ask({"n": number}).json()["approval_id"]
        execute(
            gateway, "UPDATE approvals SET created_at = ? WHERE id = ?", ago_text(minutes=waited), approval
        )
        verb = "deny" if number == 0 else "approve"
        assert newcomer.http.post(f"/api/approvals/{approval}/{verb}").status_code == 200
    granted = ask({"n": "granted"}).json()["approval_id"]
    body = {"grant": {"uses": 5, "seconds": 3600}}
    assert newcomer.http.post(f"/api/approvals/{granted}/approve", json=body).status_code == 200
    assert [ask({"n": "granted"}).json()["allowed"] for _ in range(3)] == [True] * 3
    lost = ask({"n": "lost"}).json()["approval_id"]
    execute(gateway, "UPDATE approvals SET status = 'expired', expires_at = created_at WHERE id = ?", lost)
    page = reader.page(PAGE)
    shown = text_of(page)
    assert re.search(r"Median ?3 min( \d s)? ?90th percentile ?3 h 20 min", shown), shown
    assert re.search("Expired ?1 ?not decided in time", shown)
    assert [int(row[1]) for row in table(page, "Time to decision")] == [1, 2, 1, 1, 1, 0, 0]


def test_the_console_begins_with_pending_requests_or_the_overview(newcomer: Owner, reader: Reader) -> None:
    """It begins with the inbox too while no call has arrived."""
    assert reader.get("/console").headers["Location"] == "/console/approvals"
    agent = newcomer.agent()
    newcomer.log(agent, "a")
    assert reader.get("/console").headers["Location"] == PAGE
    newcomer.permit(agent, "held", requires_approval=True)
    newcomer.check(agent, "held")
    assert reader.get("/console").headers["Location"] == "/console/approvals"
