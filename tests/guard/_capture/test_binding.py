from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from toolgate import ConfigurationError
from toolgate._capture.binding import UNKNOWN, Binder


def bind(
    function: Any, *args: Any, drop_first: bool = False, reserved: str | None = None, **kwargs: Any
) -> Any:
    return Binder(function).bind(args, kwargs, drop_first=drop_first, reserved=reserved)


def both(a: int, /, b: int = 2, *rest: int, c: int = 3, **more: int) -> None: ...


def test_names_and_defaults() -> None:
    """Arguments are bound by name, defaults applied, extra keywords beside them, extra positions as a list."""
    assert bind(both, 1) == {"a": 1, "b": 2, "rest": (), "c": 3}
    assert bind(both, 1, 5, 6, 7, amount=9) == {"a": 1, "b": 5, "rest": (6, 7), "c": 3, "amount": 9}


def test_collisions_keep_both() -> None:
    """An extra keyword that has a parameter's name stands beside it under a free one, in any order."""
    expected = {"a": 1, "b": 2, "rest": (), "c": 3, "a_": 8, "a__": 7, "rest_": 9}
    assert bind(both, 1, a_=7, a=8, rest=9) == expected
    assert bind(both, 1, rest=9, a=8, a_=7) == expected


def test_reserved_name() -> None:
    """An extra keyword cannot take the place of the amount another argument gives."""
    assert bind(both, 1, reserved="amount", amount=9)["amount_"] == 9


def test_instance_is_dropped() -> None:
    """What came through an instance has no first parameter, whatever its name; *args has none to lose."""
    assert bind(lambda me, x: None, 1, drop_first=True) == {"x": 1}
    assert bind(lambda *args: None, 1, drop_first=True) == {"args": (1,)}


@pytest.mark.parametrize("name", ["self", "cls", "mcs", "metacls"])
def test_owner_is_dropped(name: str) -> None:
    """A function of a class loses its instance or class once, wherever it stands in the call."""
    scope: dict[str, Any] = {}
    exec(f"def method({name}, x): ...", scope)
    binder = Binder(scope["method"], in_class=True)
    for args, kwargs in [((0, 1), {}), ((0,), {"x": 1}), ((), {name: 0, "x": 1})]:
        assert binder.bind(args, kwargs, drop_first=False, reserved=None) == {"x": 1}
    assert binder.bind((1,), {}, drop_first=True, reserved=None) == {"x": 1}
    assert bind(scope["method"], 0, 1) == {name: 0, "x": 1}


def test_wrong_call() -> None:
    """A call the function would refuse raises the TypeError it always raised."""
    with pytest.raises(TypeError, match="missing a required argument: 'a'"):
        bind(both)


def test_no_signature() -> None:
    """A function whose signature cannot be read is refused with a cure."""
    with pytest.raises(ConfigurationError, match="signature"):
        Binder(type)


def alike(a: int = 0, b: int = 1, /, c: int = 2, *rest: int, d: int = 3, **more: int) -> Any:
    return {"a": a, "b": b, "c": c, "rest": rest, "d": d}, more


@given(
    args=st.lists(st.integers(10, 19), max_size=5),
    kwargs=st.dictionaries(st.sampled_from(["d", "a", "a_", "rest", "amount", "x"]), st.integers(20, 29)),
    reserved=st.sampled_from([None, "amount"]),
    drop_first=st.booleans(),
    data=st.data(),
)
def test_rebinding(args: Any, kwargs: Any, reserved: Any, drop_first: bool, data: Any) -> None:
    """Bound again with some values replaced, a call has these under their names, and every other as it was."""
    # Python 3.11 itself refuses to bind a keyword called like a positional-only argument that is left out.
    assume(args or "a" not in kwargs)
    binder = Binder((lambda self, a=0, b=1, /, c=2, *rest, d=3, **more: None) if drop_first else alike)
    before = binder.bind(tuple(args), kwargs, drop_first=drop_first, reserved=reserved)
    names = data.draw(st.sets(st.sampled_from(sorted(before))))
    changes = {name: (90, 91) if name == "rest" else 99 for name in names}
    passed = dict(kwargs)
    new_args, new_kwargs = binder.rebind(
        tuple(args), kwargs, changes, drop_first=drop_first, reserved=reserved
    )
    after = binder.bind(new_args, new_kwargs, drop_first=drop_first, reserved=reserved)
    assert after == before | changes
    assert kwargs == passed


def test_rebinding_passes_what_was_passed() -> None:
    """Only what is changed is passed anew: defaults of others stay the function's own business."""
    binder = Binder(alike)
    assert binder.rebind((1,), {"d": 5}, {"a": 9}, drop_first=False, reserved=None) == ((9,), {"d": 5})
    assert binder.rebind((1,), {"x": 5}, {"x": 9}, drop_first=False, reserved=None) == ((1,), {"x": 9})


def annotated(a: list[int], b: Missing = 1, *rest: int, c: int = None, d=5, **more: float) -> Any: ...  # type: ignore[name-defined,assignment,no-untyped-def]  # noqa: F821, RUF013 - what cannot be read is tested


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("a", list[int]),
        ("b", UNKNOWN),
        ("rest", tuple[int, ...]),
        ("c", int | None),
        ("d", UNKNOWN),
        ("x", float),
    ],
)
def test_hints(name: str, hint: Any) -> None:
    """Annotations are read one by one; what cannot be read says nothing, a default of None allows None."""
    assert Binder(annotated).hint(name) == hint
