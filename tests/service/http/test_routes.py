"""Paths and methods: what is there, what is not, and what says so."""

from importlib.metadata import version
from pathlib import Path

import httpx
import pytest
from support.gateway import LiveGateway, Owner
from support.shapes import refused


def test_health_needs_no_credential(anyone: httpx.Client) -> None:
    """GET /health answers status and version without a key or token (decisions §3)."""
    answer = anyone.get("/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok", "version": version("toolgate")})
    assert answer.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/nowhere",
        "/api",
        "/api/agents/",
        "/sdk",
        "/sdk/check/",
        "/SDK/check",
        "/sdk//check",
        "/auth",
        "//",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_unknown_path_is_not_found(acme: Owner, method: str, path: str) -> None:
    """404 with a detail in JSON; no redirects, no trailing slashes, no other case (decisions §2)."""
    url = httpx.URL(acme.url).copy_with(raw_path=path.encode())
    refused(acme.http.request(method, url), 404, "Not Found")


CHROME = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "is_led"),
    [
        (CHROME, True),
        ("TEXT/HTML", True),
        ("application/json;q=0.5, text/html", True),
        ("text/html;q=0.5, application/json", False),
        ("text/html;q=0", False),
        ("text/html;q=nan", False),
        ("text/html;q=1e400", False),
        ("*/*", False),
        ("application/json", False),
        ("", False),
    ],
)
def test_root_leads_browsers_to_the_console(anyone: httpx.Client, accept: str, is_led: bool) -> None:
    """A client that prefers HTML is redirected; an API client gets the JSON of every unknown path."""
    answer = anyone.get("/", headers={"Accept": accept})
    if is_led:
        assert (answer.status_code, answer.headers["Location"]) == (303, "/console")
        assert answer.headers["Vary"] == "Accept"
    else:
        refused(answer, 404, "Not Found")
    refused(anyone.post("/", headers={"Accept": accept}), 404, "Not Found")


def test_root_leads_nowhere_without_a_console(tmp_path: Path) -> None:
    """With TOOLGATE_CONSOLE=false a browser gets what an API client gets."""
    with LiveGateway(tmp_path, env={"TOOLGATE_CONSOLE": "false"}) as gateway:
        refused(httpx.get(gateway.url, headers={"Accept": CHROME}), 404, "Not Found")


@pytest.mark.parametrize("path", ["/redoc", "/docs/oauth2-redirect", "/metrics"])
def test_nothing_else_is_published(anyone: httpx.Client, path: str) -> None:
    """No third party's documentation pages and no metrics on the public surface (decisions §3)."""
    refused(anyone.get(path), 404, "Not Found")


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/auth/register", {"POST"}),
        ("/auth/login", {"POST"}),
        ("/auth/me", {"GET"}),
        ("/auth/password", {"POST"}),
        ("/auth/password-reset", {"POST"}),
        ("/auth/password-reset/confirm", {"POST"}),
        ("/auth/logout", {"POST"}),
        ("/auth/accept-invitation", {"POST"}),
        ("/api/team", {"GET"}),
        ("/api/team/x", {"PUT", "DELETE"}),
        ("/api/team/invitations/x", {"DELETE"}),
        ("/sdk/check", {"POST"}),
        ("/sdk/log", {"POST"}),
        ("/sdk/approvals/x", {"GET"}),
        ("/sdk/approvals/x/cancel", {"POST"}),
        ("/sdk/permissions", {"GET"}),
        ("/api/agents", {"GET", "POST"}),
        ("/api/agents/x", {"GET", "PUT", "DELETE"}),
        ("/api/agents/x/permissions", {"GET", "POST"}),
        ("/api/agents/x/permissions/y", {"DELETE"}),
        ("/api/agents/x/keys", {"GET", "POST"}),
        ("/api/agents/x/keys/y", {"DELETE"}),
        ("/api/permissions/y", {"PUT", "DELETE"}),
        ("/api/logs", {"GET"}),
        ("/api/organization", {"GET", "PUT"}),
        ("/api/organization/regenerate-key", {"POST"}),
        ("/api/organization/test-key", {"GET"}),
        ("/api/organization/test-key/regenerate", {"POST"}),
        ("/api/approvals", {"GET"}),
        ("/api/approvals/z/approve", {"POST"}),
        ("/health", {"GET"}),
        ("/health/ready", {"GET"}),
    ],
)
def test_a_wrong_method_names_the_right_ones(anyone: httpx.Client, path: str, methods: set[str]) -> None:
    """405 with a detail in JSON and every method of the path in `Allow`, HEAD where there is GET (decisions §2)."""
    aliases = {alias for alias, method in (("HEAD", "GET"), ("PATCH", "PUT")) if method in methods}
    for wrong in {"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"} - methods - aliases:
        answer = anyone.request(wrong, path)
        refused(answer, 405, "Method Not Allowed")
        assert set(answer.headers["Allow"].split(", ")) == methods | aliases
