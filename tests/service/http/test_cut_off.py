"""A request that did not arrive whole is not acted upon (RFC 9112 §8)."""

import gzip
import json
import socket
from urllib.parse import urlsplit

import pytest
from support.gateway import Owner


def send_and_hang_up(owner: Owner, path: str, headers: str, body: bytes) -> bytes:
    """Send the bytes of a request, end the sending side, and return whatever comes back."""
    address = urlsplit(owner.url)
    with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: gateway\r\nX-API-Key: {owner.key}\r\n{headers}\r\n"
        connection.sendall(head.encode() + body)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(4096), b""))


def chunk(part: bytes) -> bytes:
    return f"{len(part):x}\r\n".encode() + part + b"\r\n"


@pytest.mark.parametrize("how", ["length", "chunked", "gzip"])
def test_a_cut_off_log_entry_is_not_stored(acme: Owner, bot: str, how: str) -> None:
    """What came looks complete, and the end of the request did not come: no entry, and no 200."""
    body = json.dumps({"agent_id": bot, "action": f"cut.{how}", "status": "success"}).encode()
    headers, sent = {
        "length": (f"Content-Length: {len(body) + 100}\r\n", body),
        "chunked": ("Transfer-Encoding: chunked\r\n", chunk(body)),
        "gzip": (
            "Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
            chunk(gzip.compress(body)[:-8]),
        ),
    }[how]
    assert b" 200 " not in send_and_hang_up(acme, "/sdk/log", headers, sent)
    assert acme.entries(action=f"cut.{how}") == []


def test_a_cut_off_check_uses_up_no_approval(acme: Owner, bot: str) -> None:
    """An approval is not spent on a check that never arrived."""
    acme.permit(bot, "cut.check", requires_approval=True)
    approval = acme.check(bot, "cut.check").json()["approval_id"]
    acme.http.post(f"/api/approvals/{approval}/approve")
    body = json.dumps({"agent_id": bot, "action": "cut.check"}).encode()
    send_and_hang_up(acme, "/sdk/check", f"Content-Length: {len(body) + 1}\r\n", body)
    assert acme.http.get(f"/api/approvals/{approval}").json()["status"] == "approved"
    assert acme.check(bot, "cut.check").json()["allowed"] is True
