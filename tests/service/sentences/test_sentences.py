"""Every sentence of the specification, and every decision, is held by a test that can be named."""

import re
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest
from support.readme import ROOT
from support.sentences import DOCUMENTS, Row, sentences, table

#: how many sentences one test may stand for
MOST = 3
#: what the gateway does not do yet, or what is not the gateway's
LATER = ("webhooks", "quorum", "edits", "metrics", "replicas", "SDK", "console", "Slack")
#: sentences that introduce, point elsewhere or name things, and rule nothing
NO_RULE = 25


@cache
def collected() -> frozenset[str]:
    """Return every test there is, cases included, as the tables name them."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    ids = [line.removeprefix("tests/") for line in listed.stdout.splitlines() if "::" in line]
    return frozenset(ids) | {name.partition("[")[0] for name in ids}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_sentence_has_a_row(document: str) -> None:
    """The table names the document's sentences, all of them, in their order, and nothing else."""
    assert [row.sentence for row in table(document)] == sentences(document)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_row_is_held(document: str) -> None:
    """Beside each sentence stand tests that exist, or a word why there is none."""
    unheld = [
        f"{row.sentence.text!r}: {name!r}"
        for row in table(document)
        for name in (row.tests or (row.instead,))
        if not (name in collected() if row.tests else _excused(row))
    ]
    assert unheld == []


def test_no_test_stands_for_too_many() -> None:
    """One test holds three sentences at most."""
    rows = [row for document in DOCUMENTS for row in table(document)]
    counted = Counter(name for row in rows for name in row.tests)
    assert {name: count for name, count in counted.items() if count > MOST} == {}


def test_few_sentences_rule_nothing() -> None:
    """Most sentences are rules; the others are few."""
    rows = [row for document in DOCUMENTS for row in table(document)]
    assert sum(row.instead.startswith("no rule: ") for row in rows) <= NO_RULE


def _excused(row: Row) -> bool:
    text, instead = row.sentence.text, row.instead
    if settled := re.fullmatch(r"settled by decisions §(\d+)", instead):
        return int(settled[1]) <= 13 and re.search(r"not (shown|given|listed)", text) is not None
    if later := re.fullmatch(r"later: (\w+)", instead):
        return later[1] in LATER
    return re.fullmatch(r"no rule: .{10,}", instead) is not None
