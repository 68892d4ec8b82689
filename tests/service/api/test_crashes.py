"""Responses to requests that fail by an unexpected exception."""

from support.gateway import LiveGateway, Owner
from support.insight import execute


def test_a_crash_names_the_request_and_nothing_else(gateway: LiveGateway, newcomer: Owner) -> None:
    """A 500 is JSON with the request id and no internals; other requests go on."""
    entry = newcomer.log(newcomer.agent(), "a").json()["id"]
    # A row that no version of the gateway writes: the listing cannot read it.
    assert execute(gateway, "UPDATE log_entries SET context = 'no json' WHERE id = ?", entry) == 1
    answer = newcomer.http.get("/api/logs", headers={"X-Request-ID": "find-me"})
    assert answer.status_code == 500
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["X-API-Version"]
    assert (
        answer.json()["detail"]
        == "The gateway failed; the operator finds the error in the log under request id find-me"
    )
    assert newcomer.http.get("/api/agents").status_code == 200
