"""Deciding, against a gateway that says what the test wants said: quorums, edits, grants, changes and refusals."""

import json
from typing import Any

import pytest
from support.pretend_gateway import APPROVAL, PretendGateway

ID = str(APPROVAL["id"])
OTHER = ID[:-1] + "2"
APPROVE = f"/api/approvals/{ID}/approve"
DENY = f"/api/approvals/{ID}/deny"


def approve(run: Any, *options: str) -> Any:
    return run("approvals", "approve", ID, "--password-stdin", *options)


def becomes(gateway: PretendGateway, **fields: object) -> None:
    """Let the gateway take a decision."""
    answer = {**APPROVAL, **fields}

    def decide() -> tuple[int, object]:
        gateway.approvals = [answer, *gateway.approvals[1:]]
        return 200, answer

    gateway.answers["POST", APPROVE] = gateway.answers["POST", DENY] = decide


def test_it_is_decided_under_a_login_of_its_own(gateway: PretendGateway, run: Any) -> None:
    """The stored token reads; a fresh one of scope full looks again, decides, and is ended."""
    becomes(gateway, status="approved")
    ended = approve(run, "--note", "fine")
    assert ended.exit_code == 0, ended.output
    assert gateway.paths() == [
        f"GET /api/approvals/{ID}",
        "POST /auth/login",
        f"GET /api/approvals/{ID}",
        f"POST {APPROVE}",
        "POST /auth/logout",
    ]
    tokens = [token for *_, token, _ in gateway.sent]
    assert tokens[0] == "stored-token"
    assert tokens[2] == tokens[3] == tokens[4] not in {"stored-token", ""}
    assert json.loads(gateway.bodies("/auth/login")[0])["scope"] == "full"
    assert json.loads(gateway.bodies(APPROVE)[0]) == {"note": "fine"}
    assert "the password" not in ended.output
    assert tokens[2] not in ended.output


@pytest.mark.parametrize(
    "change",
    [
        {"digest": "cd" * 32},
        {"context": {"amount": 251, "order": "1002"}},
        {"action": "stripe.payout"},
        {"status": "approved"},
        {"status": "cancelled"},
    ],
)
def test_only_what_was_seen_is_decided(gateway: PretendGateway, run: Any, change: dict[str, Any]) -> None:
    """When the request is another after the password than before it, nothing is decided, and the login ends."""

    def login() -> tuple[int, object]:
        gateway.approvals = [{**APPROVAL, **change}]
        return 200, {"access_token": "fresh"}

    gateway.answers["POST", "/auth/login"] = login
    ended = approve(run)
    assert ended.exit_code == 1
    assert "nothing was decided" in ended.stderr
    assert gateway.bodies(APPROVE) == []
    assert gateway.paths()[-1] == "POST /auth/logout"


def test_one_of_two_votes(gateway: PretendGateway, run: Any) -> None:
    """With a quorum the person is told that the vote counts, and who is still needed; the page names who voted."""
    vote = {"user_id": "user-1", "decision": "approved", "note": None, "created_at": APPROVAL["created_at"]}
    becomes(gateway, required_approvals=2, votes=[vote])
    ended = approve(run)
    assert ended.exit_code == 0, ended.output
    assert "your vote is stored (1 of 2 approvals): one more person has to approve" in ended.stdout
    shown = run("approvals", "show", ID).stdout
    assert "  approvals    1 of 2" in shown
    assert "approved by ada@example.test" in shown


@pytest.mark.parametrize(
    ("status", "detail"),
    [(403, "You may not approve this request: you created its agent"), (409, "You have voted already")],
)
def test_a_refusal_carries_its_reason(gateway: PretendGateway, run: Any, status: int, detail: str) -> None:
    """What the gateway says against it is the line, and nothing hidden in it is printed."""
    gateway.answers["POST", APPROVE] = (status, {"detail": f"{detail}\n\x1b[2Jtoolgate: approved\u202e"})
    ended = approve(run)
    assert ended.exit_code == 1
    assert ended.stderr == f"toolgate: nothing was decided: {detail}\\n\\x1b[2Jtoolgate: approved\\u202e\n"
    assert gateway.paths()[-1] == "POST /auth/logout"


def test_a_lost_answer_is_no_refusal(gateway: PretendGateway, run: Any) -> None:
    """Where the gateway breaks off while deciding, the line says that it is unknown, and how to look."""
    gateway.answers["POST", APPROVE] = (503, {"detail": "The disk is full"})
    ended = approve(run)
    assert ended.exit_code == 1
    assert "it is unknown whether the request was decided" in ended.stderr
    assert f"toolgate approvals show {ID}" in ended.stderr


def test_a_login_that_cannot_be_ended_is_told(gateway: PretendGateway, run: Any) -> None:
    """The decision stands and is told; that a login is left behind is told as well."""
    becomes(gateway, status="approved")
    gateway.answers["POST", "/auth/logout"] = (500, {"detail": "no"})
    ended = approve(run)
    assert ended.exit_code == 0
    assert "approved: " in ended.stdout
    assert "could not be revoked" in ended.stderr


def test_an_edit_sends_the_whole_context(gateway: PretendGateway, run: Any) -> None:
    """What is not edited goes along as it was, digits kept; the change is shown before the password is asked for."""
    context = {"rate": 0.5, "amount": 250, "order": "1002"}
    gateway.approvals = [{**APPROVAL, "context": context}]
    edited = {**APPROVAL, "id": OTHER, "status": "approved", "replaces": ID}
    gateway.approvals.append(edited)
    becomes(gateway, status="replaced", replaced_by=OTHER)
    ended = approve(run, "--edit", "amount=40.00", "--edit", 'order="1003"')
    assert ended.exit_code == 0, ended.output
    assert '"amount":40.00' in gateway.bodies(APPROVE)[0]
    assert json.loads(gateway.bodies(APPROVE)[0]) == {
        "context": {"rate": 0.5, "amount": 40.0, "order": "1003"}
    }
    assert "│ amount  40.00" in ended.stdout
    assert f"your edit created a new request, which replaces this one: {OTHER}" in ended.stdout
    assert "approved: " in ended.stdout


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--edit", "amount"], "NAME=JSON"),
        (["--edit", "amount=forty"], "not valid JSON"),
        (["--edit", "amount=NaN"], "not valid JSON"),
        (["--edit", 'order={"a": 1, "a": 2}'], "not valid JSON"),
        (["--edit", "amounts=1"], "it has amount, order, card, nested"),
        (["--edit", "amount=1", "--edit", "amount=2"], "twice"),
        (["--edit", "amount=250.0"], "equal those"),
        (["--edit", "card=1"], "redacted"),
        (["--edit", "nested=1"], "redacted"),
        (["--edit", "amount=1", "--for", "1h", "--uses", "2"], "cannot be combined"),
        (["--for", "1h"], "both --for and --uses"),
        (["--uses", "3"], "both --for and --uses"),
        (["--ignore-field", "order"], "only together with --for"),
        (["--for", "soon", "--uses", "3"], "invalid duration"),
        (["--for", "59s", "--uses", "3"], "from 1m to 30d"),
        (["--for", "31d", "--uses", "3"], "from 1m to 30d"),
        (["--for", "1h", "--uses", "1001"], "1,000"),
        (["--for", "1h", "--uses", "3", "--ignore-field", "x"], "no field 'x'"),
    ],
)
def test_a_wrong_wish_is_named_before_the_password(
    gateway: PretendGateway, run: Any, options: list[str], word: str
) -> None:
    """One line names what is wrong; nobody logs in and nothing is decided."""
    hidden = {"$digest": "hmac-sha256:" + "ab" * 32, "bytes": 3}
    context = {"amount": 250, "order": "1002", "card": hidden, "nested": [{"x": hidden}]}
    gateway.approvals = [{**APPROVAL, "context": context}]
    ended = approve(run, *options)
    assert ended.exit_code == 1
    (line,) = ended.stderr.splitlines()
    assert word in line
    assert gateway.paths() == [f"GET /api/approvals/{ID}"]


def test_the_same_for_a_while(gateway: PretendGateway, run: Any) -> None:
    """Uses, seconds and the fields that may differ go to the gateway; what it means is shown before, and after."""
    becomes(gateway, status="approved")
    other = {"id": "grant-0", "approval_id": OTHER, "status": "active", "uses_left": 3}
    grant = {"id": "grant-1", "approval_id": ID, "status": "active", "uses_left": 9}
    gateway.answers["GET", "/api/grants"] = (200, [other, grant])
    ended = approve(run, "--for", "1h", "--uses", "10", "--ignore-field", "order", "--any", "order")
    assert ended.exit_code == 0, ended.output
    assert "--any is deprecated and accepted until version 0.2; use --ignore-field" in ended.stderr
    grant = {"max_uses": 10, "duration_seconds": 3600, "ignored_fields": ["order"]}
    assert json.loads(gateway.bodies(APPROVE)[0]) == {"grant": grant}
    assert "you approve up to 10 calls within 1 h" in ended.stdout
    assert "any value: order" in ended.stdout
    assert "the temporary approval grant-1 is active: 9 more calls like this one are approved" in ended.stdout


def test_a_grant_that_waits_for_others(gateway: PretendGateway, run: Any) -> None:
    """A grant has the same quorum: until it is whole, it is only proposed."""
    vote = {"user_id": "user-1", "decision": "approved", "note": None, "created_at": APPROVAL["created_at"]}
    becomes(gateway, required_approvals=3, votes=[vote])
    grant = {"id": "grant-1", "approval_id": ID, "status": "proposed", "uses_left": 10}
    gateway.answers["GET", "/api/grants"] = (200, [grant])
    ended = approve(run, "--for", "2d", "--uses", "10")
    assert "1 of 3 approvals): 2 more people have to approve" in ended.stdout
    assert "starts when all required people have approved" in ended.stdout


@pytest.mark.parametrize(
    "answer", [[], {}, {"id": 1}, {**APPROVAL, "context": []}, {**APPROVAL, "created_at": "x"}]
)
def test_an_odd_answer_ends_in_one_line(gateway: PretendGateway, run: Any, answer: object) -> None:
    """What is no approval is not shown and not decided, and ends without a traceback."""
    gateway.answers["GET", f"/api/approvals/{ID}"] = (200, answer)
    ended = approve(run)
    assert ended.exit_code == 1
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1
    assert isinstance(ended.exception, SystemExit)
