"""The pages of rules, and the rules on the page of the simulator."""

import html
import re
from collections.abc import Mapping, Sequence

import pytest
from support.console import Reader, text_of
from support.gateway import Owner
from support.team import Colleague

PAGE = "/console/rules"
#: fields that browsers submit for a form that is filled in only partly
BLANK: Mapping[str, str] = {"when": "", "quorum": "", "ttl": ""}


def submit(reader: Reader, path: str, **fields: str | Sequence[str]) -> str:
    """Submit the form of a rule, and return the path to which the console redirects."""
    answer = reader.submit(path, token=reader.token(), **{**BLANK, **fields})
    assert answer.status_code == 303, text_of(answer.text)
    return answer.headers["Location"]


def error_beside(page: str, field: str) -> str:
    """Return the message that a page shows beside a field."""
    found = re.search(rf'<p class="wrong" id="{field}-wrong">(.*?)</p>', page)
    assert found, text_of(page)
    return text_of(found[1])


def rules_of(owner: Owner) -> list[dict[str, object]]:
    found: list[dict[str, object]] = owner.http.get("/api/rules").json()
    return found


def test_rule_is_created_changed_disabled_and_deleted(newcomer: Owner) -> None:
    agent, other = newcomer.agent("refund-bot"), newcomer.agent("mail-bot")
    with Reader.of(newcomer.url, newcomer.email) as reader:
        assert "No rules in production" in reader.page(PAGE)
        place = submit(
            reader, PAGE, name="<b>Large</b>", effect="require_approval", agents=[agent, other],
            actions="stripe.refund\r\n\r\n stripe.payout ", when="args.amount > 100",
            quorum="2", ttl="3600", approvers=[newcomer.user["id"]],
        )  # fmt: skip
        [made] = rules_of(newcomer)
        assert place == f"{PAGE}/{made['id']}"
        assert made["actions"] == ["stripe.refund", "stripe.payout"]
        assert (made["agents"], made["when"]) == (sorted([agent, other]), "args.amount > 100")
        assert made["approval"] == {"quorum": 2, "ttl": 3600, "approvers": [newcomer.user["id"]]}
        listed = reader.page(PAGE)
        assert ("&lt;b&gt;Large" in listed, "<b>Large" in listed) == (True, False)
        for text in ("require approval", "refund-bot", "stripe.payout", "args.amount &gt; 100", "enabled"):
            assert text in listed
        submit(reader, place, name="No payouts", effect="forbid", agents="*", actions="stripe.payout")
        [changed] = rules_of(newcomer)
        assert (changed["effect"], changed["agents"], changed["when"]) == ("forbid", ["*"], None)
        assert changed["approval"] is None
        submit(reader, f"{place}/switch", status="off")
        assert rules_of(newcomer)[0]["enabled"] is False
        assert ">Enable</button>" in reader.page(place)
        submit(reader, f"{place}/switch", status="on")
        assert rules_of(newcomer)[0]["enabled"] is True
        assert submit(reader, f"{place}/delete") == PAGE
        assert rules_of(newcomer) == []


def test_saving_an_unchanged_form_changes_no_field(newcomer: Owner) -> None:
    agent = newcomer.agent("bot")
    body = {
        "name": "Refunds", "effect": "require_approval", "agents": [agent], "actions": ["a.*", "b"],
        "when": 'args.country == "DE"\n&& has(args.amount)',
        "approval": {"quorum": 3, "ttl": 90, "approvers": [newcomer.email]},
    }  # fmt: skip
    before = newcomer.http.post("/api/rules", json=body).json()
    newcomer.http.delete(f"/api/agents/{agent}")
    with Reader.of(newcomer.url, newcomer.email) as reader:
        page = reader.page(f"{PAGE}/{before['id']}")
        fields: dict[str, str | list[str]] = {
            name: html.unescape(value)
            for name, value in [
                *re.findall(r'name="(name|quorum|ttl)"[^>]* value="(.*?)"', page),
                *re.findall(r'<textarea[^>]* name="(actions|when)"[^>]*>\n(.*?)</textarea>', page, re.DOTALL),
            ]
        }
        for name in ("effect", "agents", "approvers"):
            [options] = re.findall(rf'<select id="{name}".*?</select>', page, re.DOTALL)
            fields[name] = re.findall(r'<option value="([^"]+)" selected>', options)
        submit(reader, f"{PAGE}/{before['id']}", **fields)
    [after] = rules_of(newcomer)
    assert after | {"updated_at": None} == before


@pytest.mark.parametrize(
    ("field", "fields", "message"),
    [
        ("name", {"name": ""}, "1-100 printable characters"),
        ("effect", {"effect": "permit"}, "forbid"),
        ("agents", {"agents": ["0" * 8]}, "not the id or name of an agent"),
        ("actions", {"actions": ""}, "at least 1"),
        ("actions", {"actions": "a.b\na*b"}, "line 2: must be an action"),
        ("when", {"when": "args.amount >"}, "Invalid expression"),
        ("when", {"when": "amount > 3"}, "Unknown variable or function 'amount'"),
        ("quorum", {"effect": "require_approval", "quorum": "11"}, "less than or equal to 10"),
        ("quorum", {"effect": "require_approval", "quorum": "two"}, "not a number"),
        ("ttl", {"effect": "require_approval", "ttl": "0"}, "greater than or equal to 1"),
        ("approval", {"effect": "require_approval", "approvers": ["x"]}, "e-mail address of a member"),
    ],
)
def test_error_is_shown_beside_its_field_and_input_is_kept(
    newcomer: Owner, field: str, fields: dict[str, str], message: str
) -> None:
    made = newcomer.http.post("/api/rules", json={"name": "x", "effect": "forbid", "actions": ["a"]}).json()
    whole = {**BLANK, "name": "kept name", "effect": "forbid", "agents": "*", "actions": "kept.action"}
    with Reader.of(newcomer.url, newcomer.email) as reader:
        for path in (PAGE, f"{PAGE}/{made['id']}"):
            answer = reader.submit(path, token=reader.token(), **{**whole, **fields})
            assert answer.status_code == 400
            assert message in error_beside(answer.text, field)
            assert 'aria-invalid="true"' in answer.text
            assert ("kept name" in answer.text) is (field != "name")
    assert rules_of(newcomer) == [made]


def test_second_rule_of_a_name_is_refused_beside_the_name(newcomer: Owner) -> None:
    newcomer.http.post("/api/rules", json={"name": "Same", "effect": "forbid", "actions": ["a"]})
    with Reader.of(newcomer.url, newcomer.email) as reader:
        fields = {**BLANK, "name": "Same", "effect": "allow", "agents": "*", "actions": "b"}
        answer = reader.submit(PAGE, token=reader.token(), **fields)
    assert answer.status_code == 409
    assert "A rule with the name &#39;Same&#39; already exists" in answer.text


def test_terms_of_an_approval_are_refused_for_another_effect(newcomer: Owner) -> None:
    with Reader.of(newcomer.url, newcomer.email) as reader:
        fields = {**BLANK, "name": "x", "effect": "forbid", "agents": "*", "actions": "b", "quorum": "2"}
        answer = reader.submit(PAGE, token=reader.token(), **fields)
    assert answer.status_code == 409
    assert "cannot have terms of an approval" in answer.text
    assert rules_of(newcomer) == []


@pytest.mark.parametrize("role", ["viewer", "member"])
def test_others_than_admins_read_rules(newcomer: Owner, role: str) -> None:
    agent = newcomer.agent("refund-bot")
    body = {
        "name": "Large refunds", "effect": "require_approval", "agents": [agent], "actions": ["stripe.*"],
        "when": "args.amount > 100", "approval": {"quorum": 2, "approvers": [newcomer.email]},
    }  # fmt: skip
    made = newcomer.http.post("/api/rules", json=body).json()
    with Colleague(newcomer, role) as colleague, Reader.of(newcomer.url, colleague.email) as reader:
        page = reader.page(f"{PAGE}/{made['id']}")
        for text in ("refund-bot", "stripe.*", "args.amount &gt; 100", newcomer.email, "Only admins can"):
            assert text in page
        assert ("Delete" in page, 'name="when"' in page) == (False, False)
        assert "New rule" not in reader.page(PAGE)
        assert "Only admins can add rules" in reader.page(f"{PAGE}/new")
        for path in (PAGE, f"{PAGE}/{made['id']}", f"{PAGE}/{made['id']}/delete"):
            assert reader.submit(path, token=reader.token(), name="x").status_code == 403
    assert rules_of(newcomer) == [made]


def test_simulator_shows_the_rules_of_the_call_and_which_one_decides(newcomer: Owner) -> None:
    agent = newcomer.agent("refund-bot")
    newcomer.permit(agent, "stripe.refund")
    bodies: Sequence[dict[str, object]] = (
        {"name": "Large", "effect": "require_approval", "actions": ["stripe.*"], "when": "args.amount > 100"},
        {"name": "Never", "effect": "forbid", "actions": ["stripe.refund"], "when": "args.amount > 1000"},
        {"name": "Elsewhere", "effect": "forbid", "actions": ["mail.*"]},
    )
    ids = [newcomer.http.post("/api/rules", json=body).json()["id"] for body in bodies]
    with Reader.of(newcomer.url, newcomer.email) as reader:
        way = f"/console/agents/{agent}/try"
        assert f'href="{way}"' in reader.page(f"{PAGE}/{ids[0]}")

        def tried(amount: str) -> tuple[str, list[str]]:
            answer = reader.submit(way, token=reader.token(), action="stripe.refund", amount=amount)
            [table] = re.findall(r'aria-labelledby="rules">(.*?)</table>', answer.text, re.DOTALL)
            assert f'href="{PAGE}/{ids[0]}"' in table
            shown = [text_of(row) for row in re.findall(r"<tr><td>(.*?)</tr>", table, re.DOTALL)]
            return answer.text, [" ".join(row.split()) for row in shown]

        page, [large, never] = tried("50")
        assert ("does not match" in large, "does not match" in never, "decides" in page) == (
            True,
            True,
            False,
        )
        page, [large, never] = tried("150")
        assert ("decides" in large, "matches" in large, "does not match" in never) == (True, True, True)
        assert "Approval required" in page
        page, [large, never] = tried("1500")
        assert ("decides" in large, "decides" in never) == (False, True)
        assert "forbids action" in text_of(page)
        page = reader.submit(way, token=reader.token(), action="db.read").text
        assert "Rules for this agent" not in page
