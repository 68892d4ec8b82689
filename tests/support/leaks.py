"""Secrets that must stand in no output: every test's standard error and log records, its gateways' included, are read for them.

A gateway's standard error is this process's. What pytest captured of it belongs to the phase of a test in which it was
said, or to the next one's: whichever it is, the run fails there. What a gateway prints is read when it has ended.
"""

import os
import re
from collections.abc import Iterable, Iterator
from typing import TextIO

import pytest

#: what is said of a test beside this was said to be read: a key that a command shows, for instance
SECTIONS = ("stderr", "log")
#: a test that writes secrets there on purpose, to see them found
MARK = "leaks"
#: begins whatever a test puts where no log may repeat it: a context, a note, a description
CANARY = "canary-of-the-tests"

#: the forms of secrets, whoever's they are
_FORMS = {
    "an API key": r"\b(?:ak_[a-z0-9]{37}|test_[a-z0-9]{35})\b",
    "a token": r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}",
    "a webhook's secret": r"\bwhsec_[A-Za-z0-9+/=]{16,}",
    "a password's hash": r"\$argon2\w*\$",
    "a link that works once": r"#token=[\w%-]{16,}",
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "a password in a URL": r"\b[a-z][a-z0-9+.-]*://[^\s:/@'\"]*:(?!\*{3}@|…@|\[redacted(?: \d+)?\]@|\\u2026@|PASSWORD@)[^\s/@'\"]+@",
    "a credential's header": (
        r"(?i:\bx-api-key|\bauthorization)['\"]?\s*[:=,]\s*b?['\"]?(?:[Bb]earer\s+)?(?!\.\.\.|…)[\w.-]{12,}"
    ),
    "what a test marked": re.escape(CANARY),
}
_FORM = re.compile("|".join(f"(?P<f{number}>{form})" for number, form in enumerate(_FORMS.values())))


class Known:
    """Words that are secret without looking so: what tests give their gateways and their people."""

    def __init__(self) -> None:
        # What tests write into addresses of databases and mail servers.
        self._words = {"hunter2", "hush-hush"}

    def learn(self, *words: str) -> None:
        """Look for these too, from now on."""
        self._words |= set(words)

    def within(self, text: str) -> Iterator[str]:
        """Yield which of them stand in a text."""
        yield from (word for word in self._words if word in text)


KNOWN = Known()


def leaks(text: str) -> list[str]:
    """Return what secrets stand in a text: of what kind, and in which line, the secret itself taken out."""
    found = [
        f"a secret of the tests: {_line(text, text.index(word), len(word))}" for word in KNOWN.within(text)
    ]
    for match in _FORM.finditer(text):
        kind = list(_FORMS)[int((match.lastgroup or "f0")[1:])]
        found.append(f"{kind}: {_line(text, match.start(), len(match[0]))}")
    return found


def assert_none(text: str) -> None:
    """Fail if a secret stands in a text."""
    found = leaks(text)
    assert not found, "said in an output:\n" + "\n".join(found[:10])


def printed(output: TextIO) -> str:
    """Return what a process that has ended printed and nobody read, and close the pipe."""
    with output:
        # A child of it may live on and hold the pipe.
        os.set_blocking(output.fileno(), False)
        try:
            return output.read()
        except TypeError:
            # Python's word for nothing there just now.
            return ""


def judge(report: pytest.TestReport, *, on_purpose: bool) -> None:
    """Fail a phase of a test in which a secret was said.

    Args:
        report: of the phase, with what was captured in it.
        on_purpose: the test bears the mark.
    """
    found = [] if on_purpose else [*_said(report.sections, report.when or "")]
    if found and report.outcome == "passed":
        report.outcome = "failed"
        report.longrepr = "secrets in what was said meanwhile, by this test or a gateway:\n" + "\n".join(
            found[:10]
        )


def _said(sections: Iterable[tuple[str, str]], when: str) -> Iterator[str]:
    wanted = {f"Captured {name} {when}" for name in SECTIONS}
    for name, text in sections:
        if name in wanted:
            yield from leaks(text)


def _line(text: str, start: int, length: int) -> str:
    begin = text.rfind("\n", 0, start) + 1
    end = text.find("\n", start + length)
    after = text[start + length : end if end >= 0 else None]
    return f"{text[begin:start][-200:]}[…]{after[:100]}"
