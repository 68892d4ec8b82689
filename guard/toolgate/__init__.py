"""Toolgate's SDK: ask the gateway before an agent's tool runs, record what it did.

    from toolgate import guarded

    @guarded("stripe.refund")
    def refund(charge_id: str, amount: float) -> str: ...

Everything is loaded when first used; decorating loads no HTTP library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolgate.carrying import carry
    from toolgate.decision import Decision
    from toolgate.default import action, configure, default_guard, flush, guarded, resume
    from toolgate.errors import (
        ActionDenied,
        ApprovalDenied,
        ApprovalExpired,
        ApprovalPending,
        ConfigurationError,
        GatewayProtocolError,
        GatewayUnavailable,
        GuardError,
        OutboxFull,
    )
    from toolgate.guard import Guard
    from toolgate.identity import acting_as
    from toolgate.naming import calling
    from toolgate.stated_reason import reason
    from toolgate.steps import Approval
    from toolgate.wrappers import guarded_action, is_guarded

__all__ = [
    "ActionDenied",
    "Approval",
    "ApprovalDenied",
    "ApprovalExpired",
    "ApprovalPending",
    "ConfigurationError",
    "Decision",
    "GatewayProtocolError",
    "GatewayUnavailable",
    "Guard",
    "GuardError",
    "OutboxFull",
    "acting_as",
    "action",
    "calling",
    "carry",
    "configure",
    "default_guard",
    "flush",
    "guarded",
    "guarded_action",
    "is_guarded",
    "reason",
    "resume",
]

_HOMES = {
    "Approval": "steps",
    "Decision": "decision",
    "Guard": "guard",
    "acting_as": "identity",
    "action": "default",
    "calling": "naming",
    "carry": "carrying",
    "configure": "default",
    "default_guard": "default",
    "flush": "default",
    "guarded": "default",
    "guarded_action": "wrappers",
    "is_guarded": "wrappers",
    "reason": "stated_reason",
    "resume": "default",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'toolgate' has no attribute {name!r}")
    value = getattr(import_module(f"toolgate.{_HOMES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
