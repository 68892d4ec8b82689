"""No path has a version in it, and every answer says which one the API has (decisions §2)."""

import httpx
import pytest
from support.shapes import refused

PATHS = ["/health", "/auth/login", "/sdk/check", "/sdk/log", "/api/agents", "/api/logs"]


@pytest.mark.parametrize("path", PATHS)
def test_paths_have_no_version(anyone: httpx.Client, path: str) -> None:
    """The path is there as it is and under no version; nothing of it is said to be on its way out."""
    answer = anyone.post(path) if path.startswith(("/sdk", "/auth")) else anyone.get(path)
    assert answer.status_code in {200, 400, 401}
    assert answer.headers["X-API-Version"] == "2026-11-20"
    assert {"Deprecation", "Sunset"}.isdisjoint(answer.headers)
    for version in ("v1", "v2", "2026-11-20"):
        for method in ("GET", "POST"):
            refused(anyone.request(method, f"/{version}{path}"), 404, "Not Found")
