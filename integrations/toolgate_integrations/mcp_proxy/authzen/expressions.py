"""CEL expressions of mappings, evaluated with Google's `cel-expr-python` (the extra `policy`).

The variables are `params` and `token`. The mapping is written by the MCP server, and the parameters by its client, so the
cost of an evaluation is limited: the variables have a maximum size, and an expression has at most one comprehension,
and with it neither `+` nor `matches`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from toolgate import ConfigurationError
from toolgate_integrations.mcp_proxy.authzen.errors import MappingError

__all__ = ["ABSENT", "Variables", "evaluate", "require_library"]

#: result of an optional selection, such as `token.?client_id`, of a member that does not exist
ABSENT: Final = object()
#: maximum number of characters of an expression
MAX_LENGTH: Final = 2_000
# The gateway accepts no larger arguments: 64 KiB and 32 levels.
_MAX_VALUES: Final = 20_000
_MAX_TEXT: Final = 64 * 1024
_MAX_DEPTH: Final = 32
_MAX_RESULT: Final = 20_000
# One comprehension that compares all values for each value takes 0.1 s for 1,000 values.
_MAX_COMPREHENDED: Final = 1_000
_MAX_COMPREHENSIONS: Final = 10
_MIN_INT, _MAX_INT = -(2**63), 2**63 - 1
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_COMPREHENSION: Final = re.compile(r"\b(?:all|exists|exists_one|existsOne|filter|map)\b")
# In a comprehension, these repeat for each element: a text can grow, and a regular expression is searched. Nested macros
# of optional values can double a value at each level.
_COSTLY: Final = re.compile(r"\+|\bmatches\b")
_OPTIONAL_MACROS: Final = re.compile(r"\b(?:optMap|optFlatMap)\b")
_ERROR: Final = re.compile(r"^[A-Z_]+: (?:ERROR: <input>:\d+:\d+: )?(.+)")


class Variables:
    """The variables of all expressions of one MCP request.

    Args:
        params: The request's parameters.
        token: Claims of the validated token; None if there is no token.

    Raises:
        MappingError: CEL cannot represent the parameters or the claims, or they are too large.
    """

    def __init__(self, params: Mapping[str, Any], token: Mapping[str, Any] | None) -> None:
        converter = _Converter("the parameters and the claims of the token")
        variables = {"params": converter.convert(dict(params))}
        if token is not None:
            variables["token"] = converter.convert(dict(token))
        self.activation: Any = _environment().Activation(variables)
        self._values = converter.values
        self._comprehensions = 0

    def count_comprehension(self, text: str) -> None:
        """Count an expression with a comprehension, which can read all values for each of them.

        Raises:
            MappingError: The evaluation would be too expensive.
        """
        self._comprehensions += 1
        if self._values > _MAX_COMPREHENDED or self._comprehensions > _MAX_COMPREHENSIONS:
            raise MappingError(
                f"the expression '${text}' is too expensive: a request may evaluate at most "
                f"{_MAX_COMPREHENSIONS} expressions with all, exists, exists_one, filter or map, and only "
                f"if its parameters and claims have at most {_MAX_COMPREHENDED:,} values"
            )


def require_library() -> None:
    """Check that the library that evaluates expressions is installed.

    Raises:
        ConfigurationError: The library is not installed.
    """
    try:
        _environment()
    except ImportError as error:
        raise ConfigurationError(
            "AuthZEN mappings need the package cel-expr-python: pip install 'toolgate[policy]'"
        ) from error


def evaluate(text: str, variables: Variables) -> Any:
    """Return the JSON value of an expression, or `ABSENT`.

    Args:
        text: The expression, without the `$`.
        variables: Variables of the expression.

    Raises:
        MappingError: The expression is invalid, its evaluation fails, or its result is not a JSON value.
    """
    plain, has, inner = _compiled(text)
    if _COMPREHENSION.search(text):
        variables.count_comprehension(text)
    value = _run(plain, text, variables)
    if value.type().name() == "ERROR":
        # The library has no type for optional values: it reports them with the type of errors, and crashes if such a
        # value is read. `hasValue` is an error for every value that is not optional.
        there = None if has is None else _run(has, text, variables)
        if there is None or there.type().name() != "BOOL":
            raise _failed(text, value.value())
        if not there.value():
            return ABSENT
        value = _run(inner, text, variables)
    return _Result(text).json(value, 0)


def _run(program: Any, text: str, variables: Variables) -> Any:
    try:
        return program.eval(variables.activation)
    except Exception as error:  # noqa: BLE001 - the library raises errors of several types
        raise _failed(text, error) from None


@lru_cache(1)
def _environment() -> Any:
    """Return the CEL environment of the mappings."""
    # Only proxies with mappings need the library, whose import takes 10 ms.
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_optional

    fields = cel.Type.Map(cel.Type.STRING, cel.Type.DYN)
    return cel.NewEnv(variables={"params": fields, "token": fields}, extensions=[ext_optional.ExtOptional()])


@lru_cache(2_000)
def _compiled(text: str) -> tuple[Any, Any, Any]:
    """Return the programs of an expression, of `hasValue` for its result, and of `value` for its result."""
    if len(text) > MAX_LENGTH:
        raise MappingError(
            f"the expression '${text[:40]}…' has {len(text)} characters; the maximum is {MAX_LENGTH:,}"
        )
    if not _is_usable(text):
        raise MappingError("an expression contains a NUL character or a lone surrogate")
    comprehensions = len(_COMPREHENSION.findall(text))
    if comprehensions > 1 or (comprehensions and _COSTLY.search(text)) or _OPTIONAL_MACROS.search(text):
        raise MappingError(
            f"the expression '${text}' is too expensive: use at most one of all, exists, exists_one, filter "
            "and map, do not combine it with + or matches, and do not use optMap or optFlatMap"
        )
    try:
        plain = _environment().compile(text)
    except Exception as error:  # noqa: BLE001 - the library raises errors of several types
        raise _failed(text, error) from None
    try:
        # The line break ends a comment in the expression.
        has, inner = (
            _environment().compile(f"({text}\n).{function}()") for function in ("hasValue", "value")
        )
    except Exception:  # noqa: BLE001 - as above; the result is then never optional
        return plain, None, None
    return plain, has, inner


def _failed(text: str, error: object) -> MappingError:
    first = str(error).strip().split("\n")[0]
    found = _ERROR.match(first)
    return MappingError(f"expression '${text}' failed: {found.group(1) if found else first}")


class _Converter:
    """Converter of JSON values to values that the library accepts.

    Args:
        name: Name of the values, for error messages.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.values = 0
        self._text = 0

    def convert(self, value: Any, depth: int = 0) -> Any:
        """Return a copy of a JSON value.

        Raises:
            MappingError: CEL cannot represent the value, or the value is too large.
        """
        self.values += 1
        if self.values > _MAX_VALUES or depth > _MAX_DEPTH:
            raise MappingError(f"{self._name} are too large or nested too deep")
        if isinstance(value, str):
            return self._string(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int) and _MIN_INT <= value <= _MAX_INT:
            return value
        if isinstance(value, float) and math.isfinite(value):
            return value
        if isinstance(value, Mapping):
            return {self._string(key): self.convert(member, depth + 1) for key, member in value.items()}
        if isinstance(value, list):
            return [self.convert(element, depth + 1) for element in value]
        raise MappingError(f"{self._name} contain a value that CEL cannot represent")

    def _string(self, text: Any) -> str:
        # The library ignores the rest of a text after a NUL character, and crashes at a lone surrogate.
        if not isinstance(text, str) or not _is_usable(text):
            raise MappingError(f"{self._name} contain a text with a NUL character or a lone surrogate")
        self._text += len(text)
        if self._text > _MAX_TEXT:
            raise MappingError(f"{self._name} are too large")
        return text


class _Result:
    """Conversion of the result of one expression to JSON.

    Args:
        text: The expression, for error messages.
    """

    def __init__(self, text: str) -> None:
        self._expression = text
        self._values = 0

    def json(self, value: Any, depth: int) -> Any:
        """Return a value of the library as JSON.

        `plain_value` of the library would crash at an optional value inside a list, so each value is read only after
        its type.
        """
        self._values += 1
        if self._values > _MAX_RESULT or depth > _MAX_DEPTH:
            raise MappingError(f"the result of '${self._expression}' is too large or nested too deep")
        kind = value.type().name()
        if kind in {"STRING", "BOOL", "INT", "UINT", "NULL"}:
            return value.value()
        if kind == "DOUBLE" and math.isfinite(value.value()):
            return value.value()
        if kind.startswith("LIST"):
            return [self.json(element, depth + 1) for element in value.value()]
        if kind.startswith("MAP"):
            members = dict(value.value())
            if all(isinstance(key, str) for key in members):
                return {key: self.json(member, depth + 1) for key, member in members.items()}
        raise MappingError(f"the result of '${self._expression}' is not a JSON value")


def _is_usable(text: str) -> bool:
    return "\0" not in text and (text.isascii() or _SURROGATE.search(text) is None)
