"""Every sentence of the specification, and every decision, is held by a test that can be named."""

import re
from collections import Counter
from itertools import zip_longest

import pytest
from support.collected import collected
from support.sentences import DOCUMENTS, Row, sentences, table

#: how many sentences one test may stand for
MOST = 3
#: how many tests one sentence may name; of the decisions many a one is a list of rules
MOST_NAMED = {"specification": 4, "decisions": 8}
#: the last section of decisions.md
SECTIONS = 13
#: what the gateway does not do yet, or what is not the gateway's
LATER = ("metrics", "replicas", "SDK", "console")
#: sentences that introduce, point elsewhere or name things, and rule nothing
NO_RULE = 25

OPEN = re.compile(r"not (shown|given|listed)")
CURE = f"""write into the last column 1 to {{most}} tests, `service/…/test_x.py::test_y` or `…::test_y[case]`, with <br>
between them, and `later: …` for a part that is not built; or instead `settled by decisions §1…{SECTIONS}` for what the sentence says is not shown, given or listed;
`later: {"|".join(LATER)}`; or `no rule: …`, and why"""


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_sentence_has_a_row(document: str) -> None:
    """The table names the document's sentences, all of them, in their order, and nothing else."""
    pairs = zip_longest(sentences(document), [row.sentence for row in table(document)])
    for sentence, named in pairs:
        assert sentence == named, (
            f"docs/internals/{document}.md and tests/service/sentences/{document}.md go apart here.\nThe document says:\n"
            f"  {sentence}\nwhere the table has:\n  {named}\nWrite the sentence into the table as the document "
            "has it, in its place, and beside it the tests that hold what it says now."
        )


def test_every_row_is_held() -> None:
    """Beside each sentence stand tests that exist, or a word why there is none."""
    rows = {document: table(document) for document in DOCUMENTS}
    there = collected({name for document in DOCUMENTS for row in rows[document] for name in row.tests})
    for document in DOCUMENTS:
        most = MOST_NAMED[document]
        unheld = [f"{row.sentence} {what}" for row in rows[document] if (what := _wrong(row, there, most))]
        assert unheld == [], f"docs/internals/{document}.md: {CURE.format(most=most)}:\n" + "\n".join(unheld)


def test_no_test_stands_for_too_many() -> None:
    """One test holds three sentences at most."""
    rows = [row for document in DOCUMENTS for row in table(document)]
    counted = Counter(name for row in rows for name in row.tests)
    too_many = {name: count for name, count in counted.items() if count > MOST}
    assert too_many == {}, "write tests of their own for some of the sentences that these stand for"


def test_few_sentences_rule_nothing() -> None:
    """Most sentences are rules; the others are few."""
    rows = [row for document in DOCUMENTS for row in table(document)]
    nothing = [str(row.sentence) for row in rows if row.instead.startswith("no rule: ")]
    assert len(nothing) <= NO_RULE, "one of these does rule something:\n" + "\n".join(nothing)


def _wrong(row: Row, there: frozenset[str], most: int) -> str:
    """Say what is wrong with a row; nothing if nothing is."""
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
