"""Toolgate SDK: check each tool call with the gateway before the tool runs, and log the outcome.

    from toolgate import guarded

    @guarded("stripe.refund")
    def refund(charge_id: str, amount: float) -> str: ...

Each submodule is imported at the first use of one of its names, so that `import toolgate` is fast. Decorating a
function does not import the HTTP library; the first call does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolgate._callables import guarded_action, is_guarded
    from toolgate._default import action, configure, default_guard, flush, guarded, resume
    from toolgate._guard import Guard
    from toolgate._identity import acting_as, bind_context, reason, tool_call
    from toolgate._models import Approval, Decision
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
    "bind_context",
    "configure",
    "default_guard",
    "flush",
    "guarded",
    "guarded_action",
    "is_guarded",
    "reason",
    "resume",
    "tool_call",
]

_MODULES = {
    "Approval": "_models",
    "Decision": "_models",
    "Guard": "_guard",
    "acting_as": "_identity",
    "action": "_default",
    "bind_context": "_identity",
    "configure": "_default",
    "default_guard": "_default",
    "flush": "_default",
    "guarded": "_default",
    "guarded_action": "_callables",
    "is_guarded": "_callables",
    "reason": "_identity",
    "resume": "_default",
    "tool_call": "_identity",
}
_DEPRECATED = {"calling": "_identity", "carry": "_identity"}


def __getattr__(name: str) -> object:
    if name in _DEPRECATED:
        return getattr(import_module(f"toolgate.{_DEPRECATED[name]}"), name)
    if name not in __all__:
        raise AttributeError(f"module 'toolgate' has no attribute {name!r}")
    value = getattr(import_module(f"toolgate.{_MODULES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
