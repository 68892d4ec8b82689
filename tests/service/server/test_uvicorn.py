"""uvicorn's internals that the server relies on; pyproject.toml bounds uvicorn's version for the same reason."""

import inspect
import re
from importlib.metadata import requires

import pytest
import uvicorn
from uvicorn.protocols.http import flow_control, httptools_impl
from uvicorn.server import ServerState
from uvicorn.supervisors import multiprocess

from toolgate_service.server import protocol, server, workers

#: methods that only the subclass has, beside those whose names begin with an underscore
OWN = {
    protocol.GatewayProtocol: {"enforce_timeouts", "write", "is_closing", "close"},
    server.GatewayServer: set[str](),
    workers.Supervisor: {"create_worker"},
    workers.Worker: {"has_started"},
}


@pytest.mark.parametrize("ours", OWN)
def test_overridden_methods_exist_with_the_same_parameters(ours: type) -> None:
    theirs = ours.__mro__[1]
    for name, method in vars(ours).items():
        if not inspect.isfunction(method) or name == "__init__" or name in OWN[ours]:
            continue
        overridden = getattr(theirs, name, None)
        if overridden is None:
            assert name.startswith("_"), name
            continue
        if not overridden.__module__.startswith("uvicorn"):
            # sse-starlette, which a plugin's test may have imported, replaces `handle_exit` in this process.
            continue
        assert list(inspect.signature(method).parameters) == list(inspect.signature(overridden).parameters)


def test_hooks_of_the_protocol_are_called() -> None:
    """A hook that uvicorn renames would not be an error: its limit would be gone."""
    source = inspect.getsource(httptools_impl)
    for name in ("send_400_response", "_unsupported_upgrade_warning"):
        assert f"self.{name}(" in source
    assert "on_response=self.on_response_complete" in source
    assert {"keep_alive", "transport", "scope", "message_event"} <= set(
        inspect.signature(httptools_impl.RequestResponseCycle).parameters
    )
    cycle = inspect.getsource(httptools_impl.RequestResponseCycle)
    assert set(re.findall(r"self\.transport\.(\w+)", cycle)) == {"write", "close", "is_closing"}
    for name in ("response_started", "response_complete", "keep_alive", "message_event"):
        assert f"self.{name} = " in cycle


def test_attributes_of_the_protocol_exist() -> None:
    config = uvicorn.Config(lambda: None, log_config=None)
    connection = httptools_impl.HttpToolsProtocol(config, ServerState(), {}, _loop=object())  # type: ignore[arg-type]  # no loop runs here
    for name in (
        "transport",
        "flow",
        "cycle",
        "parser",
        "pipeline",
        "headers",
        "connections",
        "server_state",
        "loop",
    ):
        assert hasattr(connection, name), name
    assert "self.url" in inspect.getsource(httptools_impl.HttpToolsProtocol.on_url)
    assert "read_paused" in inspect.getsource(flow_control.FlowControl)


def test_attributes_of_the_server_exist() -> None:
    config = uvicorn.Config(lambda: None, log_config=None)
    config.load()
    for name in ("should_exit", "force_exit", "started", "_captured_signals", "server_state"):
        assert hasattr(uvicorn.Server(config), name), name
    assert hasattr(config, "encoded_headers")
    assert hasattr(ServerState(), "default_headers")


def test_supervisor_creates_processes_of_the_replaced_class() -> None:
    """`run_workers` replaces the class in uvicorn's module."""
    for method in ("init_processes", "keep_subprocess_alive"):
        assert "Process" in getattr(multiprocess.Multiprocess, method).__code__.co_names
    assert "self.signal_queue" in inspect.getsource(multiprocess.Multiprocess.__init__)


def test_version_of_uvicorn_is_bounded() -> None:
    bounds = [line for line in requires("toolgate") or () if line.startswith("uvicorn")]
    assert bounds
    assert all(re.search(r"<0\.\d+", line) and ">=" in line for line in bounds)
