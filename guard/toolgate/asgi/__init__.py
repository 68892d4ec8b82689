"""Guard tools that are HTTP endpoints: ASGI middleware that asks the gateway before the application sees a request.

from toolgate.asgi import GuardMiddleware

app = GuardMiddleware(app, actions={"POST /refunds/{charge_id}": "stripe.refund"})
"""

from toolgate.asgi.middleware import GuardMiddleware
from toolgate.asgi.routes import Endpoint

__all__ = ["Endpoint", "GuardMiddleware"]
