"""Every sentence of the specification and the decisions has tests, named in a table."""

import re
from collections import Counter
from itertools import zip_longest

import pytest
from support.collected import collected
from support.sentences import DOCUMENTS, Row, sentences, table

#: maximum number of sentences for one test
MOST = 3
#: maximum number of tests for one sentence; a decision may be a list of rules
MOST_NAMED = {"specification": 4, "decisions": 8}
#: number of sections of the decisions
SECTIONS = 13
#: topics that are not implemented, or not part of the gateway
LATER = ("metrics", "replicas", "SDK", "console")
#: maximum number of sentences without a rule, such as introductions
NO_RULE = 25

OPEN = re.compile(r"not defined?\b")
CURE = f"""write into the last column 1 to {{most}} tests, `service/…/test_x.py::test_y` or `…::test_y[case]`, with <br>
between them, and `later: …` for a part that is not built; or instead `settled by decisions §1…{SECTIONS}` for what the specification does not define;
`later: {"|".join(LATER)}`; or `no rule: …`, and why"""


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_sentence_has_a_row(document: str) -> None:
    """The table contains all sentences of the document, in order, and nothing else."""
    pairs = zip_longest(sentences(document), [row.sentence for row in table(document)])
    for sentence, named in pairs:
        assert sentence == named, (
            f"tests/service/sentences/{document}.md differs from the pages of the {document}.\nPages:\n"
            f"  {sentence}\nTable:\n  {named}\nCopy the sentence into the table, with the tests of what it requires now."
        )


def test_every_row_is_held() -> None:
    """Each sentence has tests that exist, or a reason why it has none."""
    rows = {document: table(document) for document in DOCUMENTS}
    there = collected({name for document in DOCUMENTS for row in rows[document] for name in row.tests})
    for document in DOCUMENTS:
        most = MOST_NAMED[document]
        unheld = [f"{row.sentence} {what}" for row in rows[document] if (what := _wrong(row, there, most))]
        assert unheld == [], (
            f"tests/service/sentences/{document}.md: {CURE.format(most=most)}:\n" + "\n".join(unheld)
        )


def test_no_test_stands_for_too_many() -> None:
    """One test is named for at most three sentences."""
    rows = [row for document in DOCUMENTS for row in table(document)]
    counted = Counter(name for row in rows for name in row.tests)
    too_many = {name: count for name, count in counted.items() if count > MOST}
    assert too_many == {}, "write separate tests for some of these sentences"


def test_few_sentences_rule_nothing() -> None:
    """Few sentences contain no rule."""
    rows = [row for document in DOCUMENTS for row in table(document)]
    nothing = [str(row.sentence) for row in rows if row.instead.startswith("no rule: ")]
    assert len(nothing) <= NO_RULE, "too many sentences without tests:\n" + "\n".join(nothing)


def _wrong(row: Row, there: frozenset[str], most: int) -> str:
    """Return the error of a row; an empty string if it is valid."""
    if (row.instead or not row.tests) and not _excused(row):
        return f"says {row.instead!r}"
    if len(set(row.tests)) != len(row.tests) or len(row.tests) > most:
        return f"names {len(row.tests)} tests: {', '.join(row.tests)}"
    missing = [name for name in row.tests if name not in there]
    return f"names what does not exist: {', '.join(missing)}" if missing else ""


def _excused(row: Row) -> bool:
    text, instead = row.sentence.text, row.instead
    if settled := re.fullmatch(r"settled by decisions §(\d+)", instead):
        return 1 <= int(settled[1]) <= SECTIONS and OPEN.search(text) is not None
    if later := re.fullmatch(r"later: (\w+)", instead):
        return later[1] in LATER
    return re.fullmatch(r"no rule: .{10,}", instead) is not None
