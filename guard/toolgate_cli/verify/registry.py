"""Registry of guarantees: small functions that test one property of the gateway each."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from toolgate_cli.verify.trial import Trial

#: modules of `toolgate_cli.verify.guarantees`, in the order of the report; each is the topic of its guarantees
TOPICS: Final = (
    "access",
    "approvals",
    "approvers",
    "binding",
    "single_use",
    "grants",
    "revocation",
    "budgets",
    "idempotency",
    "authzen",
    "tenancy",
    "secrecy",
    "webhooks",
    "records",
    "freeze",
    "fail_closed",
)

#: function that tests a guarantee. It raises `Violation` if the gateway breaks the guarantee, and `NotTested` if the
#: guarantee cannot be tested; it may return a text with a measured value.
Test: TypeAlias = Callable[["Trial"], Awaitable[str | None]]


class Violation(Exception):
    """The gateway breaks the guarantee; the message describes what it did."""


class NotTested(Exception):
    """The guarantee cannot be tested here; the message contains the reason."""


@dataclass(frozen=True, slots=True)
class Guarantee:
    """Property of the gateway, and the function that tests it.

    Attributes:
        id: topic and name, such as ``binding.arguments``.
        title: the property, as a sentence.
        aisvs: numbers of the requirements of the OWASP AISVS 1.0 that the property supports.
        is_exclusive: whether the test disturbs other tests, and therefore runs after them.
    """

    id: str
    title: str
    aisvs: tuple[str, ...]
    test: Test
    is_exclusive: bool = False

    @property
    def topic(self) -> str:
        """First part of the id."""
        return self.id.partition(".")[0]


_GUARANTEES: dict[str, Guarantee] = {}


def guarantee(name: str, title: str, *aisvs: str, exclusive: bool = False) -> Callable[[Test], Test]:
    """Register the decorated function as the test of a guarantee.

    Args:
        name: topic and name, such as ``binding.arguments``.
        title: the property, as a sentence.
        aisvs: numbers of AISVS requirements, such as ``9.2.8``.
        exclusive: true if the test must run alone, after the others.
    """

    def register(test: Test) -> Test:
        if name in _GUARANTEES:
            raise ValueError(f"two guarantees have the id {name!r}")
        _GUARANTEES[name] = Guarantee(name, title, aisvs, test, exclusive)
        return test

    return register


def load_guarantees(only: Sequence[str] = ()) -> list[Guarantee]:
    """Return all guarantees, or those with the ids or topics in `only`, in the order of the report.

    Raises:
        ValueError: an element of `only` is neither an id nor a topic.
    """
    for topic in TOPICS:
        import_module(f"toolgate_cli.verify.guarantees.{topic}")
    names = {*TOPICS, *_GUARANTEES}
    unknown = [one for one in only if one not in names]
    if unknown:
        raise ValueError(f"unknown guarantee or topic {unknown[0]!r}; the topics are {', '.join(TOPICS)}")
    ordered = sorted(_GUARANTEES.values(), key=lambda one: TOPICS.index(one.topic))
    return [one for one in ordered if not only or one.id in only or one.topic in only]


def require(condition: object, message: str) -> None:
    """Raise a `Violation` with the message if the condition is false.

    Raises:
        Violation: the condition is false.
    """
    if not condition:
        raise Violation(message)
