"""GET /api/decisions/export."""

import csv
import io
import json

from support.decisions import decision_id, recorded, write_decisions
from support.gateway import LiveGateway, Owner
from support.pages import walked

PATH = "/api/decisions/export"


def test_both_formats_contain_the_whole_list(gateway: LiveGateway, newcomer: Owner) -> None:
    """1,100 decisions are more than two batches of the export."""
    write_decisions(gateway, newcomer, [newcomer.agent("one"), newcomer.agent("two")], 1_100)
    listed = walked(newcomer, "/api/decisions", limit=100)
    lines = newcomer.http.get(PATH).text.splitlines()
    assert [json.loads(line) for line in lines] == listed
    answer = newcomer.http.get(PATH, params={"format": "csv"})
    table = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    assert table == [
        {name: "" if value is None else str(value) for name, value in one.items()} for one in listed
    ]
    assert 'filename="toolgate-decisions-production-' in answer.headers["Content-Disposition"]
    assert answer.headers["Cache-Control"] == "no-store"


def test_filters_narrow_the_file(gateway: LiveGateway, newcomer: Owner) -> None:
    agents = [newcomer.agent(), newcomer.agent()]
    write_decisions(gateway, newcomer, agents, 60)
    params = {"agent_id": agents[0], "outcome": "denied"}
    assert len(newcomer.http.get(PATH, params=params).text.splitlines()) == 10


def test_empty_files(newcomer: Owner) -> None:
    assert newcomer.http.get(PATH).text == ""
    for params in ({}, {"agent_id": "x"}):
        table = newcomer.http.get(PATH, params={"format": "csv", **params}).text
        assert table.startswith("id,created_at,")
        assert len(table.splitlines()) == 1


def test_texts_of_clients_begin_no_formula(newcomer: Owner) -> None:
    answer = newcomer.check("=1+1", "-2+3", run_id="@SUM(A1)", call_id="+4")
    recorded(newcomer, decision_id(answer))
    text = newcomer.http.get(PATH, params={"format": "csv"}).text
    [row] = csv.DictReader(io.StringIO(text, newline=""))
    assert [row[name] for name in ("requested_agent", "action", "run_id", "call_id")] == [
        "'=1+1",
        "'-2+3",
        "'@SUM(A1)",
        "'+4",
    ]
