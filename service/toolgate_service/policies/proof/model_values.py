"""Conversion of the models that Z3 finds into concrete calls."""

from collections.abc import Iterable
from datetime import datetime
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import z3

from toolgate_service.core.strict_json import Json
from toolgate_service.policies.proof.call_classes import Actions
from toolgate_service.policies.proof.concrete import MAX_INDEX, Call
from toolgate_service.policies.proof.symbols import (
    AMOUNT,
    Kind,
    Number,
    Path,
    SymbolicCall,
    Text,
    Variable,
    text_of,
)

#: number of digits to which a number is rounded if it has no decimal representation with fewer digits
_DIGITS = 60
#: maximum number of elements that are added to a list or map to reach its size
_MAX_FILLED = 1_000
#: integer that CEL cannot represent
_UNUSABLE = 2**70


class ModelReader:
    """Reader that builds a call from a model, in which Z3 has assigned a value to each variable."""

    def __init__(self, call: SymbolicCall, model: Any, paths: Iterable[Path]) -> None:
        self._call = call
        self._model = model
        self._paths = {path[:length] for path in paths for length in range(1, len(path) + 1)}

    def call(self, actions: Actions, moment: datetime) -> Call | None:
        """Return the call that the model describes; None if no action in the set `actions` was found."""
        action = actions.exact or self._text(self._call.action)
        if not actions.contains(action):
            example = actions.example()
            if example is None:
                return None
            action = example
        context: dict[str, Json] = {}
        for path in sorted(path for path in self._paths if len(path) == 1):
            if self._kind(path) is not Kind.MISSING:
                context[str(path[0])] = self._value(path)
        run_id = self._text(self._call.run)
        return Call(action, context, run_id or None, moment)

    def _kind(self, path: Path) -> Kind:
        number = self._number(self._call.variable(path).kind)
        return Kind(int(number)) if 0 <= number <= Kind.MAP else Kind.MISSING

    def _value(self, path: Path) -> Json:
        variable = self._call.variable(path)
        match self._kind(path):
            case Kind.BOOL:
                return self._is_true(variable.boolean)
            case Kind.INT:
                return int(self._number(variable.integer))
            case Kind.DOUBLE:
                return self._decimal(variable)
            case Kind.TEXT:
                return self._text(variable.text)
            case Kind.LIST:
                return self._list(path, variable)
            case Kind.MAP:
                return self._map(path, variable)
            case _:
                return None

    def _decimal(self, variable: Variable) -> Decimal:
        exact = self._number(variable.exact if variable.path == AMOUNT else variable.double)
        context = Context(prec=_DIGITS)
        return context.divide(Decimal(exact.numerator), Decimal(exact.denominator))

    def _list(self, path: Path, variable: Variable) -> Json:
        elements: list[Json] = []
        for member in self._members(path):
            if isinstance(member, str) or member > MAX_INDEX:
                continue
            if self._kind((*path, member)) is not Kind.MISSING:
                elements += [None] * (member + 1 - len(elements))
                elements[member] = self._value((*path, member))
        elements += ["other"] * (self._size(variable) - len(elements))
        return [*elements, _UNUSABLE] if self._is_unusable(variable) else elements

    def _map(self, path: Path, variable: Variable) -> Json:
        members: dict[str, Json] = {
            member: self._value((*path, member))
            for member in self._members(path)
            if isinstance(member, str) and self._kind((*path, member)) is not Kind.MISSING
        }
        missing = self._size(variable) - len(members)
        members |= {f"other{number}": None for number in range(missing)}
        return members | {"unusable": _UNUSABLE} if self._is_unusable(variable) else members

    def _members(self, path: Path) -> list["str | int"]:
        return [other[-1] for other in sorted(self._paths, key=repr) if other[:-1] == path]

    def _size(self, variable: Variable) -> int:
        return min(int(self._number(variable.size)), _MAX_FILLED)

    def _is_unusable(self, variable: Variable) -> bool:
        return len(variable.path) == 1 and self._is_true(variable.unusable)

    def _is_true(self, formula: Any) -> bool:
        value: bool = z3.is_true(self._model.eval(formula, model_completion=True))
        return value

    def _number(self, formula: Number) -> Fraction:
        value = self._model.eval(formula, model_completion=True)
        if z3.is_algebraic_value(value):
            value = value.approx(_DIGITS)
        return Fraction(value.as_string()) if z3.is_int_value(value) else Fraction(value.as_fraction())

    def _text(self, formula: Text) -> str:
        return text_of(self._model.eval(formula, model_completion=True)) or ""
