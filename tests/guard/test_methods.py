"""Methods of every kind, however they are reached: asked about without `self` and `cls`."""

from __future__ import annotations

import asyncio
import functools
import inspect
import types
from pathlib import Path
from typing import Any

import pytest

from toolgate import (
    ConfigurationError,
    Guard,
)


def of_module(self: int) -> int:
    return self


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_methods(kind: str, guard: Guard, gateway: Any) -> None:
    """Methods of every kind, in both orders and called in every way, are asked about without self or cls."""
    guard_it: Any = guard.guarded("a.b")

    def plain(first: Any, x: int, /) -> Any:
        return first, x

    async def aplain(first: Any, x: int, /) -> Any:
        return first, x

    def alone(x: int) -> Any:
        return None, x

    async def aalone(x: int) -> Any:
        return None, x

    two, one = (plain, alone) if kind == "sync" else (aplain, aalone)
    holder_class: Any = type(
        "Holder",
        (),
        {
            "method": guard_it(two),
            "above": guard_it(classmethod(two)),
            "static": guard_it(staticmethod(one)),
        },
    )
    holder = holder_class()
    for call, first in [
        (functools.partial(holder.method, 1), holder),
        (functools.partial(holder_class.method, holder, 1), holder),
        (functools.partial(holder_class.above, 1), holder_class),
        (functools.partial(holder.above, 1), holder_class),
        (functools.partial(holder_class.static, 1), None),
        (functools.partial(holder.static, 1), None),
    ]:
        value = call()
        assert (await value if inspect.isawaitable(value) else value) == (first, 1)
        assert gateway.context == {"x": 1}


def test_below_class_and_static_methods(guard: Guard, gateway: Any) -> None:
    """The decorator below classmethod and staticmethod, also called as Python 3.13 does it, unbound."""

    class Holder:
        @classmethod
        @guard.guarded("a.b")
        def made(cls, x: int) -> Any:
            return cls, x

        @staticmethod
        @guard.guarded("a.b")
        def alone(x: int) -> Any:
            return x

    class Child(Holder): ...

    unbound = types.MethodType(vars(Holder)["made"].__func__, Child)
    assert Holder.made(1) == (Holder, 1)
    assert gateway.context == {"x": 1}
    assert unbound(1) == (Child, 1)
    assert gateway.context == {"x": 1}
    assert Child().alone(1) == 1
    assert gateway.context == {"x": 1}


def passing(function: Any) -> Any:
    """An ordinary decorator, which hands on what it is called with."""

    @functools.wraps(function)
    def passed(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return passed


def methods_of(guard_it: Any) -> Any:
    """A class with methods that are guarded below, above and without another decorator."""

    class Methods:
        @passing
        @guard_it
        def under(self, x: int) -> Any:
            return self, x

        @guard_it
        @passing
        def over(self, x: int) -> Any:
            return self, x

        @functools.lru_cache  # noqa: B019 - what is tested
        @guard_it
        def cached(self, x: int) -> Any:
            return self, x

        @guard_it
        def plain(self, x: int) -> Any:
            return self, x

        @passing
        @guard_it
        def extra(self, /, x: int, **more: Any) -> Any:
            return self, x

    return Methods


def holder_of(guard: Guard) -> Any:
    """A class whose guarded functions are reached past the binding of the guarded function itself."""
    guard_it: Any = guard.guarded("a.b")

    class Meta(type):
        @passing
        @guard_it
        def meta(mcs, x: int) -> Any:  # noqa: N804 - what is tested
            return mcs, x

    class Holder(methods_of(guard_it), metaclass=Meta):  # type: ignore[misc]  # made by a function
        @classmethod
        @passing
        @guard_it
        def made(cls, x: int) -> Any:
            return cls, x

        @property
        @guard_it
        def shown(self, x: int = 1) -> Any:  # noqa: PLR0206 - a default is sent as well
            return self, x

        @functools.cached_property
        @guard_it
        def kept(self, x: int = 1) -> Any:  # noqa: PLR0206 - likewise
            return self, x

        @passing
        @guard_it
        async def later(self, x: int) -> Any:
            return self, x

    return Holder


@pytest.mark.parametrize(
    ("call", "of_class"),
    [
        (lambda c: c.under(1), False),
        (lambda c: type(c).under(c, 1), False),
        (lambda c: type(c).under(self=c, x=1), False),
        (lambda c: c.over(1), False),
        (lambda c: c.cached(1), False),
        (lambda c: c.plain(1), False),
        (lambda c: type(c).plain(c, 1), False),
        (lambda c: type(c).plain(c, x=1), False),
        (lambda c: type(c).plain(self=c, x=1), False),
        (lambda c: types.MethodType(inspect.getattr_static(c, "plain"), c)(1), False),
        (lambda c: c.made(1), True),
        (lambda c: type(c).made(1), True),
        (lambda c: type(c).meta(1), True),
        (lambda c: c.shown, False),
        (lambda c: c.kept, False),
        (lambda c: asyncio.run(c.later(1)), False),
    ],
)
def test_without_self_past_the_binding(guard: Guard, gateway: Any, call: Any, of_class: bool) -> None:
    """However a function of a class is reached, the gateway is asked without self and cls."""
    holder = holder_of(guard)()
    assert call(holder) == ((type(holder) if of_class else holder), 1)
    assert gateway.context == {"x": 1}


def test_without_self_but_with_an_extra_self(guard: Guard, gateway: Any) -> None:
    """An extra keyword argument that is called self is an argument."""
    holder_of(guard)().extra(1, self=2)
    assert gateway.context == {"x": 1, "self": 2}


def test_guarded_new(guard: Guard, gateway: Any) -> None:
    """A guarded __new__ is asked about without the class."""

    class Holder:
        @guard.guarded("a.b")
        def __new__(cls, x: int) -> Any:
            return super().__new__(cls)

    assert type(Holder(1)) is Holder
    assert type(Holder(x=1)) is Holder
    assert type(Holder.__new__(Holder, 1)) is Holder
    assert [each["context"] for each in gateway.checks] == [{"x": 1}] * 3


def test_what_only_looks_like_self(guard: Guard, gateway: Any) -> None:
    """Static methods, built-in methods and methods taken from an instance keep all their arguments."""

    class Holder:
        @guard.guarded("a.b")
        @staticmethod
        def alone(self: int, x: int) -> Any:  # noqa: PLW0211 - what is tested
            return self, x

        def method(self, cls: int) -> int:
            return cls

        @passing
        @guard.guarded("a.b")
        def named(me, x: int) -> int:  # noqa: N805 - likewise
            return x

    assert Holder.alone(2, 1) == (2, 1)
    assert gateway.context == {"self": 2, "x": 1}
    assert guard.guarded("a.b")(Holder().method)(3) == 3
    assert gateway.context == {"cls": 3}
    assert guard.guarded("a.b")(str.upper)("a") == "A"
    assert gateway.context == {"self": "a"}
    with pytest.raises(ConfigurationError, match="argument 'me' is of type"):
        Holder().named(1)


def test_first_parameter_merely_called_self(guard: Guard, gateway: Any) -> None:
    """A plain function's first parameter is an argument whatever its name, also when given a class."""

    @guard.guarded("a.b")
    def tool(self: Any, cls: Any = None) -> None: ...

    tool(1, 2)
    assert gateway.context == {"self": 1, "cls": 2}
    tool([3])
    assert gateway.context == {"self": [3], "cls": None}
    with pytest.raises(ConfigurationError, match=r"argument 'self' is of type 'builtins.type'"):
        tool(int)
    module_self = guard.guarded("a.b")(of_module)
    assert module_self(1) == module_self(self=1) == 1
    assert gateway.context == {"self": 1}


def test_bound_and_built_in(guard: Guard, gateway: Any) -> None:
    """A method taken from its instance and a built-in are asked about with all their arguments."""

    class Holder:
        def method(self, x: int) -> int:
            return x

    assert guard.guarded("a.b")(Holder().method)(3) == 3
    assert gateway.context == {"x": 3}
    assert guard.guarded("a.b")(len)([1, 2]) == 2
    assert gateway.context == {"obj": [1, 2]}


def test_a_method_taken_from_a_finished_class(guard: Guard, gateway: Any) -> None:
    """Guarded as a tool of its own, a method is asked about the object it works on: that is what is at stake."""
    exists = guard.guarded("fs.look")(Path.exists)
    assert exists(Path("/")) is True
    assert exists(Path("/no such place")) is False
    assert [check["context"]["self"] for check in gateway.checks] == ["/", "/no such place"]
