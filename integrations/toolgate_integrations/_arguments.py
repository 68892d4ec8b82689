"""Arguments of a tool call as the tool's function receives them: with defaults, aliases and conversions applied.

The gateway checks the values that the function receives, not the JSON that the model sent. Some frameworks validate
arguments themselves before they call the function. For them, this module computes arguments that the framework's
validation converts to exactly the checked values.
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
    """Raised if the tool's own validation rejects the arguments of a call; `__cause__` is the validation error."""


class ArgumentSchema(Protocol):
    """Conversion between the JSON arguments that a model sends and the values that a tool's function receives."""

    def received(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Convert the model's arguments to the values that the function receives.

        Raises the framework's own validation error if the arguments are invalid.
        """
        ...

    def sent(self, received: Mapping[str, Any]) -> dict[str, Any]:
        """Convert the values that the function must receive back to arguments for the framework.

        The framework's validation turns the returned arguments into exactly these values.
        """
        ...


class Received:
    """Arguments of one tool call after the tool's validation.

    Attributes:
        values: Values by the names of the function's parameters, as the gateway checks them.
    """

    def __init__(self, values: dict[str, Any], sent: dict[str, Any], schema: ArgumentSchema) -> None:
        self.values = values
        self._sent = sent
        self._schema = schema

    def to_send(self, approved: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments to pass to the framework, so that the tool receives exactly the approved values.

        Args:
            approved: The approved values. They differ from `values` if the approver edited the call.

        Raises:
            ConfigurationError: The tool's validation converts the approved values to other values.
        """
        edited = not same_arguments(approved, self.values)
        sent = self._schema.sent(approved) if edited else self._sent
        # The arguments are verified again right before the tool runs, because a default factory may return another
        # value than at the time of the check, such as the current time.
        if not _is_received_as(self._schema, sent, approved):
            what = "the approver's edit" if edited else "the arguments"
            raise ConfigurationError(
                f"{what} cannot be passed to the tool, because the tool's own validation would change the "
                "values; the tool did not run"
            )
        return json_copy(sent)


def receive(sent: Mapping[str, Any], schema: ArgumentSchema) -> Received:
    """Validate the arguments of a tool call with the tool's schema.

    Args:
        sent: The model's arguments; they are not changed.
        schema: The tool's schema.

    Raises:
        ConfigurationError: Validating the same arguments a second time returns other values, so no decision can be
            bound to them.
        InvalidArgumentsError: The tool's validation rejects the arguments.
    """
    raw = json_copy(sent)
    try:
        values = schema.received(json_copy(raw))
    except Exception as error:
        raise InvalidArgumentsError(str(error)) from error
    named: object = values
    if not isinstance(named, dict) or any(type(name) is not str for name in named):
        raise ConfigurationError(
            f"the tool's schema {schema!r} must return a dictionary of arguments by name, but it returned "
            "something else"
        )
    for candidate in _candidates(raw, values, schema):
        if _is_received_as(schema, candidate, values):
            return Received(values, candidate, schema)
    raise ConfigurationError(
        "the tool's arguments get different values each time they are validated, so a decision cannot "
        "apply to them; use validators and default factories that always return the same value"
    )


def receive_or_keep(sent: Mapping[str, Any], schema: ArgumentSchema) -> Received:
    """Validate arguments like `receive`, but return them unchanged if the tool's validation rejects them."""
    try:
        return receive(sent, schema)
    except InvalidArgumentsError:
        raw = json_copy(sent)
        return Received(raw, raw, RawSchema())


class ReceivedCalls:
    """Cache of validated arguments by run id, call id and tool name, so that each tool call is validated only once.

    A default factory may return a different value each time. Without the cache, a call that is validated once for the
    check and again for the run could run with other values than the gateway checked. Only the newest 4096 calls are
    kept.
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
        """Return the validated arguments of a call: the first time from `receive`, afterwards from the cache.

        Args:
            name: The tool's name.
            sent: The model's arguments. If they differ from those of the first request, they are validated again.
            schema: The tool's schema.
            run_id: The framework's id of the run. If `run_id` or `call_id` is None, the result is not cached.
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
    """Schema of a tool whose function receives the model's JSON arguments unchanged."""

    def received(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Return the model's arguments unchanged."""
        return sent

    def sent(self, received: Mapping[str, Any]) -> dict[str, Any]:
        """Return the function's arguments unchanged."""
        return dict(received)


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """JSON schema of a tool that runs in another process, such as a tool of an MCP server.

    The defaults of the schema are added to the arguments before the check, so that the gateway checks them too.
    """

    schema: Mapping[str, Any] | None

    def received(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Return the model's arguments, with the schema's defaults for missing arguments."""
        return sent if self.schema is None else with_defaults(sent, self.schema)

    def sent(self, received: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments unchanged, including added defaults, so that the remote tool receives the checked values."""
        return dict(received)


@dataclass(frozen=True, slots=True)
class SignatureSchema:
    """Schema of a function that a framework calls with the model's JSON as keyword arguments, without validation.

    Attributes:
        function: The function.
        without: Names of parameters whose defaults are not added to the arguments.
    """

    function: Any
    without: Collection[str] = ()

    def received(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Return the model's arguments, with the signature's defaults for missing arguments."""
        return with_signature_defaults(sent, self.function, self.without)

    def sent(self, received: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments unchanged, including the defaults, so that the function receives the checked values."""
        return dict(received)


@dataclass(frozen=True, slots=True)
class ModelSchema:
    """Pydantic model with which a framework validates the arguments of a tool.

    Attributes:
        model: The Pydantic model class.
        function: Function whose parameters have the names of the model's fields. The defaults of its parameters are
            added to the arguments. None if there is no such function.
        without: Names of parameters that the framework fills in, such as a context; they are omitted from the
            arguments.
    """

    model: Any
    function: Any = None
    without: Collection[str] = ()

    def received(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Validate the model's arguments, and return the fields of the validated object by name."""
        made = self.model.model_validate(sent)
        found = {name: getattr(made, name) for name in type(made).model_fields}
        found |= made.model_extra or {}
        values = {name: value for name, value in found.items() if name not in self.without}
        return with_signature_defaults(values, self.function, self.without)

    def sent(self, received: Mapping[str, Any]) -> dict[str, Any]:
        """Convert values to JSON, under the field names or aliases from which the Pydantic model reads them."""
        return encoded(self.model, received)


@dataclass(frozen=True, slots=True)
class CustomSchema:
    """Schema that consists of two functions, for a framework whose validation no other schema class describes."""

    receive: Callable[[dict[str, Any]], dict[str, Any]] = field(repr=False)
    encode: Callable[[Mapping[str, Any]], dict[str, Any]] = field(default=dict, repr=False)

    def received(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Return the result of `receive`, the function that converts the model's arguments."""
        return self.receive(sent)

    def sent(self, received: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of `encode`, the function that converts values back to arguments for the framework."""
        return self.encode(received)


@dataclass(frozen=True, slots=True)
class AnnotatedSchema:
    """Schema of a function whose arguments a framework converts by its annotations, as `pydantic.validate_call` does.

    Attributes:
        function: The function.
        without: Names of parameters that the framework fills in; they are not converted.
    """

    function: Any
    without: Collection[str] = ()
    _adapters: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def received(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Convert the model's arguments by the annotations, and add the defaults of missing arguments."""
        found = dict(sent)
        for name, alias, hint in self._parameters():
            if alias in sent:
                found[name] = self._adapter(name, hint).validate_python(sent[alias])
                if alias != name:
                    del found[alias]
        return with_signature_defaults(found, self.function, self.without)

    def sent(self, received: Mapping[str, Any]) -> dict[str, Any]:
        """Convert values to JSON, under the names or aliases from which the framework reads them."""
        aliases = {name: alias for name, alias, _ in self._parameters()}
        return {aliases.get(name, name): value for name, value in as_json(received).items()}

    def _adapter(self, name: str, hint: Any) -> Any:
        from pydantic import ConfigDict, PydanticUserError, TypeAdapter

        if name not in self._adapters:
            with warnings.catch_warnings():
                # Pydantic warns that an alias in the annotation has no effect here. The warning is suppressed because
                # `received` applies the alias itself.
                warnings.simplefilter("ignore")
                try:
                    self._adapters[name] = TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))
                except PydanticUserError:
                    # Pydantic rejects a configuration for types that contain their own, such as model classes.
                    self._adapters[name] = TypeAdapter(hint)
        return self._adapters[name]

    def _parameters(self) -> list[tuple[str, str, Any]]:
        """Return (name, alias, annotation) of each annotated parameter; without an alias, the alias is the name."""
        try:
            parameters = inspect.signature(self.function).parameters.values()
            hints = get_type_hints(_annotated(self.function), include_extras=True)
        except Exception:  # noqa: BLE001 - evaluating an annotation may raise anything; the arguments are then not converted
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
    """Return the object whose annotations describe the parameters of a callable: a function or a `__call__` method."""
    if inspect.ismethod(function):
        return function.__func__
    return function if hasattr(function, "__annotations__") else type(function).__call__


def with_signature_defaults(
    values: Mapping[str, Any], function: Any, without: Collection[str] = ()
) -> dict[str, Any]:
    """Add the defaults of a function's parameters to arguments that lack them.

    Args:
        values: Arguments by name; they are not changed.
        function: The function; if it is None or has no signature, no defaults are added.
        without: Names of parameters whose defaults are not added.
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
    """Return a function that has the signature of `function`, and returns a dictionary of its arguments by name.

    The returned function does not run `function`. A framework that validates arguments by a function's signature
    validates them for the returned function in the same way, so the plugin can read the validated arguments from it.
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

    # `functools.wraps` sets `__wrapped__` to the original function. It is deleted because frameworks and `is_guarded`
    # follow it, and would treat the probe as the original function.
    del probe.__wrapped__
    with suppress(Exception):
        # Evaluating an annotation may raise any exception. The probe then keeps the original annotations.
        probe.__annotations__ = get_type_hints(function, include_extras=True)
    probe.__signature__ = signature  # type: ignore[attr-defined]  # `inspect.signature` reads this attribute
    return probe


def encoded(model: Any, received: Mapping[str, Any]) -> dict[str, Any]:
    """Convert values to JSON, under the names or aliases from which a Pydantic model reads its fields."""
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
            raise ConfigurationError(
                f"the argument {name!r} is read from a nested path (AliasPath), which is not supported"
            )
        found[key] = value
    return found


def _candidates(raw: dict[str, Any], values: dict[str, Any], schema: ArgumentSchema) -> list[dict[str, Any]]:
    """Return the sets of arguments that could be passed to the framework, in the order in which they are tried.

    1. The model's arguments, completed with values that the function receives.
    2. All values that the function receives.
    3. The model's arguments alone.
    """
    try:
        explicit = schema.sent(values)
    except Exception:  # noqa: BLE001 - the values cannot be converted to JSON, so only the model's arguments are tried
        return [raw]
    if isinstance(schema, JsonSchema | SignatureSchema):
        # The tool itself might apply other defaults than the schema contains, so all values are passed explicitly.
        return [explicit]
    return [{**explicit, **raw}, explicit, raw]


def _is_received_as(schema: ArgumentSchema, sent: dict[str, Any], values: Mapping[str, Any]) -> bool:
    try:
        return same_arguments(schema.received(json_copy(sent)), values)
    except Exception:  # noqa: BLE001 - the tool's validation rejects these arguments, so they are not passed to it
        return False


def as_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert values to JSON types; fields of Pydantic models inside them are written under their aliases."""
    from pydantic_core import to_jsonable_python

    return {name: to_jsonable_python(value, by_alias=True) for name, value in values.items()}


def json_copy(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a call's arguments, in which nested dicts and lists are copied too.

    Other objects, such as a context that the framework passes to the tool, are not copied.
    """
    return {name: _copy(value) for name, value in arguments.items()}


def _copy(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copy(item) for key, item in value.items()}
    if type(value) is list:
        return [_copy(item) for item in value]
    return value


def _default(value: Any) -> Any:
    # In some frameworks, the default of a parameter is a Pydantic `FieldInfo` object, which contains the actual
    # default.
    if type(value).__name__ == "FieldInfo":
        return value.get_default(call_default_factory=True)
    return copy.deepcopy(value) if type(value) in {dict, list, set} else value


_MOST_CALLS: Final = 4096
_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
