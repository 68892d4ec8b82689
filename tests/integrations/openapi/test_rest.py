"""A real REST server on this machine, real connections, and a real gateway."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from support.gateway import Owner
from support.rest_api import DOCUMENT, Mode, Sent, served

from toolgate import ActionDenied, ApprovalPending, Guard
from toolgate_integrations.openapi import AsyncGuardTransport, GuardTransport

PAIRS = [("httpx", "sync"), ("httpx2", "async")]


class Real:
    """A client over the network."""

    def __init__(self, owner: Owner, guard: Guard, address: str, sent: list[Sent]) -> None:
        self.owner, self.guard, self.address, self.sent = owner, guard, address, sent

    async def send(self, library: str, mode: Mode, method: str, path: str, **request: Any) -> Any:
        http = import_module(library)
        options = {"prefix": "pay", "guard": self.guard, "servers": [self.address]}
        if mode == "sync":
            inner = GuardTransport(http.HTTPTransport(), DOCUMENT, **options)
            with http.Client(transport=inner, base_url=self.address, follow_redirects=True) as client:
                return client.request(method, path, **request)
        ainner = AsyncGuardTransport(http.AsyncHTTPTransport(), DOCUMENT, **options)
        async with http.AsyncClient(transport=ainner, base_url=self.address, follow_redirects=True) as client:
            return await client.request(method, path, **request)

    def logged(self) -> list[tuple[str, str]]:
        assert self.guard.flush(30)
        return sorted((each["action"], each["status"]) for each in self.owner.entries())


@pytest.fixture
def real(owner: Owner) -> Iterator[Real]:
    agent_id = owner.agent()
    owner.permit(agent_id, "pay.PostRefunds", max_amount=100)
    owner.permit(agent_id, "pay.PatchRefund", requires_approval=True)
    for each in ("Drop", "Move", "GET:/refunds/{id}"):
        owner.permit(agent_id, f"pay.{each}")
    with Guard(owner.url, owner.key, agent_id) as guard, served() as (address, sent):
        yield Real(owner, guard, address, sent)


@pytest.mark.parametrize(("library", "mode"), PAIRS)
async def test_requests_over_the_network(real: Real, library: str, mode: Mode) -> None:
    """What is allowed arrives once, what is not does not; both stand in the log, and no secret does."""
    headers = {"Authorization": "Bearer sk_live_hush", "Cookie": "session=hush"}
    answer = await real.send(library, mode, "POST", "/refunds", json={"amount": 40}, headers=headers)
    assert answer.json() == {"seen": "/v1/refunds"}
    with pytest.raises(ActionDenied, match="400 is above"):
        await real.send(library, mode, "POST", "/refunds", json={"amount": 400})
    with pytest.raises(ActionDenied, match="no permission"):
        await real.send(library, mode, "GET", "/refunds")
    assert (await real.send(library, mode, "DELETE", "/refunds/re_1")).status_code == 409
    http = import_module(library)
    with pytest.raises(http.RemoteProtocolError):
        await real.send(library, mode, "GET", "/refunds/hangup")
    assert [each.method for each in real.sent] == ["POST", "DELETE", "GET"]
    assert real.sent[0].headers["authorization"] == "Bearer sk_live_hush"
    assert real.logged() == [
        ("pay.Drop", "failed"),
        ("pay.GET:/refunds/{id}", "failed"),
        ("pay.ListRefunds", "denied"),
        ("pay.PostRefunds", "denied"),
        ("pay.PostRefunds", "success"),
    ]
    assert "hush" not in str(real.owner.entries())


@pytest.mark.parametrize(("library", "mode"), PAIRS)
async def test_a_person_decides(real: Real, library: str, mode: Mode) -> None:
    """Held with all arguments bound, approved with a change, and sent as it was approved."""
    patch = ("PATCH", "/refunds/re_1")
    with pytest.raises(ApprovalPending) as pending:
        await real.send(library, mode, *patch, json={"note": "late", "to": "ada"})
    [request] = real.owner.http.get("/api/approvals").json()
    assert request["context"] == {"id": "re_1", "note": "late", "to": "ada"}
    edited = {"context": {**request["context"], "note": "too late"}}
    answer = real.owner.http.post(f"/api/approvals/{request['id']}/approve", json=edited)
    assert answer.status_code == 200, answer.text
    assert real.sent == []
    with real.guard.resume(pending.value.approval_id):
        await real.send(library, mode, *patch, json={"note": "late", "to": "ada"})
    [sent] = real.sent
    assert (sent.method, sent.url) == ("PATCH", "/v1/refunds/re_1")
    assert sent.body == b'{"note":"too late","to":"ada"}'
    assert real.logged() == [("pay.PatchRefund", "pending"), ("pay.PatchRefund", "success")]


@pytest.mark.parametrize(("library", "mode"), PAIRS)
async def test_a_redirect_is_asked_about(real: Real, library: str, mode: Mode) -> None:
    """A 307 leads to another operation with the same body, which is held to that operation's own limit."""
    assert (await real.send(library, mode, "POST", "/moved", json={"amount": 5})).status_code == 200
    with pytest.raises(ActionDenied, match="500 is above"):
        await real.send(library, mode, "POST", "/moved", json={"amount": 500})
    assert [each.url for each in real.sent] == ["/v1/moved", "/v1/refunds", "/v1/moved"]
    assert real.sent[1].body == real.sent[0].body
