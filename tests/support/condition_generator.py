"""Generated conditions and contexts for the translation of conditions into formulas.

The values have all types and lie near the literals, so that comparisons of different types, errors and limits are
frequent.
"""

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from toolgate_service.rules.expressions import Variables

_TEXTS = ["", "a", "ab", "DE", "AT", "x@example.com", "é日", "\\u{41}", "z\U0001f600"]
_INTEGERS = [-1, 0, 1, 2, 10, 50, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)]
_DOUBLES = ["0.5", "1.0", "-1.5", "10.0", "49.99", "50.0", "9007199254740992.0", "1e300"]
_LITERALS = [*(repr(one) for one in _TEXTS[:-2]), r"'\\u{41}'", "true", "false", "null", "'z\U0001f600'"]
_NAMES = ["amount", "count", "country", "flag", "to", "customer"]


class ConditionGenerator:
    """Generator of conditions and contexts. Equal seeds result in equal pairs."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def variables(self) -> Variables:
        """Return the variables of one call."""
        chosen = self._random
        args: dict[str, Any] = {
            "amount": self._number(),
            "count": chosen.choice(_INTEGERS),
            "country": chosen.choice(_TEXTS),
            "flag": chosen.random() < 0.5,
            "to": [self._scalar() for _ in range(chosen.randrange(3))],
            "customer": {"id": self._scalar(), "tags": [chosen.choice(_TEXTS)], "level": self._number()},
        }
        for name in _NAMES:
            if chosen.random() < 0.1:
                del args[name]
            elif chosen.random() < 0.2:
                args[name] = self._any()
        now = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=chosen.randrange(1_000))
        action = chosen.choice(["stripe.refund", "a.b", "ab"])
        return Variables(
            args, action, "agent-1", chosen.choice(_TEXTS[1:]), chosen.choice(["", "a", "run-1"]), now
        )

    def condition(self, depth: int = 3) -> str:
        """Return a condition, which may have no result."""
        chosen = self._random
        if depth and chosen.random() < 0.5:
            left, right = self.condition(depth - 1), self.condition(depth - 1)
            return chosen.choice(
                [
                    f"({left} && {right})",
                    f"({left} || {right})",
                    f"!({left})",
                    f"({left} ? {right} : {self.condition(depth - 1)})",
                ]
            )
        return chosen.choice(
            [
                self._comparison,
                self._comparison,
                self._equality,
                self._membership,
                self._text_test,
                self._presence,
                self._size,
                self._arithmetic,
                self._literal_loop,
                self._opaque,
                lambda: chosen.choice(["args.flag", "args.amount", "true", "args.customer.id", "args.to[0]"]),
            ]
        )()

    def _comparison(self) -> str:
        operator = self._random.choice(["<", "<=", ">", ">="])
        return f"{self._argument()} {operator} {self._operand()}"

    def _equality(self) -> str:
        operator = self._random.choice(["==", "!="])
        return f"{self._argument()} {operator} {self._operand()}"

    def _membership(self) -> str:
        count = self._random.randrange(4)
        kind = self._random.choice([self._number_literal, lambda: self._random.choice(_LITERALS)])
        elements = ", ".join(
            f"dyn({kind()})" if self._random.random() < 0.1 else kind() for _ in range(count)
        )
        return (
            f"{self._argument()} in [{elements}]" if _has_one_type(elements) else f"{self._argument()} in []"
        )

    def _text_test(self) -> str:
        chosen = self._random
        name = chosen.choice(["startsWith", "endsWith", "contains"])
        target = chosen.choice(
            [self._argument(), self._argument(), "action", "agent.name", "run.id", "agent['id']"]
        )
        part = chosen.choice([*(repr(one) for one in _TEXTS[:6]), "args.country", "args['customer'].id"])
        return f"{target}.{name}({part})"

    def _presence(self) -> str:
        path = [
            "args.amount",
            "args.missing",
            "args.customer.id",
            "args.customer.missing",
            "args.country.id",
            "agent.id",
        ]
        return f"has({self._random.choice(path)})"

    def _size(self) -> str:
        argument = self._random.choice(
            ["args.country", "args.to", "args.customer", "args.amount", "args.customer.tags"]
        )
        return f"size({argument}) {self._random.choice(['==', '<', '>='])} {self._random.randrange(4)}"

    def _arithmetic(self) -> str:
        chosen = self._random
        value = chosen.choice(
            [
                f"{self._argument()} + {chosen.choice(['1', '2', 'args.count', 'args.country', '0.5'])}",
                f"args.count - {chosen.choice(['1', 'args.amount'])}",
                f"args.count * {chosen.choice(['2', '-3', 'args.count'])}",
                "-args.count",
                "-args.amount",
                "args.country + 'b'",
                "args.amount / 2",
            ]
        )
        literal = "'ab'" if "'b'" in value else self._number_literal()
        return f"{value} {chosen.choice(['==', '<', '>='])} dyn({literal})"

    def _literal_loop(self) -> str:
        macro = self._random.choice(["all", "exists", "exists_one"])
        body = self._random.choice(
            [
                "x == args.country",
                "args.country.startsWith(x)",
                "x != args.customer.id && has(args.amount)",
                "['a', x].exists(y, y == args.country)",
                "['a'].exists(x, x == args.country)",
            ]
        )
        return f"['a', 'DE', ''].{macro}(x, {body})"

    def _opaque(self) -> str:
        return self._random.choice(
            [
                "args.country.matches('^[a-z]+$')",
                "now.getHours() < 12",
                "args.to.exists(x, x == 'a')",
                "'a' in args.to",
                "'amount' in args",
                "args.to == ['a']",
                "args.count % 2 == 1",
                "args.amount == 5u",
                "string(args.country) == 'a'",
                "args.customer == args.customer",
                "{'a': 1}[args.country] == 1",
                "args.amount + 0.5 > 1.0",
            ]
        )

    def _operand(self) -> str:
        chosen = self._random
        return chosen.choice([self._number_literal(), f"dyn({chosen.choice(_LITERALS)})", self._argument()])

    def _argument(self) -> str:
        return self._random.choice(
            [
                "args.amount",
                "args['amount']",
                "args.count",
                "args.country",
                "args.flag",
                "args.customer.id",
                "args.customer['level']",
                "args.customer.tags[0]",
                "args.to[0]",
                "args.to[1]",
                "args.missing",
            ]
        )

    def _number_literal(self) -> str:
        return self._random.choice([*map(str, _INTEGERS[:-2]), *_DOUBLES])

    def _number(self) -> Any:
        chosen = self._random
        return chosen.choice(_INTEGERS) if chosen.random() < 0.5 else Decimal(chosen.choice(_DOUBLES))

    def _scalar(self) -> Any:
        chosen = self._random
        return chosen.choice([None, True, self._number(), chosen.choice(_TEXTS), chosen.choice(_TEXTS)])

    def _any(self) -> Any:
        chosen = self._random
        unusable = [2**63, -(2**70), Decimal("1e400"), Decimal("1e-400"), [2**64], {"id": Decimal("-1e309")}]
        return chosen.choice(
            [self._scalar(), [], [self._scalar()], {}, {"id": self._scalar()}, chosen.choice(unusable)]
        )


def _has_one_type(elements: str) -> bool:
    """Return whether CEL accepts a literal list with these elements, which must have one type unless they are `dyn`."""
    kinds = set()
    for element in elements.split(", ") if elements else ():
        if element[0] in "'\"":
            kinds.add("text")
        elif element in {"true", "false"}:
            kinds.add("bool")
        elif element == "null":
            kinds.add("null")
        elif element[0].isdigit() or element[0] == "-":
            kinds.add("double" if "." in element or "e" in element else "int")
    return len(kinds) <= 1
