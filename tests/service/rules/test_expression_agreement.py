"""Comparison of the results with those of `cel-python`, an independent implementation."""

from collections import Counter

import pytest
from support.cel_generator import Generator, Reference

from toolgate_service.rules.expressions import compile_expression


def _compare(pairs: int, seed: int) -> Counter[bool | None]:
    """Evaluate generated pairs with both engines, and return the number of each result.

    No result of ours never makes a rule more lenient, so only True and False must agree. In a quarter of the contexts, some
    arguments have another type than the expression expects. There, an error of `cel-python` is no disagreement: it raises one
    for comparisons of different types, which CEL defines and `test_expressions.py` tests.
    """
    generator, reference = Generator(seed), Reference()
    results: Counter[bool | None] = Counter()
    for number in range(pairs):
        text = generator.boolean()
        with_other_types = number % 4 == 0
        variables = generator.variables(with_other_types=with_other_types)
        result = compile_expression(text).evaluate(variables)
        results[result] += 1
        if result is None:
            continue
        expected = reference.evaluate(text, variables)
        if expected is None and with_other_types:
            continue
        assert result is expected, (text, variables)
    return results


@pytest.mark.filterwarnings("ignore")
def test_results_agree_with_an_independent_engine() -> None:
    results = _compare(500, seed=1)
    assert results[True] > 100
    assert results[False] > 100
    assert results[None] > 10


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(2, 6))
def test_results_of_20000_pairs_agree_with_an_independent_engine(seed: int) -> None:
    results = _compare(5_000, seed=seed)
    assert results[None] < 1_000
