"""Former module of the pytest plugin, for environments that were installed before it was renamed."""

from toolgate.testing.pytest_plugin import (
    fake_gateway,
    pytest_addoption,
    pytest_configure,
    pytest_runtest_call,
    pytest_runtest_setup,
    pytest_runtest_teardown,
    pytest_unconfigure,
)

__all__ = [
    "fake_gateway",
    "pytest_addoption",
    "pytest_configure",
    "pytest_runtest_call",
    "pytest_runtest_setup",
    "pytest_runtest_teardown",
    "pytest_unconfigure",
]
