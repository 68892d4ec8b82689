"""Texts use the project's terms: `support.wording` lists the words to avoid."""

from pathlib import Path

import pytest
from support.wording import ROOT, Finding, check, check_text, files


def found(path: str, text: str) -> list[tuple[int, str]]:
    return [(each.line, each.word) for each in check_text(path, text)]


def test_texts_use_the_terms_of_the_project() -> None:
    checked = files()
    assert {path.suffix for path in checked} == {".py", ".md", ".html"}
    assert [str(finding) for path in checked for finding in check(path)] == []


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("page.md", "# Page\n\nThe call waits until\nsomebody decides.", [(4, "somebody")]),
        ("page.md", "An approval lets the call\nthrough.", [(1, "lets the call through")]),
        ("page.md", "The approval let it\nthrough.", [(1, "let it through")]),
        ("a.py", "x = 1\n\n# The request is asked for\n# anew.", [(4, "anew")]),
        ("a.py", "x = 1\n# It was let\n# through.", [(2, "let through")]),
        ("a.py", 'def f():\n    """Return it.\n\n    It is no number.\n    """', [(4, "is no number")]),
        ("a.py", 'raise ValueError(f"{x!r} is no time")', [(1, "is no time")]),
        ("a.py", 'class A:\n    """What is measured."""', [(2, "What")]),
        ("a.py", 'async def f():\n    """As `g`."""', [(2, "As")]),
        ("a.html", '<p class="deeds">\n{# none #}<b>Switch off</b>', [(2, "Switch off")]),
        ("a.html", '<p>{{ "switched off" if x else "on" }}</p>', [(1, "switched off")]),
        ("a.html", '<input placeholder="somebody">', [(1, "somebody")]),
    ],
)
def test_avoided_words_are_found(path: str, text: str, expected: list[tuple[int, str]]) -> None:
    assert found(path, text) == expected


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "page.md",
            "Send it in the POST body. There is no limit. It is no longer used. The card was declined.",
        ),
        ("page.md", "`nobody` and [a link](somebody.md)\n\n```python\nhouse = somebody\n```\n"),
        (
            "page.md",
            "Capital letters, housekeeping jobs and a person who reads the code.",
        ),
        ("a.py", 'STATUS = "declined"  # The status of the payment.\n'),
        ("a.py", 'QUERY = "SELECT beaten_at FROM heartbeats"'),
        ("a.py", 'def is_open():\n    """Return True if the request is pending."""'),
        ("a.html", '{% set nobody = 1 %}<p class="room" id="house">{{ deeds(card) }}</p>'),
    ],
)
def test_other_texts_are_accepted(path: str, text: str) -> None:
    assert found(path, text) == []


def test_finding_names_file_line_word_and_term() -> None:
    [finding] = check_text("docs/page.md", "\nThe agent is switched off.")
    assert finding == Finding("docs/page.md", 2, "switched off", "enable, disable")
    assert str(finding) == "docs/page.md:2: 'switched off' → enable, disable"


def test_paths_are_relative_to_the_repository() -> None:
    assert check(ROOT / "tests" / "test_wording.py") != []
    assert {Path(each.path) for each in check(ROOT / "tests" / "test_wording.py")} == {
        Path("tests/test_wording.py")
    }
