"""What is said of a check that is refused before it is decided; the decisions are held by the state machine."""

import json
import time
from pathlib import Path

import pytest
from sqlmodel import col, update
from support.gateway import PASSWORD
from support.inside import InsideGateway

from toolgate_service.checks.decide import Step
from toolgate_service.core.errors import ApiError
from toolgate_service.db.database import Database
from toolgate_service.organizations.models import Organization


@pytest.mark.parametrize(
    ("change", "at", "refusal"),
    [
        ({"is_active": False}, Step.ORGANIZATION, (401, "Organization is not active")),
        ({"requests_per_minute": 1}, Step.RATE, (429, "Rate limit exceeded")),
    ],
)
def test_a_refusal_is_explained(
    tmp_path: Path, change: dict[str, object], at: Step, refusal: tuple[int, str]
) -> None:
    """The step, its status and its words are those of the check that follows; what stands before it was passed."""
    with InsideGateway(tmp_path) as gateway:
        account = {"email": "a@example.test", "password": PASSWORD, "organization_name": "A"}
        made = gateway.send("POST", "/auth/register", json=account).json()
        headers = {"Authorization": f"Bearer {made['access_token']}"}
        organization = gateway.send("GET", "/api/organization", headers=headers).json()
        body = {"agent_id": "x", "action": "a"}

        async def apply(database: Database) -> None:
            async with database.writing(organization["id"]) as session:
                await session.exec(
                    update(Organization).where(col(Organization.id) == organization["id"]).values(change)
                )

        def check() -> tuple[int, str]:
            answer = gateway.send(
                "POST", "/sdk/check", json=body, headers={"X-API-Key": organization["api_key"]}
            )
            return answer.status_code, str(answer.json().get("detail"))

        gateway.within(apply)
        minute = None
        while minute != time.time() // 60:
            # In one minute: the first of its requests passes within the rate.
            minute = time.time() // 60
            check()
            explained = gateway.explain(organization["id"], "production", json.dumps(body).encode())
            status, words = check()
        assert isinstance(explained.decision, ApiError)
        assert (explained.at, explained.response) == (at, None)
        assert [one.step for one in explained.passed] == list(Step)[: list(Step).index(at)]
        assert (explained.decision.status_code, refusal[0]) == (status, status)
        assert words.startswith(refusal[1])
        assert explained.summary.startswith(refusal[1])
