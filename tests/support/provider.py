"""The payment provider, as it speaks to a gateway: its events, signed."""

import hashlib
import hmac
import json
import time
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from support.gateway import LiveGateway
from support.leaks import KNOWN

SECRET = "whsec_for_tests_only"
KNOWN.learn(SECRET)
PRO, BUSINESS, UNKNOWN = "price_pro", "price_business", "price_unknown"

#: names the prices that the events below are about
PLAN_FILE = f"""
[pro]
provider_price_ids = ["{PRO}"]
[business]
provider_price_ids = ["{BUSINESS}"]
"""

DAY = 24 * 3600
_numbers = count(time.time_ns())


def taking_events(folder: Path) -> LiveGateway:
    """Return a gateway, not yet started, whose organizations begin on the free plan and may pay."""
    (folder / "plans.toml").write_text(PLAN_FILE)
    env = {
        "TOOLGATE_PLANS_FILE": str(folder / "plans.toml"),
        "TOOLGATE_STRIPE_WEBHOOK_SECRET": SECRET,
    }
    return LiveGateway(folder, plan="free", env=env)


def fresh(prefix: str) -> str:
    """Return an identifier that nothing else has."""
    return f"{prefix}_{next(_numbers)}"


def seconds() -> int:
    """Return the provider's clock."""
    return int(time.time())


def subscription(customer: str, **fields: Any) -> dict[str, Any]:
    """Return an active subscription to the pro plan, as the provider's API of late 2025 shows it."""
    moment = seconds()
    price = fields.pop("price", PRO)
    item = {
        "id": "si_1",
        "object": "subscription_item",
        "price": {"id": price, "object": "price"},
        "current_period_start": moment - DAY,
        "current_period_end": moment + 29 * DAY,
    }
    return {
        "id": fresh("sub"),
        "object": "subscription",
        "customer": customer,
        "status": "active",
        "cancel_at_period_end": False,
        "created": moment - DAY,
        "trial_end": None,
        "ended_at": None,
        "items": {"object": "list", "data": [item]},
    } | fields


def invoice(customer: str, **fields: Any) -> dict[str, Any]:
    """Return an invoice over 29.00."""
    return {
        "id": fresh("in"),
        "object": "invoice",
        "customer": customer,
        "status": "open",
        "currency": "usd",
        "total": 2900,
        "amount_due": 2900,
        "amount_paid": 0,
        "invoice_pdf": "https://pay.example.test/invoice.pdf",
        "created": seconds() - DAY,
    } | fields


def event(kind: str, about: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return an event of this moment; `previous` says what it changed."""
    data = {"object": about}
    if "previous" in fields:
        data["previous_attributes"] = fields.pop("previous")
    return {
        "id": fresh("evt"),
        "object": "event",
        "api_version": "2025-09-30.clover",
        "type": kind,
        "created": seconds(),
        "livemode": True,
        "data": data,
    } | fields


def signed(body: str, *, secret: str = SECRET, at: int | None = None) -> dict[str, str]:
    """Return the header that signs a body."""
    moment = seconds() if at is None else at
    digest = hmac.new(secret.encode(), f"{moment}.{body}".encode(), hashlib.sha256).hexdigest()
    return {"Stripe-Signature": f"t={moment},v1={digest}"}


def deliver(url: str, told: dict[str, Any]) -> httpx.Response:
    """Deliver an event as the provider does."""
    body = json.dumps(told)
    return httpx.post(f"{url}/billing/provider-events", content=body, headers=signed(body), timeout=30)


def tell(url: str, kind: str, about: dict[str, Any], **fields: Any) -> str:
    """Deliver a new event and return what became of it."""
    answer = deliver(url, event(kind, about, **fields))
    assert answer.status_code == 200, answer.text
    outcome: str = answer.json()["outcome"]
    return outcome
