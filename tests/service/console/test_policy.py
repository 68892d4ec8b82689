"""The page of the policy: revisions, and replays of candidates."""

import json
import re
from typing import Any

import pytest
from support.console import Reader, text_of
from support.gateway import LiveGateway, Owner
from support.replays import Traffic, apply, current
from support.team import Colleague

PAGE = "/console/policy"
FORBID = """
version: toolgate.policy/v1
agents:
  - name: worker
rules:
  - name: <b>No pay</b>
    effect: forbid
    actions: [pay]
  - name: Others
    effect: allow
    actions: ["*"]
"""


def cells(page: str) -> list[list[str]]:
    """Return the texts of the cells of all rows."""
    rows = re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
    return [
        [text_of(cell).strip() for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL)]
        for row in rows
    ]


def test_page_lists_revisions_with_their_changes(newcomer: Owner) -> None:
    policy: dict[str, Any] = {
        "version": "toolgate.policy/v1",
        "agents": [{"name": "<i>bot</i>", "permissions": [{"action": "pay", "max_amount": 50}]}],
    }
    with Reader.of(newcomer.url, newcomer.email) as reader:
        assert "No policy file was applied" in reader.page(PAGE)
        apply(newcomer, policy)
        policy["agents"][0]["permissions"][0]["max_amount"] = 60.5
        base = current_digest(newcomer)
        body = {"policy": policy, "base": base, "message": "Raise <u>the</u> maximum"}
        assert newcomer.http.post("/api/policy/apply", json=body).status_code == 200
        page = reader.page(PAGE)
        assert "<i>bot" not in page
        assert "<u>the" not in page
        numbers = [row for row in cells(page) if row[0].isdecimal()]
        newest = numbers[0]
        assert newest[1] == "Raise <u>the</u> maximum"
        assert newest[2] == newcomer.email
        assert "update permission <i>bot</i> pay: max_amount 50 → 60.5" in newest[4]
        assert "create agent <i>bot</i>" in numbers[1][4]
        assert "No policy file was applied" in reader.page(f"{PAGE}?environment=test")


def current_digest(owner: Owner) -> str:
    digest: str = owner.http.get("/api/policy").json()["digest"]
    return digest


def test_candidate_is_replayed(gateway: LiveGateway, newcomer: Owner) -> None:
    made = Traffic(gateway, newcomer)
    for amount in (10, 20, 60):
        made.check("worker", "pay", {"amount": amount})
    made.check("worker", "other", {})
    made.check("worker", "ask", {"text": "x" * 5000})
    made.wait()
    before = current_digest(newcomer)
    with Reader.of(newcomer.url, newcomer.email) as reader:
        answer = reader.submit(PAGE, token=reader.token(), policy=FORBID, since="", until="")
        assert answer.status_code == 200
        page = answer.text
        assert "Content-Security-Policy" in answer.headers
        assert "<b>No pay" not in page
        found = cells(page)
        assert ["All decisions", "1", "1", "0", "2", "1"] in found
        assert ["worker", "pay", "1", "0", "0", "2", "0"] in found
        assert ["worker", "other", "0", "1", "0", "0", "0"] in found
        assert "1 decision: The arguments are not stored" in text_of(page)
        denied = [row for row in found if "denied forbidden_by_rule" in row[-1]]
        assert len(denied) == 2
        assert "Rule '<b>No pay</b>' forbids action 'pay'" in denied[0][-1]
        assert "effect: forbid" in page
        text = json.dumps(current(newcomer))
        page = reader.submit(PAGE, token=reader.token(), policy=text, since="", until="").text
        assert ["All decisions", "4", "0", "0", "0", "1"] in cells(page)
        early = {"since": "2026-01-01T00:00", "until": "2026-01-02T00:00:00"}
        page = reader.submit(PAGE, token=reader.token(), policy=text, **early).text
        assert "Replay of 0 decisions" in page
        assert current_digest(newcomer) == before
        assert reader.page(PAGE).count("Replay of") == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"policy": "version: ["}, "policy: line 1, column 11"),
        ({"policy": FORBID + "other: 1"}, "other: Unknown field; remove it"),
        ({"policy": FORBID.replace("[pay]", "[]")}, "rules.0.actions"),
        ({"policy": FORBID.replace("effect: forbid", "effect: forbid\n    when: args.x >")}, "rules.0.when"),
        ({"policy": FORBID, "since": "yesterday"}, "since: 'yesterday' is not a time"),
        (
            {"policy": FORBID, "since": "2026-02-01T00:00", "until": "2026-01-01T00:00"},
            "later than the field since",
        ),
    ],
)
def test_invalid_candidate_is_shown_again(newcomer: Owner, fields: dict[str, str], message: str) -> None:
    with Reader.of(newcomer.url, newcomer.email) as reader:
        answer = reader.submit(PAGE, token=reader.token(), **{"since": "", "until": ""} | fields)
        assert answer.status_code == 400
        assert message in text_of(answer.text)
        assert text_of(fields["policy"].strip().splitlines()[0]) in text_of(answer.text)


def test_viewers_see_revisions_but_no_form(newcomer: Owner) -> None:
    apply(newcomer, {"version": "toolgate.policy/v1", "agents": [{"name": "bot"}]})
    with Colleague(newcomer, "viewer") as colleague, Reader.of(newcomer.url, colleague.email) as reader:
        page = reader.page(PAGE)
        assert ("create agent bot" in page, "Replay decisions" in page) == (True, False)
        assert reader.submit(PAGE, token=reader.token(), policy=FORBID).status_code == 403
