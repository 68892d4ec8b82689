"""The context of a call: the JSON object that the gateway checks, an approver reads and the log stores.

The context of a log entry also contains facts about the call, such as its duration and its error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from toolgate._capture.binding import free_name
from toolgate._capture.jsontext import Json, size
from toolgate._capture.redaction import Masked, SecretRule, forms, forms_within, scrub
from toolgate._capture.rules import AMOUNT, Rules
from toolgate._capture.serializer import (
    Extended,
    Fingerprinter,
    Freezer,
    Frozen,
    Opaque,
    Secret,
    UnsupportedArgumentError,
)
from toolgate.errors import ConfigurationError

__all__ = [
    "Captured",
    "FrozenCall",
    "Rules",
    "capture",
    "clip",
    "copy_context",
    "describe_error",
    "fit",
    "freeze_call",
    "show",
    "with_facts",
]

# Maximum number of nested levels in an argument. The gateway accepts 32 levels per request, and a log entry adds some
# levels around the arguments.
_MAX_DEPTH: Final = 28
_MAX_TEXT: Final = 8 * 1024
_MAX_NAME: Final = 255
# Maximum size in bytes, and maximum number of values, of a call's context. The gateway accepts 64 KiB and 5,000 values
# per request, and a log entry also contains other fields.
_MAX_BYTES: Final = 60 * 1024
_MAX_VALUES: Final = 4_500
# Number of JSON values in a digest: the object and its two members. A large value is replaced by its digest only if the
# digest is smaller.
_DIGEST_VALUES: Final = 3
# Size of the JSON of a digest in bytes.
_DIGEST_BYTES: Final = 112
_MAX_HIDDEN: Final = 10_000
_PAIR: Final = 2
_NAMES_IN_PAIRS: Final = frozenset(("name", "key", "header"))
_UNSENDABLE: Final = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Captured:
    """Context of one call (the JSON object that the gateway checks), and the secrets to redact in error messages.

    Attributes:
        context: JSON within the limits of the gateway.
        hidden: Secrets that `context` does not show, in every form that an error message may contain, such as escaped.
        patterns: Additional patterns of secrets; text that matches them is redacted in error messages.
    """

    context: dict[str, Json]
    hidden: tuple[str, ...] = ()
    patterns: tuple[re.Pattern[str], ...] = ()


@dataclass(frozen=True, slots=True)
class FrozenCall:
    """Copies of the arguments of one call that no other code can change.

    Attributes:
        arguments: Copies of the arguments that an approval covers, by name.
        derived: Copies of the values that were computed from the arguments, by name.
        left_out: Values of the string arguments that the option `ignore` omits; error messages must not contain them.
    """

    arguments: dict[str, Frozen]
    derived: dict[str, Frozen]
    left_out: tuple[str, ...]


def copy_context(context: object) -> dict[Any, Any]:
    """Return a copy of the context that a caller passed.

    Raises:
        ConfigurationError: `context` is not a mapping.
    """
    if not isinstance(context, Mapping):
        raise ConfigurationError(
            f"context is of {type(context)!r}; pass a mapping of names to values, like {{'table': 'users'}}"
        )
    return dict(context)


def capture(
    arguments: Mapping[Any, Any],
    rules: Rules,
    fingerprinter: Fingerprinter,
    derived: Mapping[str, Any] | None = None,
) -> Captured:
    """Convert the arguments of a call to its context, the JSON object that the gateway checks.

    Args:
        arguments: Arguments by name.
        rules: Options that decide which arguments are shown, hidden or omitted.
        fingerprinter: Computes the digests that replace hidden values.
        derived: Values that `Rules.derive` computed from the arguments.

    Raises:
        ConfigurationError: An argument cannot be written as JSON.
    """
    return show(freeze_call(arguments, rules, derived), rules, fingerprinter)


def freeze_call(
    arguments: Mapping[Any, Any], rules: Rules, derived: Mapping[str, Any] | None = None
) -> FrozenCall:
    """Return immutable copies of the arguments that an approval covers, and of the values computed from them.

    Raises:
        ConfigurationError: An argument cannot be written as JSON.
    """
    freezer = Freezer()
    texts: tuple[str, ...] = ()
    if rules.ignore:
        left_out = {name for name in arguments if type(name) is str and rules.leaves_out(name)}
        texts = tuple(arguments[name] for name in left_out if type(arguments[name]) is str)
        arguments = {name: value for name, value in arguments.items() if name not in left_out}
    frozen = freezer.arguments(arguments)
    try:
        return FrozenCall(frozen, freezer.arguments(derived) if derived else {}, texts)
    except UnsupportedArgumentError as error:
        raise ConfigurationError(
            f"context= gives {error.name!r}, which {error.problem}; return plain data"
        ) from None


def show(call: FrozenCall, rules: Rules, fingerprinter: Fingerprinter) -> Captured:
    """Return the copied arguments as JSON: secrets are hidden, and the size is within the limits of the gateway."""
    redactor = _Redactor(fingerprinter, rules.names)
    for text in call.left_out:
        redactor.hidden.extend(forms(text))
    context: dict[str, Json] = {}
    for name, value in call.arguments.items():
        if value is not None and rules.hides(name):
            context[redactor.name(name)] = redactor.hide(value)
        elif name in rules.visible:
            if isinstance(value, Extended) and _is_number(value.value):
                context[f"${name}"] = fingerprinter.frozen(value.more)
            context[name] = redactor.amount(value)
        else:
            context[redactor.name(name)] = redactor.argument(value)
    if rules.amount is not None and rules.amount in context:
        context[AMOUNT] = context[rules.amount]
    for name, value in call.derived.items():
        if name == AMOUNT:
            context[name] = redactor.amount(value)
        else:
            context[redactor.name(name)] = redactor.member(name, value)
    return Captured(fit(context, fingerprinter), tuple(sorted(set(redactor.hidden))), rules.names.patterns)


@dataclass(slots=True, eq=False)
class _Redactor:
    """Replaces secrets, and values that are too large for the gateway, by their digests.

    Attributes:
        fingerprinter: Computes the digests.
        names: Rule that finds secrets.
        hidden: Hidden values, in each form in which an error message may contain them. Each method that hides a value
            adds its forms.
    """

    fingerprinter: Fingerprinter
    names: SecretRule
    hidden: list[str] = field(default_factory=list[str])

    def argument(self, value: Frozen) -> Json:
        """Return the JSON for one argument. If it contains more values than the gateway accepts, return its digest."""
        has_many = isinstance(value, (list, dict, Extended)) and _count(value) > _MAX_VALUES
        return self._cut(value) if has_many else self._show(value, 0)

    def member(self, name: str, value: Frozen) -> Json:
        """Return the JSON for a value; if `name` is the name of a secret, return the digest of the value."""
        return self.hide(value) if value is not None and self.names.hides(name) else self.argument(value)

    def amount(self, value: Frozen) -> Json:
        """Return the JSON for an amount. Amounts are not searched for secrets: they may look like card numbers."""
        number = value.value if isinstance(value, Extended) else value
        if isinstance(number, (int, float, Decimal)):
            return number
        return self._sendable(value) if isinstance(value, str) else self.argument(value)

    def hide(self, value: Frozen) -> dict[str, Json]:
        """Return the digest of a value. Add to `hidden` the forms in which an error message may contain the value."""
        self.hidden.extend(forms_within(value))
        return self.fingerprinter.frozen(value)

    def name(self, name: str) -> str:
        """Return a name with its secrets masked.

        A name that begins with `$` gets a second `$`, because names that the SDK generates begin with a single `$`.
        """
        if len(name) > _MAX_NAME or _UNSENDABLE.search(name):
            return self.fingerprinter.label(name)
        if self.names.found_in_name(name):
            masked = self.names.mask(name) or Masked(None, (name,))
            self._remember(masked)
            label = self.fingerprinter.label(name)
            return label if masked.visible is None else f"$redacted:{masked.visible} {label[1:]}"
        return f"${name}" if name.startswith("$") else name

    def _show(self, value: Frozen, depth: int) -> Json:
        if isinstance(value, str):
            return self._text(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, (int, float, Decimal)):
            return self.hide(value) if self.names.found_in_number(value) else value
        if isinstance(value, (list, dict)):
            if depth >= _MAX_DEPTH:
                return self._cut(value)
            return (
                self._items(value, depth + 1) if isinstance(value, list) else self._members(value, depth + 1)
            )
        if isinstance(value, bytes):
            return self.fingerprinter.binary(value)
        if isinstance(value, Extended):
            shown = self._show(value.value, depth + 1)
            return {"$object": value.label, "$value": shown, **self.fingerprinter.frozen(value.more)}
        return self._secret(value)

    def _secret(self, value: Secret | Opaque) -> Json:
        if isinstance(value, Opaque):
            raise TypeError("an object that cannot be converted to JSON")
        self.hidden.extend(forms_within(value.value))
        return self.fingerprinter.frozen(value.value)

    def _items(self, items: list[Frozen], depth: int) -> list[Json]:
        if len(items) == _PAIR and isinstance(items[0], str):
            # In a pair such as the HTTP header ("Authorization", "…"), the first item may be the name of the second.
            return [self._show(items[0], depth), self._member(items[0], items[1], depth)]
        return [self._show(item, depth) for item in items]

    def _members(self, members: dict[str, Frozen], depth: int) -> dict[str, Json]:
        shown = {self.name(name): self._member(name, item, depth) for name, item in members.items()}
        if members.get("value") is not None:
            # An HTTP header may also be an object, such as {"name": "Authorization", "value": "…"}. The member `value`
            # is hidden if the member `name` is the name of a secret.
            names = [members[name] for name in _NAMES_IN_PAIRS & members.keys()]
            if any(isinstance(each, str) and self.names.hides(each) for each in names):
                shown["value"] = self.hide(members["value"])
        return shown

    def _member(self, name: str, value: Frozen, depth: int) -> Json:
        return self.hide(value) if value is not None and self.names.hides(name) else self._show(value, depth)

    def _text(self, value: str) -> Json:
        masked = self.names.mask(value)
        if masked is None:
            return self._sendable(value)
        self._remember(masked)
        if masked.visible is None or not isinstance(visible := self._sendable(masked.visible), str):
            self.hidden.extend(forms(value))
            return self.fingerprinter.text(value)
        return {"$redacted": visible, **self.fingerprinter.text(value)}

    def _remember(self, masked: Masked) -> None:
        for secret in masked.secrets:
            self.hidden.extend(forms(secret))

    def _sendable(self, value: str) -> Json:
        # A character has at most four bytes in UTF-8, so short texts need not be encoded to count their bytes.
        if len(value) * 4 > _MAX_TEXT and len(value.encode("utf-8", "surrogatepass")) > _MAX_TEXT:
            return self.fingerprinter.text(value)
        return self.fingerprinter.text(value) if _UNSENDABLE.search(value) else value

    def _cut(self, value: Frozen) -> dict[str, Json]:
        """Return the digest of a value that is too large. Add to `hidden` the forms of the secrets inside the value."""
        left = [value]
        while left:
            inside = left.pop()
            if len(self.hidden) > _MAX_HIDDEN:
                # The value contains too many secrets to collect all of them. The empty text makes `scrub` redact error
                # messages completely.
                self.hidden.append("")
                break
            if isinstance(inside, Secret):
                self.hidden.extend(forms_within(inside))
            elif isinstance(inside, Extended):
                left += [inside.value, inside.more]
            elif isinstance(inside, list):
                if len(inside) == _PAIR and isinstance(inside[0], str) and self.names.hides(inside[0]):
                    self.hidden.extend(forms_within(inside[1]))
                left += [item for item in inside if not isinstance(item, (str, int, float))]
            elif isinstance(inside, dict):
                for name, item in inside.items():
                    if self.names.hides(name):
                        self.hidden.extend(forms_within(item))
                left += inside.values()
        return self.fingerprinter.frozen(value)


def fit(
    context: Mapping[str, Json], fingerprinter: Fingerprinter, *, beside: Mapping[str, Json] | None = None
) -> dict[str, Json]:
    """Return the context with its largest values replaced by digests, so that it is within the gateway's limits.

    A numeric `amount` is never replaced. If the context is still too large, one digest replaces everything else.

    Args:
        context: JSON values by name.
        fingerprinter: Computes the digests.
        beside: Further members of the request. Their size is subtracted from the maximum size of the context.
    """
    fitted = dict(context)
    limit = _MAX_BYTES - (size(dict(beside)) if beside else 0)
    if size(fitted) <= min(limit, _MAX_VALUES):
        # Each value takes at least one byte, so the context cannot contain too many values either.
        return fitted
    for measure, most, least in ((_count, _MAX_VALUES, _DIGEST_VALUES), (size, limit, _DIGEST_BYTES)):
        total = measure(fitted)
        if total <= most:
            continue
        sizes = {name: measure(value) for name, value in fitted.items() if not _is_amount(name, value)}
        for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
            if total <= most or sizes[name] <= least:
                break
            fitted[name] = fingerprinter.json(fitted[name])
            total += measure(fitted[name]) - sizes[name]
        if total > most:
            kept = {name: value for name, value in fitted.items() if _is_amount(name, value)}
            rest = {name: value for name, value in fitted.items() if name not in kept}
            fitted = {**kept, "$cut": fingerprinter.json(rest)}
    return fitted


def _count(value: object) -> int:
    """Return the number of values in `value`, including `value` itself and the values inside it."""
    count, left = 1, [value]
    while left:
        inside = left.pop()
        if isinstance(inside, Extended):
            left += [inside.value, inside.more]
        elif isinstance(inside, (list, dict)):
            count += len(inside)
            members: Iterable[object] = inside.values() if isinstance(inside, dict) else inside
            left += [each for each in members if isinstance(each, (list, dict, Extended))]
    return count


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, Decimal))


def _is_amount(name: str, value: Json) -> bool:
    return name == AMOUNT and _is_number(value)


_MAX_MESSAGE: Final = 1000
_MAX_MESSAGE_BYTES: Final = 3000
_MAX_TYPE: Final = 200


def with_facts(context: Mapping[str, Json], facts: Mapping[str, Json]) -> dict[str, Json]:
    """Return the context of a log entry: the checked arguments, with facts such as the duration added.

    If an argument has the same name as a fact, the name of the fact gets a trailing underscore.
    """
    entry = dict(context)
    for name, value in facts.items():
        entry[free_name(name, entry) if name in entry else name] = value
    return entry


def describe_error(
    error: BaseException, hidden: Iterable[str], patterns: Iterable[re.Pattern[str]] = ()
) -> dict[str, Json]:
    """Return the type of an exception and the first 1,000 characters of its message, with secrets redacted.

    Args:
        error: Exception to describe.
        hidden: Secrets to redact in addition to texts that have the form of a secret.
        patterns: Patterns of secrets to redact in addition to the built-in patterns.
    """
    try:
        message = str(error)
    except BaseException:  # noqa: BLE001 - an exception's own `__str__` may raise anything; the tool's error is raised all the same
        message = "<the error message could not be read>"
    return {"type": clip(type(error).__name__[:_MAX_TYPE]), "message": clip(scrub(message, hidden, patterns))}


def clip(text: str) -> str:
    """Return the beginning of `text` for a log entry: at most 1,000 characters and 3,000 bytes of JSON.

    The gateway accepts requests of up to 64 KiB. The arguments may take up 60 KiB, which leaves 4 KiB for the other
    fields of the log entry.
    """
    text = _UNSENDABLE.sub("�", text[:_MAX_MESSAGE])
    while size(text) > _MAX_MESSAGE_BYTES:
        text = text[: len(text) * 3 // 4]
    return text
