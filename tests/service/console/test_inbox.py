"""Inbox: contents of cards, and decisions."""

import html
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.console import Reader, digest_of, field, text_of
from support.gateway import LiveGateway, Owner
from support.people import Board, board
from support.requester import REFUND, Requester
from support.tables import execute
from support.team import Colleague

HOSTILE = {
    "script": "<script>alert(1)</script>",
    "attribute": '" onmouseover="alert(1)" x="',
    "picture": "<img src=x onerror=alert(1)>",
    "template": "{{ 7*7 }}{% raw %}",
    "reversed": "safe\u202egpj.exe",
    "zero\u200bwidth": "a\u200bb\ufeffc",
    "control": "bell\x07 escape\x1b[31m line\u2028separator",
    "zalgo": "a" + "\u0300" * 30,
    "closing": "</textarea></pre></div></dd>",
    "entity": "&lt;b&gt;",
    "<b>name</b>": {"<i>inner</i>": ["<u>item</u>"]},
}


def held(owner: Owner, agent: str, context: object) -> str:
    answer = owner.check(agent, "stripe.refund", context).json()
    assert answer["requires_approval"], answer
    approval: str = answer["approval_id"]
    return approval


def shown(owner: Owner, approval: str) -> dict[str, Any]:
    found: dict[str, Any] = owner.http.get(f"/api/approvals/{approval}").json()
    return found


def card_of(page: str, approval: str) -> str:
    """Return one card of a page."""
    _, _, rest = page.partition(f'id="card-{approval}"')
    assert rest
    return rest.partition("</article>")[0]


def test_a_card_shows_the_whole_request(maya: Reader, acme: Owner, refunder: str) -> None:
    """Agent, action, arguments, reason, deadline and earlier outcomes, amounts and recipients first."""
    earlier = held(acme, refunder, {"amount": 1, "customer": "early@example.test"})
    acme.http.post(f"/api/approvals/{earlier}/deny", json={"note": "Too early <b>"})
    context = {"reason": "broken", "customer": "anna@example.test", "amount": 149.9, "tags": ["x", "y"]}
    approval = held(acme, refunder, context)
    card = card_of(maya.page("/console/approvals"), approval)
    words = text_of(card)
    assert "refund-bot asks to refund in stripe stripe.refund" in words
    assert "amount 149.9 customer anna@example.test reason broken tags xy" in words.replace("x y", "xy")
    assert "an approval for every call. The permission allows amounts up to 500" in words
    assert "until 20" in words
    assert "1 rejected" in words
    assert "“" not in words or "Too early" in words
    assert "Too early &lt;b&gt;" in card
    raw = card.partition('aria-label="Raw JSON">')[2].partition("</pre>")[0]
    assert json.loads(html.unescape(raw)) == context


def test_hostile_arguments_are_text(maya: Reader, acme: Owner, refunder: str) -> None:
    """Arguments are escaped, and invisible characters are shown by their code points."""
    approval = held(acme, refunder, HOSTILE)
    for way in ("/console/approvals", f"/console/approvals/{approval}"):
        card = card_of(maya.page(way), approval)
        for tag in ("<script", "<img", "<b>", "<i>", "<u>", "</textarea></pre>"):
            assert tag not in card, tag
        assert ' onmouseover="' not in card
        assert "{{ 7*7 }}{% raw %}" in text_of(card)
        for char in "\u202e\u200b\ufeff\x07\x1b\u2028":
            assert char not in card, hex(ord(char))
        assert 'title="Right-to-left override">U+202E</span>' in card
        assert "U+001B" in card
        assert card.count("\u0300") <= 4 * 3
        raw = card.partition('aria-label="Raw JSON">')[2].partition("</pre>")[0]
        assert json.loads(html.unescape(raw)) == HOSTILE


def test_hostile_arguments_are_posted_back_as_they_were(maya: Reader, acme: Owner, refunder: str) -> None:
    """Approving the unchanged text of the editor approves the call as requested."""
    approval = held(acme, refunder, HOSTILE | {"amount": 3})
    page = maya.page(f"/console/approvals/{approval}")
    text = html.unescape(page.partition('name="context"')[2].partition(">\n")[2].partition("</textarea>")[0])
    assert json.loads(text) == HOSTILE | {"amount": 3}
    assert maya.decide(approval, "approve", context=text.replace("\n", "\r\n")).status_code == 303
    assert shown(acme, approval)["status"] == "approved"


def test_a_card_shows_the_agents_reason_as_text(maya: Reader, acme: Owner, refunder: str) -> None:
    reason = "<b>The user</b> asked:\n{{ 7*7 }}"
    answer = acme.check(refunder, "stripe.refund", {"amount": 7}, reason=reason).json()
    for way in ("/console/approvals", f"/console/approvals/{answer['approval_id']}"):
        card = card_of(maya.page(way), answer["approval_id"])
        assert "<b>" not in card
        assert "Reason given by the agent (not verified) <b>The user</b> asked:" in text_of(card)
        assert "{{ 7*7 }}" in text_of(card)
        assert "No call is waiting for this decision now. The agent last requested this decision" in text_of(
            card
        )


def test_a_card_shows_the_justification_of_an_access_request_as_text(
    maya: Reader, acme: Owner, refunder: str
) -> None:
    client = Requester(acme, refunder)
    decision = client.evaluate(REFUND)
    context = REFUND["context"] | {"business_justification": "<b>Paid</b> twice {{ 7*7 }}"}
    answer = client.submit(client.submission(REFUND, decision) | {"context": context})
    client.close()
    assert answer.status_code == 202, answer.text
    approval = client.approvals()[0]["id"]
    for path in ("/console/approvals", f"/console/approvals/{approval}"):
        card = card_of(maya.page(path), approval)
        assert "<b>" not in card
        label = "Justification given by the client (not verified)"
        assert f"{label} <b>Paid</b> twice {{{{ 7*7 }}}}" in text_of(card)


def test_an_agents_name_is_text(maya: Reader, acme: Owner) -> None:
    """Names, notes and references are escaped, in titles too."""
    agent = acme.agent("<script>x</script>\u00a0{{1}}")
    acme.permit(agent, "a.<b>", requires_approval=True)
    approval = acme.check(agent, "a.<b>", None, run_id="<i>run").json()["approval_id"]
    page = maya.page(f"/console/approvals/{approval}")
    for tag in ("<script>x", "<b>", "<i>"):
        assert tag not in page
    assert "&lt;i&gt;run" in page


def test_long_arguments_are_decided_on_the_requests_page(maya: Reader, acme: Owner, refunder: str) -> None:
    """The inbox shows the beginning of 64 KiB without buttons."""
    context = {"amount": 1, "text": "x" * 60_000 + "the very end", "items": list(range(300))}
    approval = held(acme, refunder, context)
    card = card_of(maya.page("/console/approvals"), approval)
    assert "too long to be shown here in full" in card
    assert "<form" not in card
    assert len(card) < 10_000
    page = maya.page(f"/console/approvals/{approval}")
    assert "the very end" in card_of(page, approval)
    assert "too long to be shown here in full" not in page
    assert maya.decide(approval, "approve").status_code == 303


@pytest.mark.parametrize("what", ["approve", "deny"])
def test_a_decision_is_the_apis(maya: Reader, acme: Owner, refunder: str, what: str) -> None:
    """A form redirects with 303; the decision has the session's user and the note."""
    approval = held(acme, refunder, {"amount": 7, "what": what})
    answer = maya.decide(approval, what, note="  Seen\r\nand said ")
    assert answer.status_code == 303
    assert answer.headers["Location"].startswith(f"/console/approvals/{approval}")
    after = shown(acme, approval)
    assert after["status"] == {"approve": "approved", "deny": "denied"}[what]
    assert (after["decided_by"], after["note"]) == (acme.user["id"], "Seen\nand said")
    assert acme.email in maya.page(answer.headers["Location"])
    assert approval not in maya.page("/console/approvals").partition('data-known="')[2].partition('"')[0]
    assert approval in maya.page("/console/approvals/decided")


def test_edits_are_approved_exactly(maya: Reader, acme: Owner, refunder: str) -> None:
    """The approval is bound to the edited arguments with all digits, and replaces the first request."""
    approval = held(acme, refunder, {"amount": 90, "customer": "a"})
    wrong = maya.decide(approval, "approve", context='{"amount": 1, "amount": 2}')
    assert wrong.status_code == 400
    assert "appears more than once" in wrong.text
    above = maya.decide(approval, "approve", context='{"amount": 501, "customer": "a"}')
    assert above.status_code == 400
    assert "above the maximum of 500" in above.text
    assert '"amount": 501' in html.unescape(above.text)
    answer = maya.decide(
        approval, "approve", context='{"amount": 0.10000000000000000000001, "customer": "a"}'
    )
    assert answer.status_code == 303
    successor = shown(acme, shown(acme, approval)["replaced_by"])
    assert successor["status"] == "approved"
    assert "0.10000000000000000000001" in acme.http.get(f"/api/approvals/{successor['id']}").text
    assert f"/console/approvals/{successor['id']}" in maya.page(answer.headers["Location"])


def test_a_temporary_approval_is_created_and_revoked(maya: Reader, acme: Owner, refunder: str) -> None:
    approval = held(acme, refunder, {"amount": 20, "order_id": "1", "customer": "while"})
    for wrong in ("0", "1001", "-1", "ten", "1e3", ""):
        answer = maya.decide(approval, "approve", uses=wrong, seconds="3600", except_fields="order_id")
        assert (answer.status_code, "Nothing was decided" in answer.text) == (400, True), wrong
    answer = maya.decide(approval, "approve", uses="2", seconds="3600", except_fields="order_id")
    assert answer.status_code == 303
    other = acme.check(refunder, "stripe.refund", {"amount": 19, "order_id": "2", "customer": "while"}).json()
    assert other["allowed"] is True
    page = maya.page("/console/grants")
    assert "1 of 2 calls left" in text_of(page)
    [grant] = [one for one in acme.http.get("/api/grants").json() if one["approval_id"] == approval]
    ended = maya.submit(f"/console/grants/{grant['id']}/revoke", token=maya.token())
    assert (ended.status_code, ended.headers["Location"]) == (303, "/console/grants")
    assert acme.http.get(f"/api/grants/{grant['id']}").json()["status"] == "revoked"


@pytest.mark.parametrize("digest", ["", "0" * 64])
@pytest.mark.parametrize("what", ["approve", "deny"])
def test_another_digest_is_refused(maya: Reader, acme: Owner, refunder: str, what: str, digest: str) -> None:
    """409 with the current request, and nothing is decided."""
    approval = held(acme, refunder, {"amount": 8})
    answer = maya.decide(approval, what, digest=digest)
    assert answer.status_code == 409
    assert "Nothing was decided" in answer.text
    assert "has changed since it was shown" in answer.text
    assert shown(acme, approval)["status"] == "pending"


@pytest.mark.parametrize("part", [True, False])
def test_a_second_decision_shows_the_first(maya: Reader, acme: Owner, refunder: str, part: bool) -> None:
    """The second approver reads who decided what."""
    approval = held(acme, refunder, {"amount": 9, "part": part})
    assert maya.decide(approval, "deny").status_code == 303
    answer = maya.decide(approval, "approve", part=part)
    assert answer.status_code == 409
    assert "no longer pending: it is denied" in answer.text
    assert f"by {acme.email}" in answer.text
    assert 'action="/console/approvals' not in answer.text


def test_of_two_approvers_one_decides(acme: Owner, maya: Reader, refunder: str) -> None:
    """Of a simultaneous approval and rejection one counts; the other approver is informed."""
    with (
        Colleague(acme) as colleague,
        Reader.of(acme.url, colleague.email) as ben,
        ThreadPoolExecutor(2) as both,
    ):
        for round_ in range(4):
            approval = held(acme, refunder, {"amount": 10, "round": round_})
            page = maya.page(f"/console/approvals/{approval}")
            forms = [(maya, "approve", field(page, "token")), (ben, "deny", ben.token())]
            way, digest = f"/console/approvals/{approval}", digest_of(page)
            sent = [
                both.submit(who.submit, f"{way}/{what}", token=token, digest=digest)
                for who, what, token in forms
            ]
            answers = [one.result() for one in sent]
            assert sorted(answer.status_code for answer in answers) == [303, 409]
            winner = "approved" if answers[0].status_code == 303 else "denied"
            assert shown(acme, approval)["status"] == winner
            [loser] = [answer for answer in answers if answer.status_code == 409]
            assert f"it is {winner}" in loser.text


def test_a_quorum_needs_every_vote(gateway: LiveGateway) -> None:
    """After a user's vote the card offers no second one; the last vote approves."""
    with board(gateway, people=2, required_approvals=2) as scene:
        approval = scene.ask({"amount": 1})
        first, second = (Reader.of(person.url, person.email) for person in scene.people)
        with first, second:
            assert first.decide(approval, "approve").status_code == 303
            page = first.page(f"/console/approvals/{approval}")
            assert "You approved this request. Another approver must approve it too." in page
            assert "/approve" not in page
            assert "2 people must approve this request; 1 of them have approved so far." in second.page(
                "/console/approvals"
            )
            assert second.decide(approval, "approve").status_code == 303
        assert scene.shown(approval)["status"] == "approved"


def test_separation_of_duties_is_explained(gateway: LiveGateway) -> None:
    """The user who created the permission may reject but not approve."""
    with board(gateway, people=2, separation_of_duties=True) as scene:
        approval = scene.ask({"amount": 1})
        with Reader.of(scene.people[0].url, scene.people[0].email) as creator:
            page = creator.page(f"/console/approvals/{approval}")
            assert "You cannot approve this request: users who created" in page
            assert f"{approval}/approve" not in page
            assert creator.decide(approval, "approve").status_code == 403
            assert _still_waits(scene, approval)
            assert creator.decide(approval, "deny").status_code == 303


def _still_waits(scene: Board, approval: str) -> bool:
    return bool(scene.shown(approval)["status"] == "pending")


def test_redacted_arguments_are_marked(maya: Reader, acme: Owner, refunder: str) -> None:
    """A redacted argument is never shown as if its digest were the value."""
    digest = "hmac-sha256:" + "ab" * 32
    approval = held(acme, refunder, {"card": {"$digest": digest, "bytes": 16}, "amount": 2})
    words = text_of(card_of(maya.page("/console/approvals"), approval))
    assert "card redacted by the agent, 16 bytes hmac-sha256:abababab…" in words
    assert "Some arguments are redacted" in words


def test_the_visible_part_of_a_redacted_text_is_shown(maya: Reader, acme: Owner, refunder: str) -> None:
    text = {"$redacted": "ls # token=[redacted]", "$digest": "hmac-sha256:" + "ab" * 32, "bytes": 18}
    approval = held(acme, refunder, {"script": text, "amount": 2})
    words = text_of(card_of(maya.page("/console/approvals"), approval))
    assert (
        "script ls # token=[redacted] partly redacted by the agent, 18 bytes hmac-sha256:abababab…" in words
    )
    assert "Some arguments are redacted" in words


def test_the_most_urgent_goes_first(gateway: LiveGateway, newcomer: Owner) -> None:
    """Requests that expire within a quarter of an hour are listed before newer ones."""
    agent = newcomer.agent()
    newcomer.permit(agent, "soon", requires_approval=True, approval_ttl_seconds=600)
    newcomer.permit(agent, "later", requires_approval=True)
    soon = newcomer.check(agent, "soon").json()["approval_id"]
    older, newer = (newcomer.check(agent, "later", {"n": n}).json()["approval_id"] for n in (1, 2))
    with Reader.of(newcomer.url, newcomer.email) as reader:
        page = reader.page("/console/approvals")
    places = [page.index(f'id="card-{approval}"') for approval in (soon, newer, older)]
    assert places == sorted(places)
    assert "(3) Approvals" in page
    assert 'class="until soon"' in card_of(page, soon)


def test_pending_requests_are_paged(gateway: LiveGateway, newcomer: Owner) -> None:
    """Twenty per page, each once; the count includes all."""
    agent = newcomer.agent()
    newcomer.permit(agent, "many", requires_approval=True)
    ids = [newcomer.check(agent, "many", {"n": n}).json()["approval_id"] for n in range(45)]
    seen: list[str] = []
    with Reader.of(newcomer.url, newcomer.email) as reader:
        way: str | None = "/console/approvals"
        while way:
            page = reader.page(way)
            assert "45 pending requests" in page
            seen += [part.partition('"')[0] for part in page.split('id="card-')[1:]]
            _, more, rest = page.partition('<a class="button small" href="/console/approvals?offset=')
            way = f"/console/approvals?offset={rest.partition(chr(34))[0]}" if more else None
    assert seen == ids[::-1]


def test_decided_requests_are_filtered(maya: Reader, acme: Owner, refunder: str) -> None:
    """By state; an unknown state is refused and escaped."""
    approval = held(acme, refunder, {"amount": 11})
    maya.decide(approval, "deny")
    assert approval in maya.page("/console/approvals/decided?status=denied")
    assert approval not in maya.page("/console/approvals/decided?status=expired")
    answer = maya.get("/console/approvals/decided?status=<script>")
    assert (answer.status_code, "<script>" in answer.text) == (400, False)


def test_an_expired_request_cannot_be_decided(
    gateway: LiveGateway, maya: Reader, acme: Owner, refunder: str
) -> None:
    approval = held(acme, refunder, {"amount": 12})
    page = maya.page(f"/console/approvals/{approval}")
    execute(gateway, "UPDATE approvals SET expires_at = '2020-01-01T00:00:00.000000Z' WHERE id = ?", approval)
    fields = {"token": field(page, "token"), "digest": digest_of(page)}
    answer = maya.submit(f"/console/approvals/{approval}/approve", **fields)
    assert (answer.status_code, "it is expired" in answer.text) == (409, True)
    assert "not decided in time" in maya.page(f"/console/approvals/{approval}")


@pytest.mark.parametrize("name", ["x", "00000000-0000-7000-8000-000000000000", "%3Cscript%3E", "cards/x"])
def test_an_unknown_request_is_not_found(maya: Reader, name: str) -> None:
    """404 as a page with a link back."""
    answer = maya.get(f"/console/approvals/{name}")
    assert (answer.status_code, "<script>" in answer.text) == (404, False)
    assert 'href="/console/approvals"' in answer.text
