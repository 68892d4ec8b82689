"""The OpenAPI document and the wire format only grow: nothing of version 0.1 is removed or changed."""

import json
from collections.abc import Iterator
from pathlib import Path

from toolgate_service.api.app import ROUTERS
from toolgate_service.api.openapi import describe
from toolgate_service.core import strict_json

BEFORE = Path(__file__).with_name("data") / "openapi-0.1.json"
#: text for readers, which may be reworded
PROSE = frozenset({"description", "summary", "title", "version", "operationId"})


def differences(before: object, after: object, path: str = "") -> Iterator[str]:
    """Yield what of `before` is missing or different in `after`."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            if key in PROSE and isinstance(value, str):
                continue
            if key == "required" and path.endswith("/GrantTerms"):
                # Each term of this request has a second name, so that neither name is required any more.
                continue
            if key == "maxItems" and int(str(after.get(key, 0))) >= value:
                # A list that may be longer accepts all that it accepted before.
                continue
            if key not in after:
                yield f"{path}/{key} is gone"
            else:
                yield from differences(value, after[key], f"{path}/{key}")
    elif isinstance(before, list) and isinstance(after, list):
        missing = (value for value in before if all(any(differences(value, other)) for other in after))
        yield from (f"{path}: {value!r} is gone" for value in missing)
    elif before != after:
        yield f"{path}: {before!r} became {after!r}"


def test_openapi_document_of_the_first_version_still_holds() -> None:
    after = json.loads(strict_json.dumps(describe(ROUTERS)))
    assert not list(differences(json.loads(BEFORE.read_text()), after))


def test_removed_and_changed_parts_are_found() -> None:
    assert list(differences({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]})) == ["/a: {'b': 2} is gone"]
    assert not list(differences({"a": [1]}, {"a": [1, 2], "c": 3}))
