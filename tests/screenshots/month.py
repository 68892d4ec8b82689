"""A month of a small shop: agents, what they may do, what they did, and what people decided."""

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from support.gateway import PASSWORD
from support.inside import Clock, InsideGateway

from toolgate_service.logs.counts import roll_up

OWNER = "maya@northwind.example"
COLLEAGUES = {
    "ben@northwind.example": "admin",
    "aiko@northwind.example": "member",
    "audit@northwind.example": "viewer",
}
DAYS = 30
#: the same pictures each time, as far as the day of the week lets them
CHANCE = random.Random(7)

AGENTS = {
    "refund-bot": "Refunds orders that customers return, up to what its permission says",
    "support-triage": "Reads tickets, answers what it can and forwards the rest",
    "invoice-clerk": "Writes and sends invoices at the end of the day",
    "deploy-helper": "Restarts services and applies migrations, never without a person",
}
#: whose, what, on which terms
PERMISSIONS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("refund-bot", "stripe.refund", {"max_amount": 500, "amount_required": True, "requires_approval": True}),
    ("refund-bot", "orders.read", {}),
    ("refund-bot", "mail.send", {}),
    ("support-triage", "tickets.answer", {}),
    ("support-triage", "tickets.forward", {}),
    ("support-triage", "mail.send", {"requires_approval": True}),
    ("invoice-clerk", "invoices.create", {"max_amount": 10_000, "amount_required": True}),
    ("invoice-clerk", "mail.send", {}),
    ("deploy-helper", "services.restart", {"requires_approval": True}),
    ("deploy-helper", "db.migrate", {"requires_approval": True, "required_approvals": 2}),
)
NAMES = ("Anna Lindqvist", "Tomás Ferreira", "Yuki Tanaka", "Zoë Hartmann", "Ola Nordmann", "Priya Raman")
REASONS = ("arrived broken", "wrong size", "never arrived", "ordered twice", "changed their mind")


@dataclass(slots=True)
class Shop:
    """The organization, as it was left.

    Attributes:
        token: of its owner.
        key: to production.
        agents: their ids, by name.
    """

    token: str
    key: str
    agents: dict[str, str] = field(default_factory=dict)


def live_through(gateway: InsideGateway, clock: Clock) -> Shop:
    """Found the shop, and live through its month up to now.

    It is founded now: what its people sign in with does not know of the clock that is set.
    """
    founded = {"email": OWNER, "password": PASSWORD, "organization_name": "Northwind"}
    token = _said(gateway, "POST", "/auth/register", founded)["access_token"]
    shop = Shop(token, "")
    shop.key = _manage(gateway, shop, "GET", "/api/organization")["api_key"]
    for email, role in COLLEAGUES.items():
        link = _manage(gateway, shop, "POST", "/api/team/invitations", {"email": email, "role": role})["link"]
        accepted = {"token": link.partition("#token=")[2], "password": PASSWORD}
        _said(gateway, "POST", "/auth/accept-invitation", accepted)
    now = datetime.now(UTC)
    clock._moment = now - timedelta(days=DAYS)
    for name, description in AGENTS.items():
        body = {"name": name, "description": description}
        shop.agents[name] = _manage(gateway, shop, "POST", "/api/agents", body)["id"]
    for agent, action, terms in PERMISSIONS:
        way = f"/api/agents/{shop.agents[agent]}/permissions"
        _manage(gateway, shop, "POST", way, {"action": action, **terms})
    for moment in _moments(now):
        clock._moment = moment
        _happen(gateway, shop, clock)
    clock._moment = now - timedelta(minutes=50)
    _allowed_for_a_while(gateway, shop)
    clock._moment = now
    # What the upkeep did in each of these hours, had they passed.
    gateway.within(lambda database: roll_up(database, 500))
    return shop


def refund(amount: float, name: str, reason: str) -> dict[str, object]:
    """Return what a refund is asked with."""
    mail = name.lower().split()[0].replace("ë", "e").replace("á", "a")
    order = f"NW-{CHANCE.randrange(20_000, 29_999)}"
    return {
        "amount": amount,
        "currency": "EUR",
        "customer": f"{mail}@example.com",
        "order": order,
        "reason": reason,
    }


def _moments(now: datetime) -> Iterator[datetime]:
    """Yield when something happens: in the day more than at night, on working days more than on others."""
    hour = (now - timedelta(days=DAYS)).replace(minute=0, second=0, microsecond=0)
    while hour < now:
        busy = 0.5 + 9 * max(0.0, 1 - abs(hour.hour - 13) / 7)
        if hour.weekday() >= 5:
            busy *= 0.4
        count = CHANCE.randrange(int(busy * 2) + 1)
        for second in sorted(CHANCE.randrange(3_600) for _ in range(count)):
            moment = hour + timedelta(seconds=second, microseconds=CHANCE.randrange(1_000_000))
            if now - timedelta(days=DAYS) < moment < now - timedelta(seconds=90):
                yield moment
        hour += timedelta(hours=1)


def _happen(gateway: InsideGateway, shop: Shop, clock: Clock) -> None:
    """Have an agent do something, or be refused it, or ask."""
    name = CHANCE.choice(NAMES)
    kind = CHANCE.random()
    if kind < 0.16:
        _refunded(
            gateway, shop, clock, refund(round(CHANCE.uniform(9, 260), 2), name, CHANCE.choice(REASONS))
        )
    elif kind < 0.20:
        _log(
            gateway,
            shop,
            "refund-bot",
            "stripe.refund",
            "denied",
            refund(CHANCE.randrange(501, 900), name, "-"),
        )
    elif kind < 0.24:
        _log(
            gateway,
            shop,
            "support-triage",
            "orders.delete",
            "denied",
            {"order": f"NW-{CHANCE.randrange(9_999)}"},
        )
    elif kind < 0.29:
        failed = {"to": "billing@example.com", "error": {"type": "SMTPServerDisconnected"}}
        _log(gateway, shop, "invoice-clerk", "mail.send", "failed", failed)
    else:
        agent, action = CHANCE.choice(
            [
                ("support-triage", "tickets.answer"),
                ("support-triage", "tickets.answer"),
                ("support-triage", "tickets.forward"),
                ("refund-bot", "orders.read"),
                ("invoice-clerk", "invoices.create"),
                ("invoice-clerk", "mail.send"),
            ]
        )
        context: dict[str, object] = {"ticket": CHANCE.randrange(7_000, 9_000), "customer": name}
        if action == "invoices.create":
            context = {"amount": round(CHANCE.uniform(40, 3_000), 2), "currency": "EUR", "customer": name}
        _log(gateway, shop, agent, action, "success", context)


def _refunded(gateway: InsideGateway, shop: Shop, clock: Clock, context: Mapping[str, object]) -> None:
    """Ask for a refund; mostly a person approves it."""
    body = {"agent_id": shop.agents["refund-bot"], "action": "stripe.refund", "context": context}
    asked = _call(gateway, shop, "/sdk/check", body)
    if asked["approval_id"] is None:
        return
    _log(gateway, shop, "refund-bot", "stripe.refund", "pending", context)
    waits = timedelta(seconds=20 + CHANCE.expovariate(1 / 240))
    clock._moment = min(clock._moment + waits, datetime.now(UTC) - timedelta(seconds=10))
    approves = CHANCE.random() < 0.85
    note = None if approves else {"note": "Ask the customer for a picture first"}
    way = f"/api/approvals/{asked['approval_id']}/{'approve' if approves else 'deny'}"
    _manage(gateway, shop, "POST", way, note)
    if approves:
        _call(gateway, shop, "/sdk/check", body)
    _log(gateway, shop, "refund-bot", "stripe.refund", "success" if approves else "denied", context)


def _allowed_for_a_while(gateway: InsideGateway, shop: Shop) -> None:
    body = {
        "agent_id": shop.agents["refund-bot"],
        "action": "stripe.refund",
        "context": refund(25, NAMES[2], REASONS[0]),
    }
    asked = _call(gateway, shop, "/sdk/check", body)
    grant = {
        "grant": {"max_uses": 20, "duration_seconds": 8 * 3_600, "ignored_fields": ["customer", "order"]}
    }
    _manage(gateway, shop, "POST", f"/api/approvals/{asked['approval_id']}/approve", grant)


def _log(
    gateway: InsideGateway, shop: Shop, agent: str, action: str, status: str, context: Mapping[str, object]
) -> None:
    body = {"agent_id": shop.agents[agent], "action": action, "status": status, "context": context}
    _call(gateway, shop, "/sdk/log", body)


def _manage(gateway: InsideGateway, shop: Shop, method: str, path: str, body: object = None) -> Any:
    return _said(gateway, method, path, body, {"Authorization": f"Bearer {shop.token}"})


def _call(gateway: InsideGateway, shop: Shop, path: str, body: object) -> Any:
    return _said(gateway, "POST", path, body, {"X-API-Key": shop.key})


def _said(
    gateway: InsideGateway, method: str, path: str, body: object, headers: Mapping[str, str] | None = None
) -> Any:
    content = None if body is None else json.dumps(body)
    answer = gateway.send(method, path, content=content, headers=headers)
    assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
    return answer.json()
