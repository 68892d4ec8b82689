"""Arguments of a tool call as the tool's function receives them: with defaults, aliases and conversions applied.

The gateway checks these received values. If the framework itself validates arguments before it calls the function,
this module computes arguments for the framework, and verifies that validation turns them into exactly these values.
"""

from __future__ import annotations

import copy
import functools
import inspect
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, get_type_hints

from toolgate import ConfigurationError
from toolgate._capture.serializer import same_arguments
from toolgate_integrations._json_schema import with_defaults

__all__ = [
    "AnnotatedSchema",
    "ArgumentSchema",
    "CustomSchema",
    "InvalidArgumentsError",
    "JsonSchema",
    "ModelSchema",
    "RawSchema",
    "Received",
    "ReceivedCalls",
    "SignatureSchema",
    "as_json",
    "encoded",
    "json_copy",
    "probe_of",
    "receive",
    "receive_or_keep",
    "with_signature_defaults",
]


class InvalidArgumentsError(Exception):
    """The tool's own validation rejects a call's arguments; `__cause__` is the validation error."""


class ArgumentSchema(Protocol):
    """Converts between what a model sends and what a tool's function receives."""

    def received(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Return the values that the function receives; raise the framework's own error if they are invalid."""
        ...

    def sent(self, received: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments that the framework should convert to the received values."""
        ...


class Received:
    """Arguments of one call, validated once.

    Attributes:
        values: Values by the names of the function's parameters; the check contains them.
    """

    def __init__(self, values: dict[str, Any], sent: dict[str, Any], schema: ArgumentSchema) -> None:
        self.values = values
        self._sent = sent
        self._schema = schema

    def to_send(self, approved: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments for the framework with which the function receives exactly the approved values.

        Args:
            approved: The approved values, including an approver's edits.

        Raises:
            ConfigurationError: The tool's validation converts the approved values to different ones.
        """
        edited = not same_arguments(approved, self.values)
        sent = self._schema.sent(approved) if edited else self._sent
        # Verified again right before the run, because the result of a default factory may depend on the time.
        if not _is_received_as(self._schema, sent, approved):
            what = "the approver's edit" if edited else "the arguments"
            raise ConfigurationError(
                f"{what} cannot be given to the tool: its own validation makes other values of them; "
                "the tool did not run"
            )
        return json_copy(sent)


def receive(sent: Mapping[str, Any], schema: ArgumentSchema) -> Received:
    """Validate a call's arguments.

    Args:
        sent: The model's arguments; they are copied.
        schema: The tool's schema.

    Raises:
        ConfigurationError: Validating the same arguments again returns different values.
        InvalidArgumentsError: The tool's validation rejects the arguments.
    """
    raw = json_copy(sent)
    try:
        values = schema.received(json_copy(raw))
    except Exception as error:
        raise InvalidArgumentsError(str(error)) from error
    named: object = values
    if not isinstance(named, dict) or any(type(name) is not str for name in named):
        raise ConfigurationError(f"the tool's schema {schema!r} gave no arguments by name")
    for candidate in _candidates(raw, values, schema):
        if _is_received_as(schema, candidate, values):
            return Received(values, candidate, schema)
    raise ConfigurationError(
        "the tool's arguments have other values each time they are validated, so that no decision can be bound to "
        "them; make its validators and default factories repeatable"
    )


def receive_or_keep(sent: Mapping[str, Any], schema: ArgumentSchema) -> Received:
    """Validate like `receive`, but return arguments unchanged if the tool's validation rejects them."""
    try:
        return receive(sent, schema)
    except InvalidArgumentsError:
        raw = json_copy(sent)
        return Received(raw, raw, RawSchema())


class ReceivedCalls:
    """Received arguments of the newest calls, so that each call is validated only once.

    A default factory may return a different value each time. If a call were validated again for the run, the tool
    could receive other values than the gateway decided about.
    """

    def __init__(self) -> None:
        self._calls: OrderedDict[tuple[str, str, str], tuple[dict[str, Any], Received]] = OrderedDict()
        self._lock = threading.Lock()

    def of(
        self,
        name: str,
        sent: Mapping[str, Any],
        schema: ArgumentSchema,
        run_id: str | None,
        call_id: str | None,
    ) -> Received:
        """Validate a call's arguments like `receive`, or return the result of the first validation of the same call.

        Args:
            name: The tool's name.
            sent: The model's arguments.
            schema: The tool's schema.
            run_id: The framework's id of the run. If it or `call_id` is None, the result is not stored.
            call_id: The framework's id of the call.
        """
        if run_id is None or call_id is None:
            return receive(sent, schema)
        key = (run_id, call_id, name)
        with self._lock:
            known = self._calls.get(key)
        if known is not None and same_arguments(known[0], sent):
            return known[1]
        raw = json_copy(sent)
        received = receive(raw, schema)
        with self._lock:
            self._calls[key] = raw, received
            if len(self._calls) > _MOST_CALLS:
                self._calls.popitem(last=False)
        return received


@dataclass(frozen=True, slots=True)
class RawSchema:
    """Schema of a tool whose function receives the model's JSON unchanged."""

    def received(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Return the same arguments."""
        return sent

    def sent(self, received: Mapping[str, Any]) -> dict[str, Any]:
        """Return the same arguments."""
        return dict(received)


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """JSON schema of a tool that does not run in this process, such as a remote tool; its defaults are filled in."""

    schema: Mapping[str, Any] | None

    def received(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with the schema's defaults."""
        return sent if self.schema is None else with_defaults(sent, self.schema)

    def sent(self, received: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with the defaults in them."""
        return dict(received)


@dataclass(frozen=True, slots=True)
class SignatureSchema:
    """Schema of a function that receives the model's JSON as keyword arguments, without validation.

    `without` contains parameters whose defaults are not filled in.
    """

    function: Any
    without: Collection[str] = ()

    def received(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with the signature's defaults."""
        return with_signature_defaults(sent, self.function, self.without)

    def sent(self, received: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with the defaults in them."""
        return dict(received)


@dataclass(frozen=True, slots=True)
class ModelSchema:
    """Pydantic model that a framework validates the arguments with.

    Attributes:
        model: The model's class.
        function: Function whose parameters have the names of the fields; its defaults are filled in.
        without: Parameters that the framework fills in, such as contexts; they are omitted.
    """

    model: Any
    function: Any = None
    without: Collection[str] = ()

    def received(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of the validated model by name."""
        made = self.model.model_validate(sent)
        found = {name: getattr(made, name) for name in type(made).model_fields}
        found |= made.model_extra or {}
        values = {name: value for name, value in found.items() if name not in self.without}
        return with_signature_defaults(values, self.function, self.without)

    def sent(self, received: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values as JSON, by the names that the Pydantic model reads (its aliases)."""
        return encoded(self.model, received)


@dataclass(frozen=True, slots=True)
class CustomSchema:
    """Schema made of two functions, for a framework whose validation none of the other schemas describes."""

    receive: Callable[[dict[str, Any]], dict[str, Any]] = field(repr=False)
    encode: Callable[[Mapping[str, Any]], dict[str, Any]] = field(default=dict, repr=False)

    def received(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Return the result of `receive`."""
        return self.receive(sent)

    def sent(self, received: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of `encode`."""
        return self.encode(received)


@dataclass(frozen=True, slots=True)
class AnnotatedSchema:
    """Schema of a function whose arguments a framework converts by its annotations, as `pydantic.validate_call` does.

    Attributes:
        function: The function.
        without: Parameters that the framework fills in.
    """

    function: Any
    without: Collection[str] = ()
    _adapters: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def received(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Return the converted arguments, and the defaults of the missing ones."""
        found = dict(sent)
        for name, alias, hint in self._parameters():
            if alias in sent:
                found[name] = self._adapter(name, hint).validate_python(sent[alias])
                if alias != name:
                    del found[alias]
        return with_signature_defaults(found, self.function, self.without)

    def sent(self, received: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values as JSON, by the names that the framework reads (aliases)."""
        aliases = {name: alias for name, alias, _ in self._parameters()}
        return {aliases.get(name, name): value for name, value in as_json(received).items()}

    def _adapter(self, name: str, hint: Any) -> Any:
        from pydantic import ConfigDict, PydanticUserError, TypeAdapter

        if name not in self._adapters:
            with warnings.catch_warnings():
                # Pydantic warns about an alias in the annotation; `received` has already applied it.
                warnings.simplefilter("ignore")
                try:
                    self._adapters[name] = TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))
                except PydanticUserError:
                    # Pydantic rejects a configuration for types that have their own, such as models.
                    self._adapters[name] = TypeAdapter(hint)
        return self._adapters[name]

    def _parameters(self) -> list[tuple[str, str, Any]]:
        """Return the name, the alias (or else the name) and the annotation of each annotated parameter."""
        try:
            parameters = inspect.signature(self.function).parameters.values()
            hints = get_type_hints(_annotated(self.function), include_extras=True)
        except Exception:  # noqa: BLE001 - evaluating an annotation may raise anything: nothing is converted then
            return []
        found: list[tuple[str, str, Any]] = []
        for each in parameters:
            if each.kind in _NAMED and each.name not in self.without and each.name in hints:
                described = [*getattr(hints[each.name], "__metadata__", ()), each.default]
                aliases = [getattr(one, "validation_alias", None) for one in described]
                alias = next((one for one in aliases if isinstance(one, str)), each.name)
                found.append((each.name, alias, hints[each.name]))
        return found


def _annotated(function: Any) -> Any:
    """Return the object that has the annotations of a callable."""
    if inspect.ismethod(function):
        return function.__func__
    return function if hasattr(function, "__annotations__") else type(function).__call__


def with_signature_defaults(
    values: Mapping[str, Any], function: Any, without: Collection[str] = ()
) -> dict[str, Any]:
    """Return the arguments with the defaults of a function's parameters.

    Args:
        values: Arguments by name.
        function: The function; if it is None or has no signature, no defaults are added.
        without: Parameters whose defaults are left out.
    """
    found = dict(values)
    if function is None:
        return found
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return found
    for each in parameters:
        if (
            each.kind not in _NAMED
            or each.default is each.empty
            or each.name in without
            or each.name in found
        ):
            continue
        if not (type(each.default).__name__ == "FieldInfo" and each.default.is_required()):
            found[each.name] = _default(each.default)
    return found


def probe_of(function: Any) -> Any:
    """Return a function with the same parameters that returns its arguments by name and runs nothing.

    A framework that validates calls by a function's signature validates calls of the probe in the same way.
    """
    signature = inspect.signature(function)
    extra = next((each.name for each in signature.parameters.values() if each.kind is each.VAR_KEYWORD), None)

    @functools.wraps(function)
    def probe(*args: Any, **kwargs: Any) -> dict[str, Any]:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        found = dict(bound.arguments)
        more: dict[str, Any] = {} if extra is None else found.pop(extra)
        return {**found, **more}

    # `functools.wraps` sets it. Frameworks and `is_guarded` follow it, and would treat the probe as the function.
    del probe.__wrapped__
    with suppress(Exception):
        # Evaluating an annotation may raise anything; the framework then reads the original annotations.
        probe.__annotations__ = get_type_hints(function, include_extras=True)
    probe.__signature__ = signature  # type: ignore[attr-defined]  # read by inspect.signature
    return probe


def encoded(model: Any, received: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as JSON, by the names that a Pydantic model reads (its aliases)."""
    from pydantic import AliasChoices, AliasPath

    by_name = model.model_config.get("populate_by_name") or model.model_config.get("validate_by_name")
    found: dict[str, Any] = {}
    for name, value in as_json(received).items():
        info = model.model_fields.get(name)
        alias = None if info is None else info.validation_alias
        if isinstance(alias, AliasChoices):
            alias = next((each for each in alias.choices if isinstance(each, str)), None)
        key = alias if isinstance(alias, str) else name
        if isinstance(alias, AliasPath) and not by_name:
            raise ConfigurationError(f"the argument {name!r} is read from a path")
        found[key] = value
    return found


def _candidates(raw: dict[str, Any], values: dict[str, Any], schema: ArgumentSchema) -> list[dict[str, Any]]:
    """Return the arguments to try for the framework, best first.

    They are the model's arguments completed with the received values, all received values, or the model's arguments.
    """
    try:
        explicit = schema.sent(values)
    except Exception:  # noqa: BLE001 - JSON cannot represent the values: only the model's arguments are tried
        return [raw]
    if isinstance(schema, JsonSchema | SignatureSchema):
        # The tool might fill in other defaults than these schemas, so all values are sent explicitly.
        return [explicit]
    return [{**explicit, **raw}, explicit, raw]


def _is_received_as(schema: ArgumentSchema, sent: dict[str, Any], values: Mapping[str, Any]) -> bool:
    try:
        return same_arguments(schema.received(json_copy(sent)), values)
    except Exception:  # noqa: BLE001 - the tool would reject these arguments, so they are not sent
        return False


def as_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as JSON; models inside them use their aliases."""
    from pydantic_core import to_jsonable_python

    return {name: to_jsonable_python(value, by_alias=True) for name, value in values.items()}


def json_copy(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of arguments, with copies of nested dicts and lists.

    Other objects, such as a context that the framework injects, are not copied.
    """
    return {name: _copy(value) for name, value in arguments.items()}


def _copy(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copy(item) for key, item in value.items()}
    if type(value) is list:
        return [_copy(item) for item in value]
    return value


def _default(value: Any) -> Any:
    # With some frameworks, the default of a parameter is Pydantic's `FieldInfo`, which contains the actual default.
    if type(value).__name__ == "FieldInfo":
        return value.get_default(call_default_factory=True)
    return copy.deepcopy(value) if type(value) in {dict, list, set} else value


_MOST_CALLS: Final = 4096
_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
