"""Assembly of the ASGI application, middleware, health checks, metrics and the OpenAPI document."""
