"""The HTTP libraries that the SDK works with, for tests that run with each of them."""

import httpx
import pytest

try:
    import httpx2
except ImportError:
    httpx2 = None

NEEDS_HTTPX2 = pytest.mark.skipif(
    httpx2 is None, reason="httpx2 is optional and not installed in this environment"
)

LIBRARIES = ["httpx", pytest.param("httpx2", marks=NEEDS_HTTPX2)]
MODULES = [pytest.param(httpx, id="httpx"), pytest.param(httpx2, id="httpx2", marks=NEEDS_HTTPX2)]
LIBRARIES_AND_KINDS = [
    ("httpx", "sync"),
    ("httpx", "async"),
    pytest.param("httpx2", "sync", marks=NEEDS_HTTPX2),
    pytest.param("httpx2", "async", marks=NEEDS_HTTPX2),
]
