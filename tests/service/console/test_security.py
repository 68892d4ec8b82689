"""Protection of the console against other sites."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support.console import Reader
from support.gateway import PASSWORD, LiveGateway, Owner
from support.raw import Raw

from toolgate_service.console.app import ROUTES
from toolgate_service.core.addresses import host_name, is_allowed_host, read_hosts

PAGES = ["/console/register", "/console/approvals", "/console/nowhere"]
FORMS = [route.path for route in ROUTES if "POST" in (route.methods or ())]


def held(owner: Owner, agent: str, amount: object = 5) -> str:
    approval: str = owner.check(agent, "stripe.refund", {"amount": amount}).json()["approval_id"]
    return approval


def waits(owner: Owner, approval: str) -> bool:
    return bool(owner.http.get(f"/api/approvals/{approval}").json()["status"] == "pending")


@pytest.mark.parametrize("way", PAGES)
def test_every_page_has_security_headers(maya: Reader, way: str) -> None:
    """A strict content policy, no framing, no caching, no referrer to other sites."""
    headers = maya.get(way).headers
    policy = dict(part.strip().partition(" ")[::2] for part in headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["form-action"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"


def test_no_page_has_an_inline_script_or_style(maya: Reader, acme: Owner, refunder: str) -> None:
    """No style attribute, no event handler, no script without a source."""
    approval = held(acme, refunder)
    for way in (
        "/console/sign-in",
        "/console/approvals",
        f"/console/approvals/{approval}",
        "/console/register",
    ):
        page = maya.page(way) if "approvals" in way else httpx.get(acme.url + way).text
        assert " style=" not in page
        assert "<style" not in page
        assert " onclick" not in page
        assert page.count("<script") == page.count("<script src=")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("origin", ["https://evil.test", "null", "", "http://127.0.0.1:1"])
def test_forms_of_other_origins_are_refused(maya: Reader, form: str, origin: str) -> None:
    """Also without an Origin header, before any other check."""
    way = form.replace("{approval_id}", "x").replace("{grant_id}", "x")
    answer = maya.http.post(way, data={"token": maya.token()}, headers={"Origin": origin} if origin else {})
    assert answer.status_code == 403
    assert "not sent by a page of this console" in answer.text


@pytest.mark.parametrize("token", ["", "0" * 64, "not ASCII: ü"])
@pytest.mark.parametrize("what", ["approve", "deny"])
def test_forms_need_the_sessions_token(
    maya: Reader, acme: Owner, refunder: str, what: str, token: str
) -> None:
    """403, and the request stays pending."""
    approval = held(acme, refunder)
    assert maya.decide(approval, what, token=token).status_code == 403
    assert waits(acme, approval)


def test_the_token_of_another_session_is_refused(
    maya: Reader, viewer: Reader, acme: Owner, refunder: str
) -> None:
    approval = held(acme, refunder)
    assert maya.decide(approval, "approve", token=viewer.token()).status_code == 403
    assert waits(acme, approval)


@pytest.mark.parametrize("what", ["approve", "deny"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
def test_only_a_form_decides(maya: Reader, acme: Owner, refunder: str, what: str, method: str) -> None:
    """Links and other methods decide nothing."""
    approval = held(acme, refunder)
    way = f"/console/approvals/{approval}/{what}"
    answer = maya.http.request(method, way, headers={"Origin": acme.url})
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
    assert waits(acme, approval)


def test_a_page_and_its_form_are_at_one_address(maya: Reader) -> None:
    """The Allow header has the methods of both."""
    answer = maya.http.put("/console/agents", headers={"Origin": maya.url})
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD, POST")


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "multipart/form-data; boundary=x", ""])
def test_other_media_types_are_refused(maya: Reader, acme: Owner, refunder: str, kind: str) -> None:
    approval = held(acme, refunder)
    headers = {"Origin": acme.url} | ({"Content-Type": kind} if kind else {})
    answer = maya.http.post(f"/console/approvals/{approval}/approve", content=b"{}", headers=headers)
    assert answer.status_code == 400
    assert waits(acme, approval)


@pytest.mark.parametrize("body", [b"a=%ff", b"a\xff=b", b"token=x%00y", b"&".join([b"a=b"] * 500), b"token"])
def test_a_broken_form_is_refused(maya: Reader, acme: Owner, body: bytes) -> None:
    """Invalid UTF-8, NUL and too many fields are 400 without a traceback."""
    headers = {"Origin": acme.url, "Content-Type": "application/x-www-form-urlencoded"}
    answer = maya.http.post("/console/sign-out", content=body, headers=headers)
    assert answer.status_code == 400
    assert "Traceback" not in answer.text


def test_a_form_that_is_too_large_is_refused(maya: Reader) -> None:
    assert maya.submit("/console/sign-out", token="x" * 300_000).status_code == 413


@pytest.mark.parametrize(
    "host", ["evil.test", "evil.test:80", "127.0.0.1.evil.test", "localhost.evil.test", "a b", ""]
)
def test_unknown_host_names_are_refused(maya: Reader, host: str) -> None:
    """Protects against DNS rebinding."""
    answer = maya.get("/console/approvals", Host=host)
    assert answer.status_code in {400, 421}
    assert "refund" not in answer.text


def test_two_host_headers_are_refused(maya: Reader) -> None:
    """A proxy may have routed by the other one."""
    for names in (("127.0.0.1", "evil.test"), ("evil.test", "127.0.0.1"), ("127.0.0.1", "127.0.0.1")):
        head = b"".join(b"Host: %b\r\n" % name.encode() for name in names)
        with Raw(maya.url) as raw:
            answer = raw.send(b"GET /console/sign-in HTTP/1.1\r\n" + head + b"\r\n").answer()
        assert answer.status == 400


def test_known_host_names_and_addresses_are_accepted(maya: Reader) -> None:
    """Addresses cannot be rebound."""
    for host in ("localhost", "localhost:8000", "toolgate.localhost", "127.0.0.1", "[::1]:8000", "192.0.2.7"):
        assert maya.get("/console/sign-in", Host=host).status_code in {200, 303}, host


def test_host_headers_are_parsed_strictly() -> None:
    """A Host header is a name with an optional port."""
    assert read_hosts("A.example, b") == ("a.example", "b")
    for wrong in ("https://a.example", "a.example:80", "a/b", "*"):
        with pytest.raises(ValueError, match="is not a host name"):
            read_hosts(wrong)
    assert host_name("A.example.:80") == "a.example"
    assert [host_name(wrong) for wrong in ("a/b", "a b", "a@b", "", "a:b", "[::1")] == [None] * 6
    assert is_allowed_host("a.example", {"a.example"})
    assert not is_allowed_host("a.example", {"b.example"})


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway with a public https address and an internal name."""
    env = {"TOOLGATE_PUBLIC_URL": "https://gate.example", "TOOLGATE_CONSOLE_HOSTS": "gate.internal"}
    with LiveGateway(tmp_path_factory.mktemp("public"), env=env) as gateway:
        yield gateway


def test_over_https_the_cookie_has_the_host_prefix(public: LiveGateway) -> None:
    """`__Host-`, Secure, HttpOnly, SameSite; the public address is an allowed origin even if a proxy changes the host."""
    with Owner(public.url) as owner, Reader(public.url) as reader:
        fields = {"email": owner.email, "password": PASSWORD}
        answer = reader.submit("/console/sign-in", origin="https://gate.example", **fields)
        assert answer.status_code == 303
        cookie = answer.headers["Set-Cookie"]
        assert cookie.startswith("__Host-toolgate=ey")
        for attribute in ("HttpOnly", "Path=/;", "SameSite=lax", "Secure"):
            assert attribute in cookie
        assert "Domain" not in cookie
        for host in ("gate.example", "gate.internal:8443"):
            assert reader.get("/console/sign-in", Host=host).status_code == 200
        assert reader.get("/console/sign-in", Host="gate.elsewhere").status_code == 421


def test_the_cookie_is_accepted_by_the_console_alone(maya: Reader, acme: Owner) -> None:
    """Scripts cannot read it, and the API accepts no cookie."""
    with Reader(acme.url) as reader:
        cookie = reader.submit("/console/sign-in", email=acme.email, password=PASSWORD).headers["Set-Cookie"]
    name, _, token = cookie.partition(";")[0].partition("=")
    for attribute in ("HttpOnly", "Path=/console", "SameSite=lax"):
        assert attribute in cookie
    for way in ("/api/agents", "/auth/me", "/api/approvals"):
        assert httpx.get(acme.url + way, headers={"Cookie": f"{name}={token}"}).status_code == 401


def test_the_console_can_be_disabled(tmp_path: Path) -> None:
    """With `TOOLGATE_CONSOLE=false` nothing is served at /console."""
    with LiveGateway(tmp_path, env={"TOOLGATE_CONSOLE": "false"}) as gateway:
        assert httpx.get(f"{gateway.url}/console/sign-in").status_code == 404


@pytest.mark.parametrize(
    "way", ["/consolex", "/Console", "/console/", "/console/approvals/", "/console/static/../door.py"]
)
def test_other_spellings_are_not_found(maya: Reader, way: str) -> None:
    assert maya.http.get(httpx.URL(maya.url).copy_with(raw_path=way.encode())).status_code == 404


def test_static_files_are_cached(maya: Reader) -> None:
    """Addresses with a digest are immutable; others are revalidated."""
    page = maya.page("/console/approvals")
    way = page.partition('rel="stylesheet" href="')[2].partition('"')[0]
    kept = maya.get(way)
    assert kept.headers["Content-Type"].startswith("text/css")
    assert "immutable" in kept.headers["Cache-Control"]
    assert maya.get("/console/static/console.css?v=other").headers["Cache-Control"] == "no-cache"


@pytest.mark.parametrize(
    "name",
    [
        *("../console.css", "..%2fdoor.py", "%2e%2e/%2e%2e/door.py", "..%5c..%5cdoor.py", "/etc/passwd"),
        *(
            "%2fetc%2fpasswd",
            "console.css%00.js",
            "CONSOLE.CSS",
            "console.css/",
            "",
            ".",
            "..",
            "__init__.py",
        ),
    ],
)
def test_only_known_static_files_are_served(maya: Reader, name: str) -> None:
    """A path is never a file name, however it is encoded."""
    host = b"Host: 127.0.0.1\r\n\r\n"
    with Raw(maya.url) as raw:
        answer = raw.send(b"GET /console/static/" + name.encode() + b" HTTP/1.1\r\n" + host).answer()
    assert answer.status == 404
    assert b"import" not in answer.body


def test_signing_in_always_creates_a_session(acme: Owner) -> None:
    """Protects against session fixation."""
    with Reader.of(acme.url, acme.email) as earlier, Reader(acme.url) as victim:
        planted = earlier.http.cookies["toolgate-console"]
        victim.http.cookies.set("toolgate-console", planted, path="/console")
        assert victim.submit("/console/sign-in", email=acme.email, password=PASSWORD).status_code == 303
        own = {cookie.value for cookie in victim.http.cookies.jar} - {planted}
        assert len(own) == 1
        assert earlier.submit("/console/sign-out", token=earlier.token()).status_code == 303
        with Reader(acme.url) as fresh:
            fresh.http.cookies.set("toolgate-console", own.pop(), path="/console")
            assert fresh.get("/console/approvals").status_code == 200
