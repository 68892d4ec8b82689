"""Parser for policy documents in YAML or JSON, which returns exact numbers.

Only the part of YAML 1.2 that corresponds to JSON is accepted: maps with text keys, lists, texts, decimal numbers,
booleans and null. Aliases are rejected, because a short text with nested aliases can stand for a very large document.
"""

from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

from toolgate_service.core import strict_json
from toolgate_service.core.errors import FieldErrors
from toolgate_service.core.schemas import field_messages
from toolgate_service.core.strict_json import Json
from toolgate_service.policies.document import PolicyDocument

#: name of the field in errors that concern the text and not a single field of the document
FIELD = "policy"
#: maximum number of nested lists and maps
MAX_DEPTH = 32

_TAG = "tag:yaml.org,2002:"
#: YAML tags whose values become texts: strings, and times, for which JSON has no type
_TEXTS = frozenset({f"{_TAG}str", f"{_TAG}timestamp"})
_NUMBERS = frozenset({f"{_TAG}int", f"{_TAG}float"})


def parse_policy(text: str) -> PolicyDocument:
    """Return the policy document in a text in YAML or JSON. The document is not verified.

    Raises:
        FieldErrors: The text is not valid YAML or JSON, or fields of the document are missing or invalid.
    """
    value = _parse(text)
    if not isinstance(value, dict):
        raise _error("must be a map with the fields version, agents, rules and budgets")
    try:
        return PolicyDocument.model_validate(value)
    except ValidationError as error:
        raise FieldErrors(field_messages(error.errors())) from None


def _parse(text: str) -> Json:
    if "\0" in text:
        raise _error("contains the NUL character: remove it")
    parser = YAML(typ="safe", pure=True)
    try:
        # Compose the nodes without constructing Python objects, because the constructor would convert decimal numbers
        # to inexact binary floats.
        root = parser.compose(text)
        return None if root is None else _Reader().read(root, 0)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        raise _error(reason if mark is None else f"{_place(mark)}: {reason}") from None
    except YAMLError as error:
        raise _error(str(error).splitlines()[0]) from None
    except RecursionError:
        raise _error("is nested too deeply") from None


class _Reader:
    """Converter of the nodes of one document to JSON values."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def read(self, node: Any, depth: int) -> Json:
        """Return the JSON value of a YAML node.

        Raises:
            FieldErrors: The node has no corresponding value in JSON.
        """
        if id(node) in self._seen:
            raise _at(node, "aliases are not supported: repeat the value")
        self._seen.add(id(node))
        if depth > MAX_DEPTH:
            raise _at(node, f"lists and maps must not be nested deeper than {MAX_DEPTH} levels")
        tag = str(node.tag)
        if isinstance(node, MappingNode) and tag == f"{_TAG}map":
            return self._read_map(node, depth)
        if isinstance(node, SequenceNode) and tag == f"{_TAG}seq":
            return [self.read(item, depth + 1) for item in node.value]
        if isinstance(node, ScalarNode):
            return _read_scalar(node, tag)
        raise _at(node, f"the tag {tag!r} is not supported: remove it")

    def _read_map(self, node: Any, depth: int) -> dict[str, Json]:
        members: dict[str, Json] = {}
        for key, value in node.value:
            if str(key.tag) not in _TEXTS:
                raise _at(key, "keys must be texts: write the key in quotation marks")
            if key.value in members:
                raise _at(key, f"the key {key.value[:100]!r} appears more than once: keep one of them")
            members[key.value] = self.read(value, depth + 1)
        return members


def _read_scalar(node: Any, tag: str) -> Json:
    text: str = node.value
    if tag in _TEXTS:
        return text
    if tag == f"{_TAG}null":
        return None
    if tag == f"{_TAG}bool" and text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if tag in _NUMBERS:
        try:
            return strict_json.loads(text.encode())
        except strict_json.InvalidJson:
            message = (
                f"{text[:40]!r} is not a valid number: write a number such as 10 or 0.5, or a text in quotation "
                "marks"
            )
            raise _at(node, message) from None
    raise _at(node, f"{text[:40]!r} is not supported: write texts in quotation marks")


def _at(node: Any, message: str) -> FieldErrors:
    return _error(f"{_place(node.start_mark)}: {message}")


def _place(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"


def _error(message: str) -> FieldErrors:
    return FieldErrors({FIELD: [message]})
