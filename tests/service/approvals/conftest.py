"""An agent whose `db.drop` a person must approve."""

from typing import Any

import httpx
import pytest
from support.asking import Ask, Decide, State
from support.gateway import Owner


@pytest.fixture
def permission(acme: Owner, bot: str) -> str:
    """The bot's permission for `db.drop`, which requires approval."""
    return acme.permit(bot, "db.drop", requires_approval=True)


@pytest.fixture
def ask(acme: Owner, bot: str, permission: str) -> Ask:
    """Checks `db.drop` as the bot."""

    def asking(context: object = None, **fields: object) -> dict[str, Any]:
        answer = acme.check(bot, "db.drop", context, **fields)
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result

    return asking


@pytest.fixture
def decide(acme: Owner) -> Decide:
    """Decides as the organization's admin."""

    def deciding(approval: str, how: str = "approve", **body: object) -> httpx.Response:
        answer = acme.http.post(f"/api/approvals/{approval}/{how}", json=body)
        assert answer.status_code == 200, answer.text
        return answer

    return deciding


@pytest.fixture
def state(acme: Owner) -> State:
    """Tells an approval's status, as people see it and as the agent does."""

    def telling(approval: str) -> str:
        path = f"/approvals/{approval}"
        shown = str(acme.http.get(f"/api{path}").json()["status"])
        assert acme.http.get(f"/sdk{path}", headers={"X-API-Key": acme.key}).json()["status"] == shown
        return shown

    return telling
