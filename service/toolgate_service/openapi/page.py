"""`/docs`: the OpenAPI document as one page of HTML, without a script and without anything from elsewhere."""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from html import escape
from importlib.resources import files
from itertools import groupby
from typing import Any

from toolgate_service.openapi.outline import Operation, operations, schema_lines

_STYLE = files(__package__).joinpath("docs.css").read_text("utf-8")
_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

#: the page's own style sheet, known by its digest; nothing else is loaded or run
CONTENT_SECURITY_POLICY = f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def page(document: Mapping[str, Any]) -> str:
    """Return the page."""
    info = document["info"]
    title = f"{info['title']} {info['version']}"
    listed = list(operations(document))
    body = "\n".join(
        (
            f"<nav><h1>{escape(title)}</h1>{''.join(_contents(listed))}</nav>",
            f"<main><p class=lead>{escape(info['summary'])}</p>{_prose(info['description'])}",
            '<p>For programs: <a href="/openapi.json">/openapi.json</a></p>',
            *(_operation(one) for one in listed),
            "</main>",
        )
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body>{body}</body></html>"
    )


def _contents(listed: list[Operation]) -> Iterator[str]:
    for tag, of_tag in groupby(listed, key=lambda one: one.tag):
        items = "".join(
            f'<li><a href="#{escape(one.id)}"><b class="{one.method}">{one.method}</b> {escape(one.path)}</a></li>'
            for one in of_tag
        )
        yield f"<h2>{escape(tag)}</h2><ul>{items}</ul>"


def _operation(one: Operation) -> str:
    responses = "".join(
        f"<details><summary><b>{escape(status)}</b> {_inline(response['description'])}</summary>"
        f"{_headers(response)}{_schema(_content(response))}</details>"
        for status, response in one.responses.items()
    )
    return (
        f'<section id="{escape(one.id)}"><h3><b class="{one.method}">{one.method}</b> <code>{escape(one.path)}</code>'
        f"</h3><p>{_inline(one.description)}</p><p class=meta>{escape(one.credential)} · <code>{escape(one.id)}</code></p>"
        f"{_parameters(one)}{_body(one)}<h4>Answers</h4>{responses}</section>"
    )


def _parameters(one: Operation) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(parameter['name'])}</code></td><td>{escape(parameter['in'])}"
        f"{', required' if parameter.get('required') else ''}</td>"
        f"<td><code>{escape(schema_lines(parameter['schema'])[0].kind)}</code> "
        f"{_inline(parameter.get('description', ''))}</td></tr>"
        for parameter in one.parameters
    )
    return f"<h4>Parameters</h4><table>{rows}</table>" if rows else ""


def _body(one: Operation) -> str:
    if one.body is None:
        return ""
    examples = "".join(
        f"<pre>{escape(json.dumps(example, indent=2, ensure_ascii=False))}</pre>"
        for example in one.body.get("examples", ())
    )
    return f"<h4>Body</h4>{_schema(one.body)}{examples}"


def _headers(response: Mapping[str, Any]) -> str:
    names = ", ".join(f"<code>{escape(name)}</code>" for name in response.get("headers", ()))
    return f"<p class=meta>{names}</p>" if names else ""


def _content(response: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for content in response.get("content", {}).values():
        schema: Mapping[str, Any] = content.get("schema", {})
        return schema
    return None


def _schema(schema: Mapping[str, Any] | None) -> str:
    if schema is None:
        return "<p class=meta>no body</p>"
    rows = "".join(
        f'<tr><td class="level{min(line.level, 4)}"><code>{escape(line.name)}</code></td>'
        f"<td><code>{escape(line.kind)}</code>{'' if line.required else ' optional'}</td>"
        f"<td>{_inline(line.note)}</td></tr>"
        for line in schema_lines(schema)
    )
    return f"<table>{rows}</table>"


def _prose(text: str) -> str:
    paragraphs = (part.strip() for part in text.split("\n\n"))
    return "".join(
        "<ul>" + "".join(f"<li>{_inline(item)}</li>" for item in part[2:].split("\n- ")) + "</ul>"
        if part.startswith("- ")
        else f"<p>{_inline(part)}</p>"
        for part in paragraphs
    )


def _inline(text: str) -> str:
    # Every second piece stands between backticks or double asterisks.
    pieces = [
        f"<code>{piece}</code>" if index % 2 else _strong(piece)
        for index, piece in enumerate(escape(text).split("`"))
    ]
    return "".join(pieces)


def _strong(text: str) -> str:
    return "".join(f"<b>{piece}</b>" if index % 2 else piece for index, piece in enumerate(text.split("**")))
