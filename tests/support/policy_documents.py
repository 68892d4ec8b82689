"""Random policies with realistic conditions, and random calls."""

import copy
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from toolgate_service.policies.document import PolicyDocument

MOMENT = datetime(2026, 11, 28, 12, tzinfo=UTC)
ACTIONS = [
    "stripe.refund",
    "stripe.charge",
    "mail.send",
    "mail.read",
    "db.query",
    "db.delete",
    "files.write",
]
_PATTERNS = ["*", "stripe.*", "mail.*", "db.*", "stripe.re*", "files.*"]
_NAMES = ["refund-bot", "support", "reports", "billing", "ops"]
_COUNTRIES = ["DE", "AT", "CH", "FR", "US"]
_DOMAINS = ["@example.com", "@rival.com", "@partner.org"]
_APPROVERS = ["ada@example.com", "bob@example.com", "eve@example.com", "joe@example.com"]

Document = dict[str, Any]


class Condition(NamedTuple):
    """Condition, and another condition with the same results."""

    text: str
    equivalent: str


def load(document: Document) -> PolicyDocument:
    """Return a valid document."""
    policy = PolicyDocument.model_validate(copy.deepcopy(document))
    policy.verify()
    return policy


class Policies:
    """Generator of policies. Equal seeds result in equal policies."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._equivalents: dict[str, str] = {}

    def call(self, agents: list[str]) -> tuple[str, str, dict[str, Any], str | None, datetime]:
        """Return the arguments of `PolicyEvaluator.judge` for a random call."""
        chosen = self.random
        context: dict[str, Any] = {
            "amount": chosen.choice([chosen.randrange(1_200), Decimal(chosen.randrange(120_000)) / 100]),
            "country": chosen.choice(_COUNTRIES),
            "to": [f"joe{chosen.choice(_DOMAINS)}" for _ in range(chosen.randrange(3))],
            "approved_by": chosen.choice(["", "ada"]),
            "query": chosen.choice(["select 1", "drop table x"]),
            "customer": {"tier": chosen.choice(["gold", "basic"])},
            "urgent": chosen.random() < 0.5,
        }
        for name in list(context):
            if chosen.random() < 0.15:
                del context[name]
        run = chosen.choice([None, "run-1"])
        moment = MOMENT + timedelta(hours=chosen.randrange(168))
        return chosen.choice(agents), chosen.choice([*ACTIONS, "mail.forward"]), context, run, moment

    def document(self) -> Document:
        """Return a random policy with 2 to 5 agents and 3 to 20 rules."""
        chosen = self.random
        names = chosen.sample(_NAMES, chosen.randrange(2, 6))
        agents = [
            {
                "name": name,
                "enabled": chosen.random() < 0.9,
                "permissions": [
                    self._permission(action) for action in chosen.sample(ACTIONS, chosen.randrange(1, 6))
                ],
            }
            for name in names
        ]
        rules = [self.rule(f"rule {number}", names) for number in range(chosen.randrange(3, 21))]
        return {"version": "toolgate.policy/v1", "agents": agents, "rules": rules, "budgets": []}

    def _permission(self, action: str) -> Document:
        chosen = self.random
        permission: Document = {"action": action, "requires_approval": chosen.random() < 0.3}
        if chosen.random() < 0.6:
            permission["max_amount"] = Decimal(chosen.choice(["50", "99.99", "250", "1000"]))
            permission["amount_required"] = chosen.random() < 0.5
        permission["required_approvals"] = chosen.choice([1, 1, 2])
        permission["approval_ttl_seconds"] = chosen.choice([None, 3_600, 7_200])
        permission["separation_of_duties"] = chosen.random() < 0.2
        return permission

    def rule(self, name: str, agents: list[str]) -> Document:
        """Return a random rule."""
        chosen = self.random
        effect = chosen.choices(["forbid", "require_approval", "allow"], [5, 3, 2])[0]
        rule: Document = {
            "name": name,
            "effect": effect,
            "agents": chosen.choice([["*"], [chosen.choice(agents)]]),
            "actions": [chosen.choice([*_PATTERNS, *ACTIONS])],
            "when": None if chosen.random() < 0.1 and effect != "forbid" else self.condition(),
        }
        if effect == "require_approval":
            rule["approval"] = {
                "quorum": chosen.choice([None, 1, 2, 3]),
                "ttl": chosen.choice([None, 1_800, 3_600]),
                "approvers": chosen.choice([None, sorted(chosen.sample(_APPROVERS, chosen.randrange(1, 4)))]),
            }
        return rule

    def condition(self) -> str:
        """Return a random condition, and remember its equivalent."""
        condition = self._condition()
        self._equivalents[condition.text] = condition.equivalent
        return condition.text

    def _condition(self, depth: int = 2) -> Condition:
        chosen = self.random
        if depth and chosen.random() < 0.4:
            left, right = self._condition(depth - 1), self._condition(depth - 1)
            operator, other = chosen.choice([("&&", "||"), ("||", "&&")])
            return Condition(
                f"({left.text}) {operator} ({right.text})",
                chosen.choice(
                    [
                        f"({right.equivalent}) {operator} ({left.equivalent})",
                        f"!(!({left.text}) {other} !({right.equivalent}))",
                    ]
                ),
            )
        return chosen.choices(
            [self._amount, self._country, self._text, self._presence, self._unsupported], [4, 3, 2, 2, 1]
        )[0]()

    def _amount(self) -> Condition:
        limit = self.random.choice(["10", "50", "99.99", "100", "500", "250.5"])
        return self.random.choice(
            [
                Condition(f"args.amount > {limit}", f"!(args.amount <= {limit})"),
                Condition(f"args.amount >= {limit}", f"{limit} <= args.amount"),
                Condition(
                    f"has(args.amount) && args.amount > {limit}", f"has(args.amount) && {limit} < args.amount"
                ),
            ]
        )

    def _country(self) -> Condition:
        one, two = self.random.sample(_COUNTRIES, 2)
        return self.random.choice(
            [
                Condition(f"args.country != '{one}'", f"!(args.country == '{one}')"),
                Condition(
                    f"args.country in ['{one}', '{two}']",
                    f"args['country'] == '{two}' || args.country == '{one}'",
                ),
                Condition(
                    f"!(args.country in ['{one}', '{two}'])", f"['{two}', '{one}'].all(c, c != args.country)"
                ),
            ]
        )

    def _text(self) -> Condition:
        return self.random.choice(
            [
                Condition("action.startsWith('stripe.')", "!!action.startsWith('stripe.')"),
                Condition("args.customer.tier == 'gold'", "'gold' == args.customer['tier']"),
                Condition("args.query.startsWith('drop')", "args['query'].startsWith('drop')"),
                Condition("run.id == ''", "size(run.id) == 0"),
            ]
        )

    def _presence(self) -> Condition:
        return self.random.choice(
            [
                Condition(
                    "has(args.approved_by) && args.approved_by != ''",
                    "!(!has(args.approved_by) || args.approved_by == '')",
                ),
                Condition("!has(args.country)", "has(args.country) ? false : true"),
                Condition("args.urgent", "args.urgent == true || (args.urgent && false)"),
            ]
        )

    def _unsupported(self) -> Condition:
        domain = self.random.choice(_DOMAINS)
        text = self.random.choice(
            [
                f"args.to.exists(t, t.endsWith('{domain}'))",
                "args.query.matches('(?i)^(drop|delete)')",
                "now.getHours() < 8",
            ]
        )
        return Condition(text, f"!!({text})")

    def equivalent(self, condition: str) -> str:
        """Return another condition with the same results."""
        return self._equivalents[condition]

    def rules_with(self, document: Document, test: Callable[[Document], Any]) -> list[Document]:
        """Return the rules that meet a test, in random order."""
        rules = [rule for rule in document["rules"] if test(rule)]
        self.random.shuffle(rules)
        return rules

    def permissions_with(
        self, document: Document, test: Callable[[Document], Any]
    ) -> list[tuple[Document, Document]]:
        """Return the agents and permissions that meet a test, in random order."""
        pairs = [(agent, one) for agent in document["agents"] for one in agent["permissions"] if test(one)]
        self.random.shuffle(pairs)
        return pairs
