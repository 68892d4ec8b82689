"""Policy files and files with test cases: YAML or JSON, with the position of each value for error messages.

Numbers are exact: a number with a fraction becomes a `Decimal`. Only values that JSON can represent are accepted, so that a
document has the same meaning for every YAML parser. Dates are strings.
"""

import copy
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolgate._capture.jsontext import loads, read_decimal
from toolgate_cli.output import sanitize

#: maximum bytes of a file
MAX_FILE: Final = 4 * 1024 * 1024
#: maximum number of values in a file, including the values that aliases repeat
MAX_VALUES: Final = 500_000
MAX_DEPTH: Final = 64

_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_TAG: Final = "tag:yaml.org,2002:"
_TEXT_TAGS: Final = frozenset({f"{_TAG}str", f"{_TAG}timestamp"})
_NUMBER_TAGS: Final = frozenset({f"{_TAG}int", f"{_TAG}float"})
_WORDS: Final = {"true": True, "false": False}


class DocumentError(Exception):
    """Raised if a file cannot be read or written; the message begins with its name and is safe to print."""


@dataclass(frozen=True)
class Document:
    """Content of a file.

    Attributes:
        path: Path of the file, as the user wrote it.
        text: Text of the file, with line feeds as line breaks.
        value: Content as values of JSON.
        root: Tree of the YAML nodes; None for an empty file, and for a JSON file that is not valid YAML.
        has_crlf: True if the lines of the file end with carriage return and line feed.
    """

    path: Path
    text: str
    value: Any
    root: Any
    has_crlf: bool = False

    def describe(self, problems: Mapping[str, Sequence[str]]) -> list[str]:
        """Return problems of fields as lines such as `policy.yaml:12:5: rules.0.when: …`, in the order of the file."""
        found = [
            (self._position(field), f"{sanitize(field)}: {sanitize(message)}" if field else sanitize(message))
            for field, messages in problems.items()
            for message in messages
        ]
        return [f"{_place(self.path, position)}: {line}" for position, line in sorted(found)]

    def _position(self, field: str) -> tuple[int, int]:
        node, position = self.root, (0, 0)
        for part in field.split("."):
            if node is None:
                break
            found = next((one for one in _members(node) if one[0] == part), None)
            if found is None:
                break
            _, mark, node = found
            position = (mark.line + 1, mark.column + 1)
        return position

    @property
    def is_json(self) -> bool:
        """True for a JSON file, which has no comments."""
        return self.path.suffix == ".json"


def load_document(path: Path) -> Document:
    """Read a YAML file, or a JSON file if its name ends with `.json`.

    Raises:
        DocumentError: The file cannot be read, or its content is invalid.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE + 1)
    except OSError as error:
        raise DocumentError(f"cannot read {sanitize(path)}: {error.strerror}") from None
    if len(content) > MAX_FILE:
        raise DocumentError(f"{sanitize(path)} has more than {MAX_FILE:,} bytes")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError(
            f"{sanitize(path)} is not UTF-8: invalid byte at position {error.start}"
        ) from None
    return parse_document(path, text.replace("\r\n", "\n"), has_crlf="\r\n" in text)


def parse_document(path: Path, text: str, *, has_crlf: bool = False) -> Document:
    """Return the document with this text; `path` selects the format, and is part of error messages.

    Raises:
        DocumentError: The text is invalid.
    """
    if path.suffix == ".json":
        try:
            value = loads(text, exactly=True)
        except (ValueError, RecursionError) as error:
            raise DocumentError(f"{sanitize(path)} is not valid JSON: {sanitize(error)}") from None
        # Most JSON is YAML too. The tree only serves for positions in messages.
        with suppress(DocumentError):
            return Document(path, text, value, _compose(path, text), has_crlf)
        return Document(path, text, value, None, has_crlf)
    root = _compose(path, text)
    return Document(path, text, _Reader(path).read(root), root, has_crlf)


def write_file(path: Path, text: str, *, has_crlf: bool = False) -> None:
    """Replace the content of a file at once, so that no reader finds a part of it.

    Raises:
        DocumentError: The file cannot be written.
    """
    target = Path(os.path.realpath(path))
    content = (text.replace("\n", "\r\n") if has_crlf else text).encode()
    try:
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
            temporary.chmod(mode)
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise DocumentError(f"cannot write {sanitize(path)}: {error.strerror}") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _compose(path: Path, text: str) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.composer import Composer
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.events import AliasEvent

    class PositionComposer(Composer):
        """Composer that returns for an alias a copy of the node with the position of the alias."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            event = self.parser.peek_event()
            node = super().compose_node(parent, index)
            if not isinstance(event, AliasEvent):
                return node
            node = copy.copy(node)
            node.start_mark, node.end_mark = event.start_mark, event.end_mark
            return node

    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = PositionComposer
    # A repeated key is reported with its position by `_Reader`.
    yaml.allow_duplicate_keys = True
    try:
        return yaml.compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (0, 0) if mark is None else (mark.line + 1, mark.column + 1)
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        raise DocumentError(f"{_place(path, place)}: {sanitize(reason)}{_hint(reason)}") from None
    except YAMLError as error:
        raise DocumentError(
            f"{sanitize(path)} is not valid YAML: {sanitize(str(error).splitlines()[0])}"
        ) from None
    except RecursionError:
        raise DocumentError(f"{sanitize(path)} is nested too deeply") from None


def _hint(reason: str) -> str:
    """Return how to fix a frequent YAML error, to append to its message."""
    if "block end" in reason or "mapping values are not allowed" in reason:
        return "; check the indentation of this line and of the lines before it"
    if "tag" in reason or "cannot start any token" in reason or "alias" in reason:
        return "; write the value in quotation marks"
    return ""


class _Reader:
    """Converts the nodes of a file to values."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = 0

    def read(self, node: Any, depth: int = 0) -> Any:
        from ruamel.yaml.nodes import MappingNode, SequenceNode

        if node is None:
            return None
        self._count += 1
        if self._count > MAX_VALUES:
            self._refuse(node, f"the file has more than {MAX_VALUES:,} values")
        if depth > MAX_DEPTH:
            self._refuse(node, f"the file has more than {MAX_DEPTH} nested levels")
        if isinstance(node, MappingNode):
            self._accept(node, {f"{_TAG}map"})
            return self._mapping(node, depth)
        if isinstance(node, SequenceNode):
            self._accept(node, {f"{_TAG}seq"})
            return [self.read(item, depth + 1) for item in node.value]
        return self._scalar(node)

    def _mapping(self, node: Any, depth: int) -> dict[str, Any]:
        value: dict[str, Any] = {}
        for key, member in node.value:
            if str(key.tag) == f"{_TAG}merge":
                self._refuse(key, "merge keys (<<) are not supported; repeat the fields")
            if str(key.tag) not in _TEXT_TAGS:
                self._refuse(key, "keys must be strings; write the key in quotation marks")
            if key.value in value:
                self._refuse(key, f"duplicate key {key.value!r}; keep one of them")
            value[key.value] = self.read(member, depth + 1)
        return value

    def _scalar(self, node: Any) -> Any:
        tag, text = str(node.tag), node.value
        if tag in _TEXT_TAGS:
            return text
        if tag in _NUMBER_TAGS:
            return self._number(node, text)
        if tag == f"{_TAG}null":
            return None
        if tag == f"{_TAG}bool" and text.lower() in _WORDS:
            return _WORDS[text.lower()]
        return self._refuse(node, f"unsupported value {text[:40]!r}; write text in quotation marks")

    def _number(self, node: Any, text: str) -> Any:
        if _NUMBER.fullmatch(text) is None:
            self._refuse(
                node,
                (
                    f"{text[:40]!r} is not a valid number; write a number such as 10 or 0.5, or text in "
                    "quotation marks"
                ),
            )
        try:
            return read_decimal(text) if set(text) & set(".eE") else int(text)
        except ValueError:
            return self._refuse(node, "the number has too many digits")

    def _accept(self, node: Any, tags: set[str]) -> None:
        if str(node.tag) not in tags:
            self._refuse(node, f"unsupported tag {str(node.tag)!r}; remove it")

    def _refuse(self, node: Any, message: str) -> Any:
        mark = node.start_mark
        raise DocumentError(f"{_place(self._path, (mark.line + 1, mark.column + 1))}: {sanitize(message)}")


def _members(node: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, the position and the value of each member of a mapping or a sequence."""
    if isinstance(node.value, str):
        return
    for index, member in enumerate(node.value):
        if isinstance(member, tuple):
            yield member[0].value, member[0].start_mark, member[1]
        else:
            yield str(index), member.start_mark, member


def _place(path: Path, position: tuple[int, int]) -> str:
    line, column = position
    return sanitize(path) if position == (0, 0) else f"{sanitize(path)}:{line}:{column}"
