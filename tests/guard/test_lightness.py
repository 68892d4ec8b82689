from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.http_libraries import NEEDS_HTTPX2

HEAVY = ["httpx", "httpx2", "pydantic", "tenacity", "sqlite3", "opentelemetry", "toolgate._http.client"]
# What only a call needs: without it an import and a decoration cost little more than wrapt alone.
OF_CALLS = [
    "toolgate._flow",
    "toolgate._drivers",
    "toolgate._capture.redaction",
    "hashlib",
    "decimal",
    "json",
    "uuid",
]


def loaded_after(code: str, modules: list[str] = HEAVY) -> set[str]:
    """Names of the heavy modules that a fresh interpreter has loaded after `code`."""
    ask = f"{code}\nimport sys\nprint(*[name for name in {modules} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ask],
        capture_output=True,
        text=True,
        check=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("TOOLGATE_")},
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import toolgate",
        "from toolgate import guarded\n@guarded('a.b')\ndef tool(n: int) -> int: return n",
        "from toolgate import guarded\n@guarded('a.b', amount='cents')\nasync def tool(cents): ...",
        "from toolgate import ActionDenied, Decision, acting_as\nwith acting_as('agent'): pass",
        f"from toolgate import Guard\nGuard('https://gateway.example', 'ak_{'a' * 37}', 'agent')",
    ],
)
def test_light(code: str) -> None:
    """Importing, decorating and making a guard load no HTTP library and no validation."""
    assert loaded_after(code) == set()


@pytest.mark.parametrize(
    "code",
    [
        "import toolgate",
        "from toolgate import guarded\n@guarded('a.b')\ndef tool(n: int) -> int: return n",
        "from toolgate import guarded\n@guarded('a.b', on_hold='wait', include={'n'}, amount='n')\nasync def tool(n): ...",
    ],
)
def test_a_decoration_loads_nothing_of_a_call(code: str) -> None:
    """What captures, asks and records is loaded by the first call and not by the import."""
    assert loaded_after(code, OF_CALLS) == set()


def test_the_first_call_loads_what_it_needs() -> None:
    """The measure works: a call does load them."""
    code = (
        "from toolgate import Guard, GuardError\n"
        f"guard = Guard('http://127.0.0.1:9', 'ak_{'a' * 37}', 'agent', timeout=0.01)\n"
        "try: guard.check('a.b')\nexcept GuardError: pass"
    )
    called = loaded_after(code, HEAVY + OF_CALLS)
    assert called >= {"httpx", "pydantic", "tenacity", "toolgate._http.client", *OF_CALLS} - {
        "toolgate._flow",
        "toolgate._drivers",
    }


def test_the_middleware_is_loaded_by_who_uses_it() -> None:
    """Nothing else of the SDK loads it; it loads no framework, and what speaks to the gateway with the first request."""
    assert loaded_after("from toolgate import *", ["toolgate.asgi"]) == set()
    code = "from toolgate.asgi import GuardMiddleware\nGuardMiddleware(print, actions={'POST /a': 'a.b'})"
    assert loaded_after(code, [*HEAVY, "starlette", "fastapi"]) == set()


@pytest.mark.parametrize(
    ("chosen", "other"),
    [
        pytest.param("", "httpx2", id="none"),
        pytest.param("httpx", "httpx2", id="httpx"),
        pytest.param("httpx2", "httpx", id="httpx2", marks=NEEDS_HTTPX2),
    ],
)
def test_the_library_that_is_chosen_is_the_one_that_is_used(chosen: str, other: str) -> None:
    """TOOLGATE_HTTP names it, httpx is used where it names none, and the other one is not even loaded."""
    code = (
        f"import os; os.environ['TOOLGATE_HTTP'] = {chosen!r}\n"
        "from toolgate import Guard, GuardError\n"
        f"guard = Guard('http://127.0.0.1:9', 'ak_{'a' * 37}', 'agent', timeout=0.01)\n"
        "try: guard.check('a.b')\nexcept GuardError: pass"
    )
    loaded = loaded_after(code)
    assert chosen or "httpx" in loaded
    assert not chosen or chosen in loaded
    assert other not in loaded


@pytest.mark.parametrize("order", ["Guard, action", "action, Guard"])
def test_names_are_not_shadowed_by_modules(order: str) -> None:
    """A public name is the thing it promises in whatever order things are loaded."""
    assert loaded_after(f"from toolgate import {order}\nassert callable(action) and callable(Guard)") == set()
