"""GET /api/logs/export (decisions §3)."""

import csv
import io
import json
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.bulk import write_entries
from support.gateway import LiveGateway, Owner
from support.insight import set_role
from support.pages import walked
from support.shapes import complaints
from support.tables import execute
from support.waiting import until

PATH = "/api/logs/export"


def lines(owner: Owner, **params: str) -> list[dict[str, Any]]:
    answer = owner.http.get(PATH, params=params)
    assert answer.status_code == 200, answer.text
    assert answer.text == "" or answer.text.endswith("\n")
    return [json.loads(line) for line in answer.text.split("\n")[:-1]]


def table(owner: Owner, **params: str) -> list[dict[str, str]]:
    answer = owner.http.get(PATH, params={"format": "csv", **params})
    assert answer.status_code == 200, answer.text
    return list(csv.DictReader(io.StringIO(answer.text, newline="")))


@pytest.fixture(scope="module")
def archive(gateway: LiveGateway) -> Iterator[Owner]:
    """An organization with 240 entries: more than one batch, of two agents."""
    with Owner(gateway.url, organization="Archive") as owner:
        write_entries(gateway, owner, [owner.agent("one"), owner.agent("two")], 237, context='{"n":1.10}')
        agent = owner.agent("three")
        owner.log(agent, "a", context={"text": 'line\nbreak, "quoted", ünïcode \u2028'}, run_id="r")
        owner.log(agent, "b", ip_address="2001:db8::1", occurred_at="2026-01-31T12:00:00Z")
        owner.log(agent, "c")
        owner.http.delete(f"/api/agents/{agent}")
        yield owner


def test_json_lines_are_the_whole_listing(archive: Owner) -> None:
    """One line an entry, with the listing's fields in the listing's order; deleted agents' entries too."""
    found = lines(archive)
    assert found == walked(archive, "/api/logs", limit=100)
    assert len(found) == 240


def test_csv_has_a_header_and_the_same_entries(archive: Owner) -> None:
    """A row an entry under a header; null is empty, a context is its JSON text."""
    listed = walked(archive, "/api/logs", limit=100)
    found = table(archive)
    assert len(found) == len(listed)
    assert set(found[0]) == set(listed[0])
    for row, entry in zip(found, listed, strict=True):
        context = row.pop("context")
        assert (json.loads(context) if context else None) == entry.pop("context")
        assert row == {name: value or "" for name, value in entry.items()}


def test_json_lines_are_the_default(archive: Owner) -> None:
    """Without `format` the answer is JSON lines."""
    assert archive.http.get(PATH).content == archive.http.get(PATH, params={"format": "jsonl"}).content


@pytest.mark.parametrize(
    ("form", "kind"), [("jsonl", "application/jsonl"), ("csv", "text/csv; charset=utf-8")]
)
def test_the_answer_is_a_named_file(archive: Owner, form: str, kind: str) -> None:
    """The headers say what it is, what to call it, and that nobody should keep a copy."""
    headers = archive.http.get(PATH, params={"format": form, "environment": "test"}).headers
    assert headers["Content-Type"] == kind
    today = {datetime.now(UTC) - timedelta(minutes=ago) for ago in (0, 1)}
    names = {f'attachment; filename="toolgate-logs-test-{day:%Y-%m-%d}.{form}"' for day in today}
    assert headers["Content-Disposition"] in names
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Request-ID"]


def test_numbers_keep_every_digit(newcomer: Owner) -> None:
    """A number that no binary float holds is in the file as it was recorded."""
    body = '{"agent_id":"%s","action":"a","status":"success","context":{"amount":9007199254740993.01}}'
    newcomer.http.post("/sdk/log", content=body % newcomer.agent(), headers={"X-API-Key": newcomer.key})
    assert '"context":{"amount":9007199254740993.01}}\n' in newcomer.http.get(PATH).text
    assert table(newcomer)[0]["context"] == '{"amount":9007199254740993.01}'


def test_filters_and_moments_narrow_the_file(gateway: LiveGateway, newcomer: Owner) -> None:
    """The listing's filters, `from` inclusive, `to` exclusive, with and without an offset, alone and together."""
    one, two = newcomer.agent("one"), newcomer.agent("two")
    newest = datetime(2026, 3, 1, 12, tzinfo=UTC)
    write_entries(gateway, newcomer, [one, two], 60, newest=newest)

    def moments(**params: str) -> list[str]:
        return [entry["created_at"] for entry in lines(newcomer, **params)]

    assert len(moments(agent_id=one)) == 30
    assert len(moments(status="failed")) == 15
    assert len(moments(action="action.2", status="success", agent_id=one)) == 5
    assert moments(**{"from": "2026-03-01T11:59:59Z"}) == [
        "2026-03-01T12:00:00.000000Z",
        "2026-03-01T11:59:59.000000Z",
    ]
    assert moments(to="2026-03-01T11:59:02Z") == ["2026-03-01T11:59:01.000000Z"]
    span = {"from": "2026-03-01T13:59:30+02:00", "to": "2026-03-01T11:59:40"}
    assert len(moments(**span)) == 10
    assert len(moments(**span, agent_id=one)) == 5
    assert moments(**{"from": "2026-03-02"}) == []
    assert len(table(newcomer, **span)) == 10


@pytest.mark.parametrize(
    ("params", "names"),
    [
        ({"format": "xml"}, {"format"}),
        ({"from": "yesterday", "to": "2026-02-30"}, {"from", "to"}),
        ({"from": "2026-01-02", "to": "2026-01-02"}, {"to"}),
        ({"from": "2026-01-03", "to": "2026-01-02"}, {"to"}),
        ({"from": ""}, {"from"}),
        ({"from": "0001-01-01T00:00:00+14:00"}, {"from"}),
        ({"from": "5"}, {"from"}),
        ({"status": "done"}, {"status"}),
        ({"environment": "staging"}, {"environment"}),
    ],
    ids=lambda value: "-".join(sorted(value)),
)
def test_a_wrong_parameter_is_named(archive: Owner, params: dict[str, str], names: set[str]) -> None:
    """Nothing is sent before the question is understood (decisions §2)."""
    assert set(complaints(archive.http.get(PATH, params=params))) == names


def test_what_cannot_match_is_an_empty_file(archive: Owner) -> None:
    """No lines, or the header alone."""
    for params in ({"agent_id": "x"}, {"action": "a\0b"}, {"action": "never.done"}):
        assert lines(archive, **params) == []
        assert table(archive, **params) == []
        assert archive.http.get(PATH, params={"format": "csv", **params}).text.startswith("id,")


@pytest.mark.parametrize(
    "sign", ["=", "+", "-", "@", "\t", "\r"], ids=["equals", "plus", "minus", "at", "tab", "cr"]
)
def test_a_spreadsheet_takes_no_cell_for_a_formula(gateway: LiveGateway, newcomer: Owner, sign: str) -> None:
    """A cell that begins with one of the six gets a leading apostrophe in CSV, and none in JSON lines."""
    agent = newcomer.agent("name")
    entry = newcomer.log(agent, "action", run_id="run").json()["id"]
    execute(gateway, "UPDATE agents SET name = ? WHERE id = ?", f"{sign}name", agent)
    evil = f"{sign}cmd|' /C calc'!A0"
    execute(gateway, "UPDATE log_entries SET action = ?, run_id = ? WHERE id = ?", evil, sign, entry)
    [row] = table(newcomer)
    assert (row["action"], row["run_id"], row["agent_name"]) == (f"'{evil}", f"'{sign}", f"'{sign}name")
    [line] = lines(newcomer)
    assert (line["action"], line["run_id"], line["agent_name"]) == (evil, sign, f"{sign}name")


def test_readers_may_export_and_others_see_nothing(gateway: LiveGateway, rival: Owner) -> None:
    """A viewer reads; another organization's entries are in nobody else's file; no token, no file."""
    with Owner(gateway.url) as owner:
        agent = owner.agent()
        owner.log(agent, "a")
        set_role(gateway, owner, "viewer")
        assert len(lines(owner)) == 1
        assert lines(rival, agent_id=agent) == []
    assert httpx.get(f"{gateway.url}{PATH}").status_code == 401


def test_each_environment_is_a_file_of_its_own(gateway: LiveGateway, newcomer: Owner) -> None:
    """Test entries are exported with `environment=test` alone (decisions §8)."""
    made = newcomer.http.post("/api/agents", json={"name": "t"}, params={"environment": "test"}).json()
    write_entries(gateway, newcomer, [made["id"]], 3, environment="test")
    write_entries(gateway, newcomer, [newcomer.agent()], 2)
    assert len(lines(newcomer)) == 2
    assert {entry["agent_id"] for entry in lines(newcomer, environment="test")} == {made["id"]}


FAT = '{"text":"' + "x" * 20_000 + '"}'
#: with `FAT` some 40 MB: more than the sockets between gateway and client hold
MANY = 2_000


@pytest.fixture(scope="module")
def stout(gateway: LiveGateway) -> Iterator[Owner]:
    """An organization whose export does not fit into the sockets."""
    with Owner(gateway.url, organization="Stout") as owner:
        write_entries(gateway, owner, [owner.agent()], MANY, context=FAT)
        yield owner


@contextmanager
def begun(owner: Owner) -> Iterator[Iterator[bytes]]:
    """Begin an export and take nothing of it but the first part."""
    # One that an earlier test broke off ends as soon as the gateway hears of it.
    answer = until(lambda: opened(owner))
    with closing(answer):
        assert answer.status_code == 200, answer.read()
        parts = answer.iter_raw(1000)
        next(parts)
        yield parts


def opened(owner: Owner) -> httpx.Response | None:
    """Return the answer of an export, if there is room for one."""
    answer = owner.http.send(owner.http.build_request("GET", PATH), stream=True)
    if answer.status_code != 429:
        return answer
    answer.close()
    return None


def refused(owner: Owner) -> bool:
    with owner.http.stream("GET", PATH) as answer:
        return answer.status_code == 429


def test_an_export_shows_the_moment_it_began(gateway: LiveGateway, stout: Owner) -> None:
    """What is written and removed while it runs changes nothing in it."""
    with begun(stout) as parts:
        stout.log(stout.agent(), "meanwhile", "denied")
        oldest = "SELECT id FROM log_entries WHERE organization_id = ? ORDER BY created_at LIMIT 5"
        gone = f"DELETE FROM log_entries WHERE id IN ({oldest})"
        assert execute(gateway, gone, stout.user["organization_id"]) == 5
        rest = b"".join(parts)
    assert rest.count(b"\n") == MANY
    assert b"meanwhile" not in rest
    assert len(lines(stout, action="meanwhile")) == 1


def test_exports_that_nobody_takes_keep_nobody_waiting(
    gateway: LiveGateway, stout: Owner, acme: Owner
) -> None:
    """Two of each organization and four in all may run, the next is 429; everything else goes on."""
    with Owner(gateway.url) as other, ExitStack() as running:
        write_entries(gateway, other, [other.agent()], MANY, context=FAT)
        for owner in (stout, other, stout, other):
            running.enter_context(begun(owner))
        answer = stout.http.get(PATH)
        assert (answer.status_code, answer.headers["Retry-After"]) == (429, "10")
        assert acme.http.get(PATH).status_code == 429
        agent = acme.agent()
        for _ in range(20):
            assert acme.log(agent, "a").status_code == 200
            assert acme.check(agent, "a").status_code == 200
            assert acme.http.get("/api/agents").status_code == 200


def test_a_client_that_hangs_up_ends_the_read(stout: Owner) -> None:
    """The room of an export that was broken off is free again."""
    with begun(stout), begun(stout):
        assert refused(stout)
    until(lambda: not refused(stout))


def test_an_export_that_breaks_is_no_whole_answer(tmp_path: Path) -> None:
    """When the gateway dies on the way the client's HTTP library says so."""
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner:
        write_entries(gateway, owner, [owner.agent()], MANY, context=FAT)
        with begun(owner) as parts:
            gateway.kill()
            with pytest.raises(httpx.TransportError):
                b"".join(parts)


def resident(gateway: LiveGateway) -> int:
    """Return the most memory that the gateway's process ever held, in KiB."""
    assert gateway.process is not None
    status = Path(f"/proc/{gateway.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


@pytest.mark.parametrize("count", [20_000, pytest.param(200_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("form", ["jsonl", pytest.param("csv", marks=pytest.mark.slow)])
def test_memory_does_not_grow_with_the_log(tmp_path: Path, form: str, count: int) -> None:
    """An export of many entries takes no more memory than one of few: 20 MiB at most, where they are many times that."""
    context = '{"text":"' + "x" * 2_000 + '"}'
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner:
        agent = owner.agent()
        write_entries(gateway, owner, [agent], 500, context=context)
        assert owner.http.get(PATH, params={"format": form}).status_code == 200
        write_entries(gateway, owner, [agent], count, context=context)
        before, size, found = resident(gateway), 0, 0
        with owner.http.stream("GET", PATH, params={"format": form}) as answer:
            for part in answer.iter_raw():
                size += len(part)
                found += part.count(b"\n")
        assert found == count + 500 + (form == "csv")
        assert size > count * 2_000
        assert resident(gateway) - before < 20 * 1024
