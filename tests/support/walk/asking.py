"""Asking at a stop of the walk, with the organization's things in the place of their placeholders."""

import json
import re
from collections.abc import Mapping
from typing import Any

import httpx

from support.team import Colleague
from support.walk.callers import bearer, keyed
from support.walk.stage import Stage
from support.walk.table import Stop


def ask(
    stage: Stage,
    route: str,
    stop: Stop,
    named: Mapping[str, str],
    headers: Mapping[str, str],
    environment: str | None = None,
) -> httpx.Response:
    """Send the request of a stop, with somebody's credential."""
    method, _, path = route.partition(" ")
    query = filled(stop.query, named) | ({"environment": environment} if environment else {})
    body = None if stop.body is None else filled(stop.body, named)
    return stage.anybody.request(method, filled(path, named), params=query, json=body, headers=dict(headers))


def ask_rightly(stage: Stage, route: str, stop: Stop, named: Mapping[str, str]) -> httpx.Response:
    """Send the request of a stop as somebody with the right to it."""
    if stop.spends:
        with Colleague(stage.owner, "admin") as somebody:
            return ask(stage, route, stop, named, bearer(somebody.token))
    headers = keyed(stage.key) if stop.right == "key" else bearer(stage.owner.token)
    return ask(stage, route, stop, named, headers)


def filled(template: Any, named: Mapping[str, str]) -> Any:
    """Put things in the place of their placeholders."""
    if isinstance(template, str):
        # A placeholder may name its convertor, as in `{position:path}`.
        return re.sub(r"{(\w+)(?::\w+)?}", lambda match: named.get(match[1], match[0]), template)
    return json.loads(filled(json.dumps(template), named))
