"""REST APIs: `httpx.Client(transport=GuardTransport(httpx.HTTPTransport(), "openapi.json", prefix="stripe"))`."""

from toolgate_integrations.openapi.transports import AsyncGuardTransport, GuardTransport

__all__ = ["AsyncGuardTransport", "GuardTransport"]
