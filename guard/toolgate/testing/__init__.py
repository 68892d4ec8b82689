"""Testing agents without a gateway: a fake of it, pytest fixtures, and a switch against real calls.

    from toolgate.testing import FakeGateway

    gateway = FakeGateway(allow=["math.add"], hold=["mail.send"])
    guard = gateway.guard()

Its answers are the real gateway's: the same tests run against both. Nothing is loaded before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolgate.requested import ApprovalRequest
    from toolgate.testing.gateway import FakeGateway
    from toolgate.testing.seen import Checked, Logged

__all__ = ["ApprovalRequest", "Checked", "FakeGateway", "Logged"]

_HOMES = {
    "Checked": "toolgate.testing.seen",
    "FakeGateway": "toolgate.testing.gateway",
    "Logged": "toolgate.testing.seen",
    "ApprovalRequest": "toolgate.requested",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'toolgate.testing' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
