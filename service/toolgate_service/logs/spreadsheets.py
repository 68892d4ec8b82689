"""Cells of CSV that no spreadsheet takes for a formula, whatever it takes for the delimiter."""

import re

#: what a spreadsheet takes for the beginning of a formula, also in its full-width form
_SIGN = r"[=+\-@\uff1d\uff0b\uff0d\uff20]"
#: what a spreadsheet skips before it: white space, control characters, quotes and characters without width
_SKIPPED = r"\s\"\x00-\x1f\x7f\u0085\u00ad\u200b-\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff"
#: what begins a new cell or row for a reader with another delimiter
_BREAKS = r";,|\t\r\n\x0b\x0c\x1c-\x1e\u0085\u2028\u2029"

_START = re.compile(rf"[\t\r]|[{_SKIPPED}]*+{_SIGN}")
# Each run of such characters is consumed once, also where no sign follows: the time stays linear.
_RUN = re.compile(rf"([{_SKIPPED}{_BREAKS}]++)({_SIGN})?")
_RUN_IN_STRING = re.compile(
    rf"(\A(?:[{_SKIPPED}{_BREAKS}]|\\[nrt\"])*+|(?:[{_SKIPPED}{_BREAKS}]|\\[nrt\"])++)({_SIGN})?"
)
_LAST_BREAK = re.compile(rf"[{_BREAKS}](?=[^{_BREAKS}]*+\Z)")
_BREAK_IN_STRING = re.compile(rf"[{_BREAKS}]|\\[nrt]")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"')


def text_cell(text: str) -> str:
    """Return a text with an apostrophe before whatever could be read as a formula.

    Spreadsheets and other tools read files with ``;``, ``|`` or tabs as delimiters too, where quotes do not protect a
    cell that was written for commas.
    """
    guarded = _RUN.sub(_separated, text)
    return f"'{guarded}" if _START.match(guarded) else guarded


def json_cell(text: str) -> str:
    """Return JSON text with such signs in its strings as escape sequences: it stays the same JSON."""
    return _STRING.sub(lambda found: f'"{_RUN_IN_STRING.sub(_escaped, found[0][1:-1])}"', text)


def _separated(found: re.Match[str]) -> str:
    run, sign = found.groups()
    last = _LAST_BREAK.search(run) if sign else None
    return found[0] if last is None else f"{run[: last.end()]}'{run[last.end() :]}{sign}"


def _escaped(found: re.Match[str]) -> str:
    run, sign = found.groups()
    begins = found.start() == 0 or _BREAK_IN_STRING.search(run)
    return f"{run}\\u{ord(sign):04x}" if sign and begins else found[0]
