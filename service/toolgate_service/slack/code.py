"""Text of others, made safe to show in Slack: all of it can be seen, and what Slack would read becomes text."""

import re

from toolgate_service.readable.characters import visible

#: What begins every line of a code block, and what ends the block: neither stands in a value. Nor do several spaces in
#: a row, with which a value could fill up a line and go on as if it were the next.
_OURS = re.compile("[`│]|(?<= ) +")


def in_code(text: object, *, quote: str = "") -> str:
    """Return a text as it may stand in a code block of ours: visible, on one line, and never the block's end."""
    return _OURS.sub(lambda found: "".join(map(_numbered, found.group())), visible(text, quote=quote))


def slack_escaped(text: str) -> str:
    """Write the three characters that Slack takes for the beginning of something else as it asks for them."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def span(text: object) -> str:
    """Return a text as code within a sentence: nothing in it is formatted, linked or addresses anybody."""
    return f"`{slack_escaped(in_code(text))}`"


def _numbered(char: str) -> str:
    return f"\\x{ord(char):02x}" if char.isascii() else f"\\u{ord(char):04x}"
