"""The pytest plugin, as a user's test run meets it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

pytest_plugins = "pytester"

KEY = "ak_" + "k" * 37

#: an application with a guarded tool, and one whose guard is its own
APPLICATION = f"""
from toolgate import Guard, guarded

@guarded("mail.send")
def send(to):
    return f"sent to {{to}}"

own = Guard("http://127.0.0.1:9", "{KEY}", "agent", timeout=0.01)

@own.guarded("mail.send")
def send_by_own(to):
    return f"sent to {{to}}"

@own.guarded("mail.send", fail_open=True)
def send_anyhow(to):
    return f"sent to {{to}}"
"""

Run = Callable[..., pytest.RunResult]

#: installed here as well, and slow to import; none of them is about a user's test
STRANGERS = [
    f"-pno:{name}" for name in ("anyio", "benchmark", "langsmith_plugin", "schemathesis", "valkey", "xdist")
]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a user's tests in a process of their own, without settings and with an empty home."""
    for name in ("URL", "API_KEY", "AGENT_ID", "OUTBOX"):
        monkeypatch.delenv(f"TOOLGATE_{name}", raising=False)
    monkeypatch.setenv("HOME", str(pytester.mkdir("home")))
    pytester.makepyfile(app=APPLICATION)

    def run(tests: str, *options: str, ini: str = "") -> pytest.RunResult:
        pytester.makeini(
            f"[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n{ini}"
        )
        pytester.makepyfile(tests)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *STRANGERS, *options)

    return run


BLOCK = "toolgate_block_network = true"


def test_the_fixture_stands_behind_the_default_guard(run: Run, pytester: pytest.Pytester) -> None:
    result = run(
        """
        import pytest
        from app import send
        from toolgate import ActionDenied, ConfigurationError

        def test_sent(fake_gateway):
            fake_gateway.allow("mail.send")
            assert send("ann") == "sent to ann"
            fake_gateway.assert_logged("mail.send", "success", to="ann")

        def test_new(fake_gateway):
            with pytest.raises(ActionDenied):
                send("ann")

        def test_without():
            with pytest.raises(ConfigurationError, match="TOOLGATE_URL"):
                send("ann")
        """
    )
    result.assert_outcomes(passed=3)
    assert list((pytester.path / "home").rglob("*")) == []


CALLS = """
import pytest
from app import own, send_anyhow, send_by_own
from toolgate import GatewayUnavailable

def test_called():
    send_by_own("ann")

def test_swallowed():
    try:
        send_by_own("ann")
    except BaseException:
        pass

async def test_task():
    try:
        await own.acheck("a.b")
    except Exception:
        pass

def test_open():
    send_anyhow("ann")

def test_thread():
    import threading
    def call():
        try:
            own.check("a.b")
        except BaseException:
            pass
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()

def test_replaced(fake_gateway):
    fake_gateway.allow("mail.send")
    with fake_gateway.replacing(own):
        assert send_by_own("ann") == "sent to ann"

@pytest.mark.toolgate_block_network(False)
def test_meant():
    with pytest.raises(GatewayUnavailable):
        own.check("a.b")
"""


def test_the_switch_makes_every_real_call_an_error(run: Run) -> None:
    result = run(CALLS, "-o", "asyncio_mode=auto", ini=BLOCK)
    result.assert_outcomes(failed=5, passed=2)
    result.stdout.fnmatch_lines(
        ["*called: 'http://127.0.0.1:9/sdk/check', which toolgate_block_network forbids; use the fixture*"]
    )


UNCONFIGURED = """
    import contextlib
    import pytest
    from toolgate import ConfigurationError, guarded

    @guarded("mail.send")
    def send(to):
        return f"sent to {to}"

    def test_swallowed():
        with contextlib.suppress(Exception):
            send("ann")

    def test_raised():
        send("ann")

    @pytest.mark.toolgate_block_network(False)
    def test_meant():
        with pytest.raises(ConfigurationError):
            send("ann")

    def test_faked(fake_gateway):
        fake_gateway.allow("mail.send")
        assert send("ann") == "sent to ann"
"""


def test_the_switch_fails_a_test_whose_guard_is_not_set_up(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOOLGATE_URL", "TOOLGATE_API_KEY", "TOOLGATE_AGENT_ID"):
        monkeypatch.delenv(name, raising=False)
    result = run(UNCONFIGURED, ini=BLOCK)
    result.assert_outcomes(failed=2, passed=2)
    result.stdout.fnmatch_lines(["*without a working configuration: url is not set; set TOOLGATE_URL*"])


@pytest.mark.slow
def test_without_the_switch_nothing_is_stopped(run: Run) -> None:
    result = run(CALLS, "-o", "asyncio_mode=auto", "-k", "not thread")
    result.assert_outcomes(failed=1, passed=5)
    result.stdout.fnmatch_lines(["*GatewayUnavailable*"])


@pytest.mark.slow
def test_the_marker_alone(run: Run) -> None:
    result = run(
        """
        import pytest
        from app import own
        from toolgate import GatewayUnavailable

        @pytest.fixture
        def asked():
            with pytest.raises(GatewayUnavailable):
                own.check("a.b")

        @pytest.mark.toolgate_block_network
        def test_stopped(asked): ...

        def test_free(asked): ...
        """,
        "--strict-markers",
    )
    result.assert_outcomes(errors=1, passed=1)


@pytest.mark.slow
def test_a_call_while_collecting_is_stopped(run: Run) -> None:
    result = run("from app import own\nown.check('a.b')\ndef test_none(): ...", ini=BLOCK)
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*a real Toolgate gateway was called*"])


def test_a_run_that_uses_nothing_of_it_loads_nothing() -> None:
    ask = (
        "import pytest, sys\nbefore = set(sys.modules)\nimport toolgate.testing.pytest_plugin\n"
        "print(*sorted(name for name in set(sys.modules) - before if 'toolgate' in name))\n"
        "print(*[name for name in ('httpx', 'pydantic', 'tenacity', 'wrapt') if name in set(sys.modules) - before])"
    )
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    ours, heavy = done.stdout.split("\n")[:2]
    assert ours.split() == ["toolgate", "toolgate.testing", "toolgate.testing.pytest_plugin"]
    assert heavy == ""
