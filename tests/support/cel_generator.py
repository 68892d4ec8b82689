"""Generated CEL expressions and contexts for the comparison of two engines, and the evaluation by `cel-python`.

Most generated expressions are well typed, because an error in both engines compares nothing.
"""

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import celpy

from toolgate_service.rules.expressions import Variables

_WORDS = [
    "",
    "a",
    "ab",
    "abc",
    "EUR",
    "USD",
    "admin",
    "x@example.com",
    "y@example.org",
    "é",
    "日本",
    "a.b",
    "A",
]
_INTEGERS = [-3, -1, 0, 1, 2, 3, 7, 100, 2**53 + 1, 2**63 - 1, -(2**63)]
_DOUBLES = ["0.5", "1.0", "-1.5", "2.0", "0.1", "0.3", "1e10", "99.99"]
_PATTERNS = [
    "^a",
    "b$",
    "a|b",
    "^[^@]+@example[.]com$",
    "[0-9]+",
    "^$",
    "(?i)ADMIN",
    "a.c",
    "^(a|b)*$",
    "[^a]",
]
_INSTANTS = [
    "2026-01-01T00:00:00Z",
    "2026-03-29T01:00:00Z",
    "2026-07-01T12:30:15Z",
    "2027-01-01T00:00:00+02:00",
]
_ZONES = ["", "'UTC'", "'Europe/Berlin'", "'America/New_York'", "'Asia/Tokyo'"]
_CLOCK = [
    "getFullYear",
    "getMonth",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getHours",
    "getMinutes",
]


class Generator:
    """Generator of pairs. Equal seeds result in equal pairs."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def variables(self, *, with_other_types: bool = False) -> Variables:
        """Return the context of one call: some arguments are missing, and some have another type than usual on request."""
        chosen = self._random
        args: dict[str, Any] = {
            "amount": Decimal(chosen.choice(_DOUBLES)),
            "count": chosen.choice(_INTEGERS),
            "rate": Decimal(chosen.choice(_DOUBLES)),
            "currency": self._word(),
            "to": [self._word() for _ in range(chosen.randrange(4))],
            "numbers": [chosen.choice(_INTEGERS) for _ in range(chosen.randrange(4))],
            "urgent": chosen.random() < 0.5,
            "note": None,
            "customer": {
                "id": self._word(),
                "tags": [self._word() for _ in range(chosen.randrange(3))],
                "level": 2,
            },
            "items": [
                {"sku": self._word(), "quantity": chosen.choice(_INTEGERS)}
                for _ in range(chosen.randrange(3))
            ],
            "when": chosen.choice(_INSTANTS),
        }
        for name in sorted(args):
            if chosen.random() < 0.04:
                del args[name]
            # `cel-python` has no timestamps of integers, and takes true for 1.
            elif with_other_types and name != "when" and chosen.random() < 0.1:
                args[name] = chosen.choice([None, 1, Decimal("1.5"), "a", [], ["a"], {}, {"id": 1}])
        now = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=chosen.randrange(365 * 86_400))
        return Variables(args, self._action(), "agent-1", self._word(), chosen.choice(["", "run-1"]), now)

    def boolean(self, depth: int = 3) -> str:
        """Return an expression that results in a boolean, unless it fails."""
        chosen = self._random
        if depth and chosen.random() < 0.45:
            left, right = self.boolean(depth - 1), self.boolean(depth - 1)
            return chosen.choice(
                [
                    f"({left} && {right})",
                    f"({left} || {right})",
                    f"!({left})",
                    f"({left} ? {right} : {self.boolean(depth - 1)})",
                ]
            )
        return chosen.choice(
            [
                self._integers,
                self._integers,
                self._doubles,
                self._amounts,
                self._texts,
                self._texts,
                self._methods,
                self._methods,
                self._members,
                self._presence,
                self._loop,
                self._loop,
                self._times,
                self._other,
            ]
        )()

    def _integers(self) -> str:
        return f"{self._integer()} {self._comparison()} {self._integer()}"

    def _integer(self, depth: int = 2) -> str:
        chosen = self._random
        if depth and chosen.random() < 0.3:
            return f"({self._integer(depth - 1)} {chosen.choice('+-*/%')} {self._integer(depth - 1)})"
        return chosen.choice(
            [
                "args.count",
                "args['count']",
                "args.customer.level",
                str(chosen.choice([1, 2, 3, 7, 100])),
                "args.to.size()",
                "size(args.currency)",
                "args.numbers[0]",
                "int(args.count)",
                "-args.count",
            ]
        )

    def _doubles(self) -> str:
        return f"{self._double()} {self._comparison()} {self._double()}"

    def _double(self) -> str:
        chosen = self._random
        value = chosen.choice(["args.rate", "double(args.count)", "0.5", "1.0", "99.99", "double('1.5')"])
        return (
            f"({value} {chosen.choice('+-*/')} {chosen.choice(['2.0', '0.1', 'args.rate'])})"
            if chosen.random() < 0.3
            else value
        )

    def _amounts(self) -> str:
        return (
            f"args.amount {self._comparison()} {self._random.choice(['1.0', '0.5', '1e10', '99.99', '-1.5'])}"
        )

    def _texts(self) -> str:
        return f"{self._text()} {self._comparison()} {self._text()}"

    def _text(self, *, joined: bool = True) -> str:
        chosen = self._random
        # In `cel-python`, a joined text has no methods.
        texts = ["(args.currency + 'a')", "(agent.name + args.customer.id)"] if joined else []
        return chosen.choice(
            [
                *texts,
                "args.currency",
                "args.customer.id",
                "args.customer['id']",
                "args.to[0]",
                "action",
                "agent.name",
                "run.id",
                f"'{self._word()}'",
                f"'{self._word()}'",
                "string(args.currency)",
            ]
        )

    def _methods(self) -> str:
        chosen = self._random
        if chosen.random() < 0.3:
            return f"{self._text(joined=False)}.matches('{chosen.choice(_PATTERNS)}')"
        return f"{self._text(joined=False)}.{chosen.choice(['startsWith', 'endsWith', 'contains'])}('{self._word()}')"

    def _members(self) -> str:
        chosen = self._random
        words = ", ".join(f"'{self._word()}'" for _ in range(chosen.randrange(1, 4)))
        return chosen.choice(
            [
                f"{self._text()} in [{words}]",
                f"'{self._word()}' in args.to",
                "args.count in args.numbers",
                "args.currency in args",
                f"'{self._word()}' in args.customer",
                f"args.to == [{words}]",
                f"args.customer.tags != [{words}]",
            ]
        )

    def _presence(self) -> str:
        return self._random.choice(
            [
                "has(args.amount)",
                "has(args.missing)",
                "has(args.customer.id)",
                "has(args.customer.missing)",
                "!has(args.note)",
            ]
        )

    def _loop(self) -> str:
        chosen = self._random
        macro = chosen.choice(["all", "exists", "exists_one"])
        # In `cel-python`, an error in the condition of exists_one() is an error also of `… || true`.
        quantifier = chosen.choice(["all", "exists"])
        return chosen.choice(
            [
                f"args.to.{macro}(t, t.endsWith('{self._word()}'))",
                f"args.to.{macro}(t, t == '{self._word()}' || t.size() > 2)",
                f"args.numbers.{macro}(n, n {self._comparison()} {chosen.choice([0, 2, 7])})",
                f"args.items.{macro}(i, i.sku {self._comparison()} '{self._word()}')",
                f"args.items.{macro}(i, i.quantity > 1 && i.sku != agent.name)",
                f"args.items.{quantifier}(i, i.quantity {self._comparison()} args.count)",
                f"['{self._word()}', 'a'].{quantifier}(p, args.currency.startsWith(p))",
                f"[args.customer].{macro}(c, c.tags.exists(t, t == '{self._word()}'))",
                f"args.customer.{macro}(k, k == 'id')",
                f"[1, 2, 3].{quantifier}(n, n > args.count)",
            ]
        )

    def _times(self) -> str:
        chosen = self._random
        return chosen.choice(
            [
                f"now {chosen.choice(['<', '<=', '>', '>='])} timestamp('{chosen.choice(_INSTANTS)}')",
                f"timestamp(args.when) {chosen.choice(['<', '>'])} now",
                f"now.{chosen.choice(_CLOCK)}({chosen.choice(_ZONES)}) {self._comparison()} {chosen.choice([0, 1, 5, 12, 2026])}",
                f"now - timestamp('{chosen.choice(_INSTANTS)}') > duration('{chosen.choice(['1h', '24h', '1.5s', '90m'])}')",
                f"now + duration('{chosen.choice(['1h', '24h'])}') > timestamp('{chosen.choice(_INSTANTS)}')",
            ]
        )

    def _other(self) -> str:
        return self._random.choice(
            [
                "args.urgent",
                "!args.urgent",
                "args.urgent == true",
                "args.note == null",
                "args.note != null",
                "args.missing == 1",
                "type(args.currency) == string",
                "type(args.count) == int",
                "{'EUR': 100, 'USD': 120}[args.currency] >= 100",
                "args.customer",
            ]
        )

    def _comparison(self) -> str:
        return self._random.choice(["==", "!=", "<", "<=", ">", ">="])

    def _word(self) -> str:
        return self._random.choice(_WORDS)

    def _action(self) -> str:
        return self._random.choice(["stripe.refund", "admin", "a.b"])


class Reference:
    """Evaluation by `cel-python`, an independent implementation in Python."""

    def __init__(self) -> None:
        self._environment = celpy.Environment()

    def evaluate(self, text: str, variables: Variables) -> bool | None:
        """Return the result, or None for an error or a result that is not a boolean."""
        activation = {
            "args": celpy.json_to_cel(_floats(variables.args)),
            "action": celpy.celtypes.StringType(variables.action),
            "agent": celpy.json_to_cel({"id": variables.agent_id, "name": variables.agent_name}),
            "run": celpy.json_to_cel({"id": variables.run_id}),
            "now": celpy.celtypes.TimestampType(variables.now),
        }
        program = self._environment.program(self._environment.compile(text))
        try:
            result = program.evaluate(activation)
        except (celpy.CELEvalError, TypeError):
            # It raises a TypeError for a loop over a value that is neither a list nor a map.
            return None
        return bool(result) if isinstance(result, celpy.celtypes.BoolType) else None


def _floats(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, list):
        return [_floats(element) for element in value]
    if isinstance(value, dict):
        return {key: _floats(member) for key, member in value.items()}
    return value
