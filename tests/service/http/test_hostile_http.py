"""HTTP as nobody should write it: every answer is whole, none is a 5xx, and nothing that was cut off is done."""

import gzip
import zlib
from pathlib import Path
from urllib.parse import quote

import pytest
from support.gateway import LiveGateway, Owner
from support.raw import Raw, whole
from support.shapes import problem
from support.tables import execute

HOST = b"Host: gateway\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


def chunk(part: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(part), part)


def test_chunks_without_end_are_refused(acme: Owner) -> None:
    """A body that never ends is 413 as soon as it is too large, before its end, on both roads."""
    for path, credential in ((b"/sdk/log", b"X-API-Key: %b" % acme.key.encode()), (b"/auth/login", b"A: b")):
        with Raw(acme.url) as raw:
            raw.send(b"POST %b HTTP/1.1\r\n%b%b%b\r\n\r\n" % (path, HOST, CHUNKED, credential))
            raw.send(*[chunk(b" " * 65_536)] * 5)
            answer = whole(raw.answer())
            assert (answer.status, answer.headers["connection"]) == (413, "close")
            assert raw.ended()


@pytest.mark.parametrize("path", [b"/sdk/log", b"/auth/login", b"/nowhere"])
def test_a_body_in_thousands_of_tiny_chunks_is_refused(acme: Owner, path: bytes) -> None:
    """Parsing them costs the gateway far more than the client; a thousand of them, or larger ones, are accepted."""
    head = b"POST %b HTTP/1.1\r\n%b%bX-API-Key: %b\r\n\r\n" % (path, HOST, CHUNKED, acme.key.encode())
    with Raw(acme.url) as raw:
        raw.send(head, chunk(b" ") * 5_000)
        answer = whole(raw.answer())
        assert answer.status in ({404} if path == b"/nowhere" else {400})
        if answer.status == 400:
            assert "send larger chunks" in answer.json()["detail"]
        assert raw.ended()
    body = b'{"email": "a@example.test", "password": "wrong wrong"}'
    with Raw(acme.url) as raw:
        login = b"POST /auth/login HTTP/1.1\r\n" + HOST + CHUNKED + b"\r\n"
        raw.send(login, chunk(b" ") * 1_000, *map(chunk, (body[:9], body[9:])), b"0\r\n\r\n")
        assert whole(raw.answer()).status == 401


@pytest.mark.parametrize(
    ("path", "status"), [(b"/nowhere", 404), (b"/sdk/check", 401), (b"/api/agents", 401)]
)
def test_after_an_early_answer_the_rest_of_the_body_is_not_read(
    acme: Owner, path: bytes, status: int
) -> None:
    """The connection ends: what follows is neither parsed nor taken for a request."""
    with Raw(acme.url) as raw:
        raw.send(b"POST %b HTTP/1.1\r\n%bContent-Length: 200000\r\n\r\n" % (path, HOST), b"x" * 100)
        assert whole(raw.answer()).status == status
        raw.send(b"x" * 199_900, b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n")
        assert raw.ended()


def test_trailers_without_end_are_refused(acme: Owner) -> None:
    """A small body followed by trailers for ever is 413: they are counted as well."""
    with Raw(acme.url) as raw:
        raw.send(b"POST /auth/login HTTP/1.1\r\n" + HOST + CHUNKED + b"\r\n" + chunk(b"{}") + b"0\r\n")
        raw.send(*[b"X-T: " + b"x" * 60_000 + b"\r\n"] * 40)
        assert whole(raw.answer()).status == 413


def test_trailers_are_no_headers(acme: Owner, bot: str) -> None:
    """What comes after the body gives no request a key."""
    body = b'{"agent_id": "%b", "action": "a"}' % bot.encode()
    with Raw(acme.url) as raw:
        raw.send(
            b"POST /sdk/check HTTP/1.1\r\n" + HOST + CHUNKED + b"Trailer: X-API-Key\r\n\r\n" + chunk(body),
            b"0\r\nX-API-Key: " + acme.key.encode() + b"\r\n\r\n",
        )
        answer = whole(raw.answer())
    assert (answer.status, answer.json()) == (401, problem(401, "Missing API key"))


@pytest.mark.parametrize("filling", [b"A: b\r\n", b"x" * 1000], ids=["many", "endless"])
def test_a_flood_of_headers_is_refused(acme: Owner, filling: bytes) -> None:
    """A head of more than 64 KiB is 431, whether one header has no end or there are too many."""
    with Raw(acme.url) as raw:
        raw.send(b"GET /health HTTP/1.1\r\n" + HOST + b"X-Flood: ")
        raw.send(*[filling * (10_000 // len(filling))] * 10)
        answer = whole(raw.answer())
        assert (answer.status, answer.headers["connection"]) == (431, "close")


def test_a_head_in_one_piece_may_be_as_large_as_in_many(acme: Owner) -> None:
    """64 KiB to the byte are read, one more is refused, however the pieces fall."""
    start, end = b"GET /health HTTP/1.1\r\n" + HOST + b"X-Flood: ", b"\r\n\r\n"
    fits = start + b"x" * (64 * 1024 - len(start) - len(end)) + end
    for head, status in ((fits, 200), (start + b"x" * (64 * 1024 - len(start)) + end, 431)):
        for size in (len(head), 30_000):
            with Raw(acme.url) as raw:
                raw.send(*[head[at : at + size] for at in range(0, len(head), size)])
                assert whole(raw.answer()).status == status


def test_small_requests_in_one_piece_are_all_answered(acme: Owner) -> None:
    """Pipelined requests are each as large as they are, not as large as all together."""
    with Raw(acme.url) as raw:
        raw.send((b"GET /health HTTP/1.1\r\n" + HOST + b"X-Filling: " + b"x" * 900 + b"\r\n\r\n") * 100)
        assert {whole(raw.answer()).status for _ in range(100)} == {200}


@pytest.mark.parametrize(
    "head",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET  HTTP/1.1\r\n\r\n",
        b"GET health HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/9.9\r\n\r\n",
        b"FROB /health HTTP/1.1\r\n\r\n",
        b"get /health HTTP/1.1\r\n\r\n",
        b"CONNECT gateway:80 HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nA b: c\r\n\r\n",
        b"GET /health HTTP/1.1\r\n: c\r\n\r\n",
        b"GET /health HTTP/1.1\r\nA: \0\r\n\r\n",
        b"GET /health HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST /auth/login HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /auth/login HTTP/1.1\r\nContent-Length: 1e3\r\n\r\n",
        b"POST /auth/login HTTP/1.1\r\nContent-Length: " + b"9" * 40 + b"\r\n\r\n",
        b"POST /auth/login HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"POST /auth/login HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        b"POST /auth/login HTTP/1.1\r\nTransfer-Encoding: chunked, gzip\r\n\r\n{}",
    ],
    ids=range(20),
)
def test_what_is_no_http_is_told(acme: Owner, head: bytes) -> None:
    """A request that cannot be read is a 400 in the shape of every other, and the connection ends."""
    with Raw(acme.url) as raw:
        answer = whole(raw.send(head).answer())
        assert (answer.status, answer.json()) == (400, problem(400, "The request is not valid HTTP"))
        assert answer.headers["connection"] == "close"
        assert raw.ended()


@pytest.mark.parametrize(
    "framing",
    [
        b"HTTP/1.0\r\nTransfer-Encoding: chunked\r\n",
        b"HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n",
        b"HTTP/1.1\r\nTransfer-Encoding : chunked\r\n",
        b"HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n",
        b"HTTP/1.1\r\nTransfer-Encoding:\r\n chunked\r\n",
        b"HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        b"HTTP/1.1\r\nTransfer-Encoding: identity\r\nContent-Length: 19\r\n",
        b"HTTP/1.1\r\nX: a\rTransfer-Encoding: chunked\r\nContent-Length: 19\r\n",
        b"HTTP/1.1\nContent-Length: 19\n",
        b"HTTP/1.1\r\nContent-Length: 19, 19\r\n",
        b"HTTP/1.1\r\nContent-Length: 19\r\nContent-Length: 19\r\n",
        b"HTTP/1.1\r\nContent-Length: +19\r\n",
    ],
)
@pytest.mark.parametrize("path", [b"/sdk/check", b"/auth/login"])
def test_a_request_that_two_readers_may_end_elsewhere_is_refused(
    acme: Owner, path: bytes, framing: bytes
) -> None:
    """No request is smuggled past a proxy: where framing is in doubt it is 400, and nothing behind it is read."""
    head = (
        b"POST " + path + b" " + framing + b"Host: gateway\r\nX-API-Key: " + acme.key.encode() + b"\r\n\r\n"
    )
    with Raw(acme.url) as raw:
        answer = whole(
            raw.send(head, chunk(b'{"agent_id": 1}'), b"0\r\n\r\nGET /health HTTP/1.1\r\n\r\n").answer()
        )
        assert (answer.status, answer.json()) == (400, problem(400, "The request is not valid HTTP"))
        assert raw.ended()


@pytest.mark.parametrize(
    "size", [b"zz\r\n", b"-1\r\n", b"ffffffffffffffffff\r\n", b"2\r\n{}xx\r\n"], ids=range(4)
)
def test_a_malformed_chunk_undoes_the_request(acme: Owner, bot: str, size: bytes) -> None:
    """The body up to it looked whole: nothing is stored all the same, and the answer is a 400."""
    body = b'{"agent_id": "%b", "action": "torn", "status": "success"}' % bot.encode()
    head = b"POST /sdk/log HTTP/1.1\r\n" + HOST + CHUNKED + b"X-API-Key: " + acme.key.encode() + b"\r\n\r\n"
    with Raw(acme.url) as raw:
        assert whole(raw.send(head + chunk(body) + size).answer()).status == 400
        assert raw.ended()
    assert acme.entries(agent_id=bot) == []


def test_nonsense_after_a_request_spoils_only_itself(acme: Owner) -> None:
    """The request before is answered, and the connection ends."""
    with Raw(acme.url) as raw:
        answer = whole(raw.send(b"GET /health HTTP/1.1\r\n" + HOST + b"\r\nnonsense\r\n\r\n").answer())
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert raw.ended()


def test_a_request_is_not_done_without_its_end(acme: Owner) -> None:
    """Also where no body is looked for, one that was announced must have come: the key stays."""
    before = acme.http.get("/api/organization").json()["api_key"]
    with Raw(acme.url) as raw:
        raw.send(
            b"POST /api/organization/regenerate-key HTTP/1.1\r\n" + HOST + b"Content-Length: 10\r\n",
            b"Authorization: Bearer " + acme.token.encode() + b"\r\n\r\n12345",
        )
        raw.socket.shutdown(1)
        assert raw.ended()
    assert acme.http.get("/api/organization").json()["api_key"] == before


@pytest.mark.parametrize("upgrade", [b"h2c", b"websocket"])
def test_no_connection_is_upgraded(acme: Owner, upgrade: bytes) -> None:
    """A GET is answered as if nothing had been offered; a body would pass for the next request, so it is refused."""
    offer = HOST + b"Connection: Upgrade\r\nUpgrade: " + upgrade + b"\r\n"
    with Raw(acme.url) as raw:
        assert whole(raw.send(b"GET /health HTTP/1.1\r\n" + offer + b"\r\n").answer()).status == 200
        assert raw.ended()
    with Raw(acme.url) as raw:
        raw.send(b"POST /auth/login HTTP/1.1\r\n" + offer + b"Content-Length: 38\r\n\r\n")
        raw.send(b"GET /health HTTP/1.1\r\nHost: gateway\r\n\r\n")
        answer = whole(raw.answer())
        assert (answer.status, "Upgrade" in answer.json()["detail"]) == (400, True)
        assert raw.ended()


@pytest.mark.parametrize("how", ["gzip", "deflate"])
def test_a_bomb_does_not_go_off(acme: Owner, how: str) -> None:
    """A few bytes that would become a hundred megabytes are 413."""
    packed = (gzip.compress if how == "gzip" else zlib.compress)(bytes(100 * 2**20))
    for path in ("/sdk/check", "/api/agents"):
        headers = {"Content-Encoding": how, "X-API-Key": acme.key}
        assert acme.http.post(path, content=packed, headers=headers).status_code == 413


def test_a_doubly_packed_body_is_refused(acme: Owner) -> None:
    """Two codings are refused, in one header and in two: the inner one is not taken for the body."""
    body = gzip.compress(gzip.compress(b'{"name": "x"}'))
    head = b"POST /auth/login HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n" % len(body)
    for codings in (b"gzip, gzip", b"gzip\r\nContent-Encoding: gzip", b"identity\r\nContent-Encoding: gzip"):
        with Raw(acme.url) as raw:
            answer = whole(raw.send(head + b"Content-Encoding: " + codings + b"\r\n\r\n" + body).answer())
            assert (answer.status, list(answer.json()["detail"])) == (400, ["body"])


def test_a_body_is_asked_for_only_when_it_may_come(acme: Owner) -> None:
    """`Expect: 100-continue` gets its word for a small body, and the refusal at once for a large one."""
    expect = HOST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    with Raw(acme.url) as raw:
        raw.send(b"POST /auth/login HTTP/1.1\r\n" + expect % 2)
        assert raw.socket.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert whole(raw.send(b"{}").answer()).status == 400
    with Raw(acme.url) as raw:
        assert whole(raw.send(b"POST /auth/login HTTP/1.1\r\n" + expect % 10**9).answer()).status == 413


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (b"/api/agents/%00", 404),
        (b"/api/agents/a%00b/permissions", 404),
        (b"/sdk/approvals/%00", 404),
        (b"/api/agents/%ff", 404),
        (b"/api/agents/%ED%A0%80", 404),
        (b"/api/agents/%", 404),
        (b"/api/agents/..%2f..%2fetc", 404),
        (b"/api/logs?agent_id=%00", 200),
        (b"/api/logs?%00=%00", 200),
        (b"/api/logs?cursor=%00", 400),
        (b"/api/logs?status=%00", 400),
        (b"/api/logs?environment=%00", 400),
        (b"/api/approvals?action=%00&agent_id=%00", 200),
        (b"/sdk/approvals/x?wait=%00", 400),
        (b"/api/logs?agent_id=%ff", 200),
        (b"/api/logs?agent_id=%ED%A0%80", 200),
        (b"/api/logs?" + b"&" * 50_000, 200),
        (b"/api/logs?" + b"a=1&" * 12_000, 200),
        (b"/api/logs?limit=" + b"9" * 50_000, 400),
        (b"/api/logs?limit=1&limit=2", 200),
        (b"/api/logs?agent_id=" + b"x" * 60_000, 200),
        (b"http://gateway/api/logs", 200),
        (b"http://elsewhere.test/api/logs", 400),
        (b"/api/logs#fragment", 400),
    ],
    ids=range(24),
)
def test_no_target_is_too_strange(acme: Owner, target: bytes, status: int) -> None:
    """NUL, what is no UTF-8, half surrogates and floods in path and query: an honest refusal, never a 5xx."""
    credentials = b"Authorization: Bearer %b\r\nX-API-Key: %b\r\n" % (acme.token.encode(), acme.key.encode())
    with Raw(acme.url) as raw:
        raw.send(b"GET " + target + b" HTTP/1.1\r\n" + HOST + credentials + b"\r\n")
        assert whole(raw.answer()).status == status


def test_headers_may_be_empty_doubled_or_odd(acme: Owner) -> None:
    """Nothing in a header is a 5xx."""
    for name in (
        b"X-API-Key",
        b"Authorization",
        b"Content-Type",
        b"Idempotency-Key",
        b"X-Request-ID",
        b"Host",
        b"Origin",
    ):
        for value in (b"", b"\xff\xfe", b"x" * 5_000, b"a\r\n" + name + b": b"):
            for path in (b"/sdk/check", b"/sdk/log", b"/api/agents", b"/auth/login"):
                with Raw(acme.url) as raw:
                    raw.send(
                        b"POST %b HTTP/1.1\r\n%b: %b\r\nContent-Length: 2\r\n\r\n{}" % (path, name, value)
                    )
                    assert whole(raw.answer()).status in {400, 401}


@pytest.mark.parametrize("path", [b"/health", b"/api/agents", b"/nowhere", b"/sdk/check", b"/health/ready"])
def test_head_is_get_without_the_body(acme: Owner, path: bytes) -> None:
    """Status and headers are those of GET, and no byte follows: the connection goes on."""
    with Raw(acme.url) as raw:
        rest = path + b" HTTP/1.1\r\n" + HOST + b"Authorization: Bearer " + acme.token.encode() + b"\r\n\r\n"
        head = whole(raw.send(b"HEAD " + rest).answer("HEAD"))
        get = whole(raw.send(b"GET " + rest).answer())
        assert (head.status, head.body) == (get.status, b"")
        assert head.headers["content-length"] == str(len(get.body))


def test_unknown_methods_are_not_allowed(acme: Owner) -> None:
    """Methods that HTTP knows and the gateway does not are 405 with what is allowed, 404 where nothing is."""
    for method in (b"OPTIONS", b"PATCH", b"TRACE", b"PROPFIND"):
        with Raw(acme.url) as raw:
            answer = whole(raw.send(method + b" /api/agents HTTP/1.1\r\n" + HOST + b"\r\n").answer())
            assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, POST")
            answer = whole(raw.send(method + b" /nowhere HTTP/1.1\r\n" + HOST + b"\r\n").answer())
            assert answer.status == 404


def test_a_refusal_reaches_who_is_still_sending(gateway: LiveGateway) -> None:
    """Whoever sends on after the 413 can read it: the gateway listens a little longer before it hangs up."""
    with Raw(gateway.url) as raw:
        raw.send(b"POST /auth/login HTTP/1.1\r\n" + HOST + b"Content-Length: 3000000\r\n\r\n")
        raw.send(*[b" " * 100_000] * 30)
        assert whole(raw.answer()).status == 413


def test_nonsense_fills_no_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Whoever sends what is not HTTP is answered, and the operator's disk hears nothing of it."""
    with LiveGateway(tmp_path) as gateway:
        for _ in range(3):
            with Raw(gateway.url) as raw:
                raw.send(b"no HTTP at all\r\n\r\n")
                assert whole(raw.answer()).status == 400
    assert "HTTP" not in capfd.readouterr().err


def test_no_line_of_the_log_can_be_forged(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Line breaks and colours in whatever a stranger sends begin no line of the log, nor reach the operator's terminal."""
    forged = "\r\n2026-01-01 00:00:00,000 ERROR forged-line \x1b[31m"
    quoted = quote(forged)
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url, organization="Forger") as owner:
        agent = owner.agent()
        owner.log(agent, "a", context={"said": forged}, run_id="forged-line")
        for table in ("permissions", "log_entries", "approvals", "users"):
            execute(gateway, f"ALTER TABLE {table} RENAME TO {table}_gone", constrained=False)
            for method, path in (
                ("GET", f"/api/logs?action={quoted}"),
                ("GET", f"/{quoted}"),
                ("PUT", f"/api/agents/{quoted}"),
            ):
                owner.http.request(
                    method, path, headers={"User-Agent": "forged-line\tx", "X-Request-ID": "forged line"}
                )
            owner.check(agent, forged, {"said": forged})
            owner.log(agent, "a", context={"said": forged})
            owner.http.post("/auth/login", json={"email": f"{forged}@example.test", "password": forged})
        with Raw(gateway.url) as raw:
            raw.send(b"GET /\x1b[31m HTTP/1.1\nforged-line\r\n\r\n").ended()
    told = "".join(capfd.readouterr())
    assert "requests fail" in told, "the faults are in the log, so the log was read"
    assert "\x1b" not in told
    assert not [line for line in told.splitlines() if line.startswith(("2026-01-01", "forged"))]
