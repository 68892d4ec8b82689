"""The page about the formats of the log contains the columns that the digests cover."""

import re

import pytest
from support.readme import section

from toolgate_service.transparency.leaves import APPROVAL_COLUMNS, COLUMNS

PAGE = "docs/internals/transparency-formats.md"
ROWS = {
    subject: re.findall(r"`(\w+)`", columns)
    for subject, columns in re.findall(r"^\| (.+?) \| (.+?) \|$", section(PAGE, "Digests"), re.MULTILINE)
}
PENDING, APPROVED, ENDED = (
    ROWS[f"`approval`, {states}"] for states in ("`pending`", "`approved`", "other states")
)


@pytest.mark.parametrize("kind", COLUMNS)
def test_page_contains_the_columns_of_each_kind(kind: str) -> None:
    assert tuple(ROWS[f"`{kind}`"]) == COLUMNS[kind]


@pytest.mark.parametrize("state", APPROVAL_COLUMNS)
def test_page_contains_the_columns_of_each_state_of_an_approval_request(state: str) -> None:
    earlier = {"pending": [], "approved": PENDING}.get(state, PENDING + APPROVED[1:])
    own = {"pending": PENDING, "approved": APPROVED[1:]}.get(state, ENDED[1:])
    assert tuple(sorted(earlier + own)) == APPROVAL_COLUMNS[state]
