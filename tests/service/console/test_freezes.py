"""The page of freezes."""

from support.console import Reader
from support.gateway import Owner
from support.team import Colleague

PAGE = "/console/freezes"


def test_calls_are_frozen_and_the_freeze_is_lifted(newcomer: Owner) -> None:
    agent = newcomer.agent("refund-bot")
    newcomer.permit(agent, "stripe.refund")
    with Reader.of(newcomer.url, newcomer.email) as reader:
        assert "No active freezes" in reader.page(PAGE)
        form = {"token": reader.token(), "agent_id": agent, "action": "stripe.*", "reason": "<b>Twice</b>"}
        assert reader.submit(PAGE, **form).status_code == 303
        page = reader.page(PAGE)
        assert "<code>stripe.*</code>" in page
        assert ("&lt;b&gt;Twice" in page, "<b>Twice" in page) == (True, False)
        assert newcomer.check(agent, "stripe.refund").headers["x-reason-code"] == "frozen"
        [made] = newcomer.http.get("/api/freeze").json()
        assert reader.submit(f"{PAGE}/{made['id']}/lift", token=reader.token()).status_code == 303
        page = reader.page(PAGE)
        assert ("No active freezes" in page, "Lifted by" in page) == (True, True)
        assert newcomer.check(agent, "stripe.refund").headers["x-reason-code"] == "allowed"


def test_invalid_freeze_is_shown_again_with_its_error(newcomer: Owner) -> None:
    with Reader.of(newcomer.url, newcomer.email) as reader:
        answer = reader.submit(PAGE, token=reader.token(), action="a*b", reason="kept reason")
        assert (answer.status_code, 'class="problem"' in answer.text, "kept reason" in answer.text) == (
            400,
            True,
            True,
        )
        assert newcomer.http.get("/api/freeze").json() == []


def test_member_may_freeze_but_not_lift(newcomer: Owner) -> None:
    with Colleague(newcomer) as member, Reader.of(newcomer.url, member.email) as reader:
        assert reader.submit(PAGE, token=reader.token(), reason="x").status_code == 303
        [made] = newcomer.http.get("/api/freeze").json()
        assert made["created_by"] == member.id
        assert f"{made['id']}/lift" not in reader.page(PAGE)
        assert reader.submit(f"{PAGE}/{made['id']}/lift", token=reader.token()).status_code == 403
