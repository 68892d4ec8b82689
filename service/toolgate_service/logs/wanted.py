"""A text that is looked for in the arguments of log entries: what a reader sees, and not how it is written down."""

import unicodedata
from collections.abc import Iterator
from json.encoder import encode_basestring

from toolgate_service import exact_json
from toolgate_service.exact_json import Json


class Wanted:
    """A text to be found in contexts.

    It is in a context when it is part of a member's name, of a text, or of a number, ``true``, ``false`` or ``null`` as
    JSON writes it: of one of them, not across two. Capitals and small letters are the same (Unicode's full case folding),
    and so are the ways to write one letter with its marks (NFC). Nothing in it has a meaning of its own.

    Args:
        text: literally.
    """

    def __init__(self, text: str) -> None:
        self._text = _folded(text)
        self._escaped = encode_basestring(self._text)[1:-1]

    def is_in(self, context: str | None) -> bool:
        """Say whether it is in a context, given by its canonical text."""
        if context is None or not self._may_be_in(context):
            return False
        return any(self._text in _folded(said) for said in _said(exact_json.loads_own(context)))

    def _may_be_in(self, context: str) -> bool:
        # Most contexts are ruled out by their text as it is stored, which is a tenth of the work of reading it.
        if context.isascii():
            return self._escaped in context.lower()
        # A mark behind an escape would become one letter with it.
        return "\\" in context or self._text in _folded(context)


def _folded(text: str) -> str:
    return text.lower() if text.isascii() else unicodedata.normalize("NFC", text.casefold())


def _said(value: Json) -> Iterator[str]:
    """Yield every name, text, number and word of a context."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            yield from one
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)
        else:
            yield exact_json.dumps(one)
