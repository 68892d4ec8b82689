"""Tools for tests of agents without a real gateway: a fake gateway and a pytest plugin.

from toolgate.testing import FakeGateway

gateway = FakeGateway(allow=["math.add"], require_approval=["mail.send"])
guard = gateway.guard()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolgate._models import ApprovalRequest
    from toolgate.testing.fake import Checked, FakeGateway, Logged

__all__ = ["ApprovalRequest", "Checked", "FakeGateway", "Logged"]


def __getattr__(name: str) -> object:
    # pytest imports this package in every test run, so other modules are imported only when they are used.
    if name not in __all__:
        raise AttributeError(f"module 'toolgate.testing' has no attribute {name!r}")
    from toolgate.testing import fake

    return getattr(fake, name)


def __dir__() -> list[str]:
    return __all__
