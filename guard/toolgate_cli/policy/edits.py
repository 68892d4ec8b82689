"""Changes of the text of a YAML file that keep all other text: comments, order, quotation marks and blank lines.

The positions of the values in the text come from the parser. A changed value is replaced, a removed one is deleted with its
lines and the comment directly above it, and a new one is inserted after the last value of its mapping or list.
"""

from collections.abc import Callable, Hashable
from typing import Any

from toolgate_cli.output import sanitize
from toolgate_cli.policy.documents import Document, DocumentError, parse_document
from toolgate_cli.policy.serializer import block_lines, inline, is_inline, item_lines, member_lines

#: returns a value that is equal for the two versions of one item of a list
Identity = Callable[[Any], Hashable]


def edit_document(document: Document, new: dict[str, Any], identity: Identity) -> str:
    """Return the text of a YAML document with the content `new`, in which unchanged parts are the same.

    Raises:
        DocumentError: The layout of the file does not allow the change, for example because it uses anchors.
    """
    edits = _Edits(document.text if document.text.endswith("\n") else f"{document.text}\n", identity)
    edits.change(document.root, document.value, new, None)
    text = edits.apply()
    try:
        is_complete = same(parse_document(document.path, text).value, new)
    except DocumentError:
        is_complete = False
    if not is_complete:
        raise DocumentError(
            f"cannot change {sanitize(document.path)} and keep its layout; replace its anchors and aliases by their values, "
            "or pull into a new file"
        )
    return text


class _Edits:
    """Edits of a text; each replaces the characters from one index to another."""

    def __init__(self, text: str, identity: Identity) -> None:
        self._text = text
        self._identity = identity
        self._edits: list[tuple[int, int, str]] = []

    def apply(self) -> str:
        """Return the text after all edits."""
        parts, position = [], 0
        # An insertion sorts before a deletion that begins at the same index. The order of insertions at one index is the
        # order in which they were made, from the innermost collection to the outermost.
        for start, end, replacement in sorted(self._edits, key=lambda edit: edit[:2]):
            parts += [self._text[position:start], replacement]
            position = end
        return "".join([*parts, self._text[position:]])

    def change(self, node: Any, old: Any, new: Any, key: Any) -> None:
        """Change the value of a node; `key` is the node of its key, or None for an item of a list."""
        if same(old, new):
            return
        is_block = not self._is_alias(node) and getattr(node, "flow_style", None) is False
        if is_block and new and isinstance(old, dict) and isinstance(new, dict) and {*old} & {*new}:
            self._change_mapping(node, old, new)
        elif is_block and isinstance(old, list) and isinstance(new, list) and self._is_mergeable(old, new):
            self._change_list(node, old, new)
        else:
            self._replace(node, new, key)

    def _change_mapping(self, node: Any, old: dict[str, Any], new: dict[str, Any]) -> None:
        following: list[Any] = [*(key for key, _ in node.value[1:]), None]
        for (key, member), next_key in zip(node.value, following, strict=True):
            if key.value in new:
                self.change(member, old[key.value], new[key.value], key)
            elif self._begins_line(key.start_mark.index):
                self._delete_lines(key.start_mark.index, self._end(member, key))
            elif next_key is not None:
                self._edits.append((key.start_mark.index, next_key.start_mark.index, ""))
        column = node.start_mark.column
        separator = [""] if self._has_blank_lines([key for key, _ in node.value], node) else []
        added = [(name, value) for name, value in new.items() if name not in old]
        lines = [line for name, value in added for line in (*separator, *member_lines(name, value))]
        self._insert_lines(self._end(node), lines, column, column or 1)

    def _change_list(self, node: Any, old: list[Any], new: list[Any]) -> None:
        by_identity = {self._identity(item): item for item in new}
        for item_node, item in zip(node.value, old, strict=True):
            identity = self._identity(item)
            if identity in by_identity:
                self.change(item_node, item, by_identity.pop(identity), None)
            else:
                self._delete_lines(
                    self._text.rindex("-", 0, item_node.start_mark.index), self._end(item_node)
                )
        separator = [""] if self._has_blank_lines(node.value, node) else []
        lines = [line for item in by_identity.values() for line in (*separator, *item_lines(item))]
        column = node.start_mark.column
        self._insert_lines(self._end(node), lines, column, column + 1)

    def _is_mergeable(self, old: list[Any], new: list[Any]) -> bool:
        """Return whether the items of `new` that are in `old` too have unique identities and the same order."""
        before, after = [*map(self._identity, old)], [*map(self._identity, new)]
        if len({*before}) != len(before) or len({*after}) != len(after):
            return False
        kept = [one for one in before if one in {*after}]
        return bool(kept) and after[: len(kept)] == kept

    def _replace(self, node: Any, new: Any, key: Any) -> None:
        end = self._end(node, key)
        if key is None:
            self._edits.append((node.start_mark.index, end, inline(new)))
            return
        start = self._text.index(":", key.end_mark.index) + 1
        if is_inline(new):
            self._edits.append((start, end, f" {inline(new)}"))
            return
        indent = " " * (key.start_mark.column + 2)
        self._edits.append((start, end, "".join(f"\n{indent}{line}" for line in block_lines(new))))

    def _insert_lines(self, end: int, lines: list[str], column: int, margin: int) -> None:
        """Insert lines below the line in which a value ends, and below comments that are indented by `margin` or more."""
        index = self._text.index("\n", end) + 1
        while (
            self._text.startswith("#", self._text_start(index)) and self._text_start(index) - index >= margin
        ):
            index = self._text.index("\n", index) + 1
        text = "".join(f"{' ' * column}{line}\n" if line else "\n" for line in lines)
        if text:
            self._edits.append((index, index, text))

    def _delete_lines(self, start: int, end: int) -> None:
        """Delete the lines from the start of a value to its end, and the comment directly above them."""
        first = self._text.rfind("\n", 0, start) + 1
        margin = self._text[first:start]
        while first:
            above = self._text.rfind("\n", 0, first - 1) + 1
            if not self._text[above:first].startswith(f"{margin}#"):
                break
            first = above
        last = self._text.index("\n", end) + 1
        if not self._text[last:].strip() or self._is_blank(last):
            # Do not leave two blank lines where the value was, or one at the end of the text.
            while first and self._is_blank(self._text.rfind("\n", 0, first - 1) + 1):
                first = self._text.rfind("\n", 0, first - 1) + 1
        self._edits.append((first, last, ""))

    def _is_alias(self, node: Any) -> bool:
        # No other value begins with this character.
        return self._text.startswith("*", node.start_mark.index)

    def _is_blank(self, start: int) -> bool:
        return start < len(self._text) and not self._text[start : self._text.index("\n", start)].strip()

    def _begins_line(self, index: int) -> bool:
        return not self._text[self._text.rfind("\n", 0, index) + 1 : index].strip()

    def _text_start(self, start: int) -> int:
        """Return the index of the first character of a line that is not a space."""
        while self._text.startswith(" ", start):
            start += 1
        return start

    def _has_blank_lines(self, nodes: list[Any], parent: Any) -> bool:
        """Return whether blank lines separate the keys or items `nodes` of a mapping or list."""
        ends = [
            self._end(one[1], one[0]) if isinstance(one, tuple) else self._end(one) for one in parent.value
        ]
        following = [node.start_mark.index for node in nodes[1:]]
        return any("\n\n" in self._text[end:start] for end, start in zip(ends, following, strict=False))

    def _end(self, node: Any, key: Any = None) -> int:
        """Return the index at which the text of a value ends; the parser ends blocks at the next value."""
        start: int = node.start_mark.index
        end: int = node.end_mark.index
        if not self._is_alias(node) and node.value:
            if getattr(node, "style", None) in {"|", ">"}:
                return start + len(self._text[start:end].rstrip())
            if not isinstance(node.value, str) and node.flow_style is False:
                last = node.value[-1]
                return self._end(last[1], last[0]) if isinstance(last, tuple) else self._end(last)
        if key is not None and start == end:
            # The parser reports the position after a comment for the empty value of `key:`.
            return self._text.index(":", key.end_mark.index) + 1
        return end


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal; unlike in Python, true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)
