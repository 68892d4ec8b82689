"""A gateway without the library for conditions: it does not start if stored rules need the library."""

from pathlib import Path

import pytest
from support.gateway import SECRET, LiveGateway, Owner

from toolgate_service.core.errors import StorageError
from toolgate_service.core.settings import Settings
from toolgate_service.gateway import Gateway
from toolgate_service.rules import service


@pytest.mark.parametrize(
    ("fields", "starts"), [({"when": "args.n > 1"}, False), ({"enabled": False}, True), ({}, True)]
)
async def test_gateway_starts_without_the_library_only_if_no_enabled_rule_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, object], *, starts: bool
) -> None:
    with LiveGateway(tmp_path) as live, Owner(live.url) as owner:
        body = {"name": "r", "effect": "forbid", "actions": ["*"]}
        if "enabled" in fields:
            body |= {"when": "args.n > 1"}
        assert owner.http.post("/api/rules", json=body | fields).status_code == 201
    monkeypatch.setattr(service, "is_available", lambda: False)
    gateway = Gateway(Settings(database_url=live.database_url, secret=SECRET))
    try:
        if starts:
            await service.refuse_missing_library(gateway.database)
        else:
            with pytest.raises(StorageError, match="cel-expr-python"):
                await gateway.start()
    finally:
        await gateway.database.close()
