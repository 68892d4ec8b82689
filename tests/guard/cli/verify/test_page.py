"""The reference of the guarantees of `toolgate verify`, held to the code."""

from support.guarantee_table import PAGE, with_table

from toolgate_cli.verify.registry import load_guarantees

#: number of guarantees that the command must test at least
ENOUGH = 45


def test_table_of_the_page_contains_all_guarantees() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_table(page) == page, "run: PYTHONPATH=tests python -m support.guarantee_table"


def test_each_guarantee_supports_a_requirement() -> None:
    found = load_guarantees()
    assert len(found) >= ENOUGH
    for one in found:
        assert one.aisvs, one.id
