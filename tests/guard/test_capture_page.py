"""docs/guides/arguments.md says what the gateway is really sent."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import pytest
from support.readme import blocks

import toolgate
from toolgate import Guard


def test_the_page_shows_what_is_sent(guard: Guard, gateway: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call on the page is asked about with the context on the page, digests of those sizes included."""
    code, shown = (
        blocks("docs/guides/arguments.md", "python")[0],
        blocks("docs/guides/arguments.md", "json")[0],
    )
    monkeypatch.setattr(toolgate, "guarded", guard.guarded)
    exec(compile(code, "docs/guides/arguments.md", "exec", dont_inherit=True), {"__name__": "page"})
    sent = json.dumps(gateway.context, default=str)
    assert json.loads(re.sub("hmac-sha256:[0-9a-f]{64}", "hmac-sha256:…", sent)) == json.loads(
        json.dumps(json.loads(shown, parse_float=Decimal), default=str)
    )
    for secret in ("Main Street", "DE0212", "SAVE10", "4111", "7f3a"):
        assert secret not in sent
