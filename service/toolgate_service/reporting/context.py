"""Which request a line is about."""

from contextvars import ContextVar

#: the id of the request under way; None for what the gateway does by itself. The quick road tells nothing and sets none.
REQUEST: ContextVar[str | None] = ContextVar("toolgate.request", default=None)

#: the scope's key under which whoever finds out whose request it is leaves the organization's id
ORGANIZATION = "toolgate.organization"
