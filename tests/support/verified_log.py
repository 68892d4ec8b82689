"""Verification of a gateway's transparency log by the auditor's program."""

import httpx

from support.gateway import Owner
from support.waiting import until
from toolgate_cli.log.verification.export import verify_export
from toolgate_cli.log.verification.results import Result
from toolgate_cli.log.verification.state import State


def export(owner: Owner, environment: str = "production") -> list[bytes]:
    """Return the lines of an export."""
    answer = owner.http.get("/api/transparency/export", params={"environment": environment})
    assert answer.status_code == httpx.codes.OK, answer.text
    return answer.content.splitlines(keepends=True)


def verify(owner: Owner, state: State | None = None, environment: str = "production") -> Result:
    """Verify the log of an environment once all its rows are sealed, and return the result."""
    until_sealed(owner, environment)
    return verify_export(export(owner, environment), state=state)


def until_sealed(owner: Owner, environment: str = "production") -> int:
    """Wait until all committed rows are part of a checkpoint, and return its size."""

    def sealed() -> int:
        answer = owner.http.get("/api/transparency", params={"environment": environment})
        is_sealed = answer.status_code == httpx.codes.OK and not answer.json()["pending"]
        return int(answer.json()["size"]) if is_sealed else 0

    return until(sealed)
