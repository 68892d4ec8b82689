"""The reference page of the HTTP API's endpoints, from the OpenAPI document."""

from collections import defaultdict
from typing import Any

from toolgate_service.api.app import ROUTERS
from toolgate_service.api.openapi import TAGS, describe

HEAD = """\
# HTTP endpoints

Generated from the OpenAPI document, which every gateway serves at `/openapi.json`, and as a page with all fields at `/docs`.
[HTTP API](http-api.md) describes what all endpoints have in common.
"""

CREDENTIALS = {"apiKey": "API key", "apiKeyBearer": "API key", "bearer": "token"}


def render_endpoints() -> str:
    """Return the page."""
    document = describe(ROUTERS)
    groups: dict[str, list[str]] = defaultdict(list)
    for path, item in document["paths"].items():
        for method, operation in item.items():
            groups[operation["tags"][0]].append(_row(method, path, operation))
    parts = [HEAD]
    for tag in TAGS:
        if groups[tag["name"]]:
            parts.append(f"## {_title(tag['name'])}\n\n{tag['description']}\n")
            parts.append("| endpoint | purpose | credential |\n| --- | --- | --- |")
            parts += [*groups.pop(tag["name"]), ""]
    assert not any(groups.values()), f"endpoints without a tag in TAGS: {dict(groups)}"
    return "\n".join(parts)


def _title(tag: str) -> str:
    return {"sdk": "SDK"}.get(tag, tag.replace("_", " ").capitalize())


def _row(method: str, path: str, operation: dict[str, Any]) -> str:
    names = [name for requirement in operation.get("security") or () for name in requirement]
    credential = ", ".join(sorted({CREDENTIALS.get(name, name) for name in names})) or "none"
    purpose = operation.get("description") or operation.get("summary") or ""
    purpose = " ".join(purpose.split("\n\n")[0].split()).replace("|", r"\|")
    return f"| `{method.upper()} {path}` | {purpose} | {credential} |"
