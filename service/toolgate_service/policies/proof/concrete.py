"""Concrete calls as counterexamples: confirmation with the evaluator of policies, search, and simplification."""

import random
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal

from toolgate_service.core import strict_json
from toolgate_service.core.schemas import is_reference
from toolgate_service.core.sdk_fields import MAX_CONTEXT_BYTES, MAX_CONTEXT_DEPTH
from toolgate_service.core.strict_json import Json
from toolgate_service.policies.evaluation import PolicyEvaluator
from toolgate_service.policies.proof.call_classes import CallClass
from toolgate_service.policies.proof.results import Counterexample
from toolgate_service.policies.proof.syntax import Path, path_of
from toolgate_service.rules.expressions import compile_expression
from toolgate_service.rules.syntax_tree import Node

#: number of random calls that one search tries
ATTEMPTS = 400
#: largest index of a list element that a counterexample can contain because a condition reads it
MAX_INDEX = 100
#: probability with which a random call of the search contains an argument
_PRESENCE = 0.85
_WORD = re.compile(r"[\w@.-]+")
#: numbers that CEL cannot represent
_UNUSABLE: list[Json] = [2**63, Decimal("1e-350")]


@dataclass(frozen=True, slots=True)
class Call:
    """Tool call of an agent."""

    action: str
    context: Mapping[str, Json]
    run_id: str | None
    moment: datetime


class Confirmation:
    """Comparison of the results of two policies for concrete calls of one `CallClass`."""

    def __init__(self, old: PolicyEvaluator, new: PolicyEvaluator, call_class: CallClass) -> None:
        self._old = old
        self._new = new
        self._class = call_class

    def confirm(self, call: Call) -> Counterexample | None:
        """Return the call as a counterexample; None if it is invalid, or the new policy is not more lenient for it."""
        agent_id = self._class.agent_id
        old, new = (
            evaluator.judge(agent_id, call.action, call.context, call.run_id, call.moment)
            for evaluator in (self._old, self._new)
        )
        if not (new.is_more_lenient(old) and _is_valid(call)):
            return None
        return Counterexample(
            self._class.agent, agent_id, call.action, call.context, call.run_id, call.moment, old, new
        )

    def simplify(self, found: Counterexample) -> Counterexample:
        """Return a simpler counterexample: without an unneeded run or arguments, and with 1 instead of 1.0."""
        call = Call(found.action, found.context, None, found.moment)
        found = self.confirm(call) or found
        for name in list(found.context):
            context = {other: value for other, value in found.context.items() if other != name}
            call = Call(found.action, context, found.run_id, found.moment)
            found = self.confirm(call) or found
        for name, value in list(found.context.items()):
            if isinstance(value, Decimal) and value == value.to_integral_value():
                call = Call(found.action, {**found.context, name: int(value)}, found.run_id, found.moment)
                found = self.confirm(call) or found
        return found

    def search(
        self, start: Call | None, moment: datetime, has_time: Callable[[], bool]
    ) -> Counterexample | None:
        """Return a counterexample among variations of `start` and random calls; None if none is found in time.

        The arguments of random calls have values near the literals of the conditions.
        """
        action = self._class.actions.example()
        if action is None and start is None:
            return None
        first = start or Call(action or "", {}, None, moment)
        candidates = _Candidates(self._class)
        chosen = random.Random(0)  # noqa: S311 - the search must be reproducible
        for call in [first, *_variations(first, candidates)]:
            if not has_time():
                return None
            if found := self.confirm(call):
                return found
        for number in range(ATTEMPTS):
            if not has_time():
                return None
            context = dict(first.context) if number % 2 else {}
            for name, values in candidates.arguments.items():
                if chosen.random() < _PRESENCE:
                    context[name] = chosen.choice(values)
            call = Call(
                chosen.choice([first.action, *candidates.actions]),
                context,
                chosen.choice([first.run_id, *candidates.runs]),
                chosen.choice(candidates.moments(moment)),
            )
            if found := self.confirm(call):
                return found
        return None


def _is_valid(call: Call) -> bool:
    """Return whether the gateway accepts the call."""
    text = strict_json.dumps(call.context).encode()
    try:
        strict_json.loads(text)
    except strict_json.InvalidJson:
        return False
    is_run = call.run_id is None or is_reference(call.run_id)
    return (
        is_run
        and len(text) <= MAX_CONTEXT_BYTES
        and not strict_json.deeper_than(MAX_CONTEXT_DEPTH, dict(call.context))
    )


def _variations(call: Call, candidates: "_Candidates") -> Iterator[Call]:
    """Yield calls that differ from a call in one argument."""
    for name, values in candidates.arguments.items():
        yield replace(call, context={key: value for key, value in call.context.items() if key != name})
        for value in values:
            yield replace(call, context={**call.context, name: value})


class _Candidates:
    """Values to try for the arguments that the conditions and permissions for a `CallClass` read."""

    def __init__(self, call_class: CallClass) -> None:
        self._values: dict[Path, list[Json]] = {}
        self._reads_time = False
        texts = [
            rule.when
            for part in (call_class.old, call_class.new)
            for rule in part.rules
            if rule.when is not None
        ]
        literals: list[Json] = []
        for text in dict.fromkeys(texts):
            root = compile_expression(text).decode().root
            self._collect(root)
            literals += _literals(root)
            self._reads_time |= "now" in text
        for part in (call_class.old, call_class.new):
            if part.permission is not None and part.permission.max_amount is not None:
                self._add(("amount",), _numbers_near(part.permission.max_amount))
                self._add(("amount",), [-1, "1", None])
        strings = [value for value in literals if isinstance(value, str)]
        self.actions = [text for text in dict.fromkeys(strings) if call_class.actions.contains(text)]
        self.runs: list[str | None] = [None, *(one for one in dict.fromkeys(strings) if one), "run-1"]
        names = dict.fromkeys(path[0] for path in self._values if path)
        self.arguments: dict[str, list[Json]] = {
            str(name): _unique(self._values_at((name,))) for name in names
        }

    def moments(self, moment: datetime) -> Sequence[datetime]:
        """Return the times to try: `moment` and, if a condition reads the time, each hour of the week after it."""
        if not self._reads_time:
            return [moment]
        return [moment + timedelta(hours=hour) for hour in range(7 * 24)]

    def _collect(self, node: Node) -> None:
        path = path_of(node)
        if path is not None:
            self._add(path, [])
            return
        if node.kind == "has":
            container = path_of(node.operands[0]) or ()
            self._add((*container, node.name), [])
        paths = {found for operand in node.operands if (found := path_of(operand)) is not None}
        for found in paths:
            self._add(found, _values_for(node))
        for operand in node.operands:
            self._collect(operand)

    def _add(self, path: Path, values: Iterable[Json]) -> None:
        self._values.setdefault(path, []).extend(values)

    def _values_at(self, path: Path) -> list[Json]:
        members = {
            other[len(path)]
            for other in self._values
            if other[: len(path)] == path and len(other) > len(path)
        }
        values = [*self._values.get(path, []), "other", 1, True, None]
        for member in sorted(members, key=repr):
            inner = self._values_at((*path, member))
            if isinstance(member, str):
                values += [{member: value} for value in inner]
            elif member <= MAX_INDEX:
                before: list[Json] = [None] * member
                values += [[*before, value] for value in inner]
        if len(members) > 1 and all(isinstance(member, str) for member in members):
            values += self._complete_maps(path, sorted(map(str, members)))
        return [*values, *_UNUSABLE]

    def _complete_maps(self, path: Path, members: Collection[str]) -> list[Json]:
        chosen = random.Random(1)  # noqa: S311 - the search must be reproducible
        inner = {member: self._values_at((*path, member)) for member in members}
        return [{member: chosen.choice(values) for member, values in inner.items()} for _ in range(20)]


def _values_for(node: Node) -> list[Json]:
    """Return values to try for an argument that a node reads, chosen from the literals in the node."""
    literals = _literals(node)
    if node.kind == "loop":
        names = _member_names(node, node.name)
        elements = _unique([*(one for value in literals for one in _near(value)), "other"])
        if names:
            maps: list[Json] = [{name: value} for name in sorted(names) for value in elements]
            elements = [*maps, *elements]
        return [[], *([one] for one in elements), *([one, "other"] for one in elements)]
    if node.name == "matches":
        return [
            word
            for value in literals
            for word in [*_WORD.findall(str(value)), "".join(_WORD.findall(str(value)))]
        ]
    if node.name == "@in" and path_of(node.operands[1]) is not None:
        return [[], *([one] for value in literals for one in _near(value))]
    if node.name == "size":
        return ["", "text", [], ["other"], {}]
    return [one for value in literals for one in _near(value)]


def _near(value: Json) -> list[Json]:
    if isinstance(value, bool) or value is None:
        return [True, False, None]
    if isinstance(value, int | Decimal):
        return _numbers_near(value)
    return [value, f"{value}x", f"x{value}"] if isinstance(value, str) else []


def _numbers_near(number: int | Decimal) -> list[Json]:
    exact = Decimal(number)
    values: list[Json] = [number - 1, number, number + 1] if isinstance(number, int) else []
    values += [int(exact), int(exact) + 1, exact, exact + Decimal("0.01"), exact - Decimal("0.01")]
    if exact > 0:
        values.append(exact.next_plus())
    return values


def _literals(node: Node) -> list[Json]:
    """Return the literals in an expression, without byte strings and infinite numbers, which no argument can equal."""
    found: list[Json] = []
    if node.kind == "constant" and not isinstance(node.constant, bytes):
        value = node.constant
        found.append(Decimal(repr(value)) if isinstance(value, float) else value)
    for operand in node.operands:
        found += _literals(operand)
    return [value for value in found if not isinstance(value, Decimal) or value.is_finite()]


def _member_names(node: Node, variable: str) -> set[str]:
    """Return the names of the members that an expression reads from a loop variable, such as `price` in `x.price`."""
    names = {name for operand in node.operands for name in _member_names(operand, variable)}
    if node.kind == "select" and node.operands[0].kind == "name" and node.operands[0].name == variable:
        names.add(node.name)
    return names


def _unique(values: Iterable[Json]) -> list[Json]:
    """Return the values without repetitions. Values of different types are different."""
    return list({f"{type(value).__name__} {value!r}": value for value in values}.values())
