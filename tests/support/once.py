"""What costs every test a little and is done once instead: compiling modules, reading certificates, migrating."""

import os
import ssl
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.databases import TEMPLATE, sqlite_template
from toolgate_service.db.sqlite import create_private


@pytest.fixture(scope="session", autouse=True)
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let processes share compiled modules, also where Python is told to write none: a start takes half as long."""
    if not sys.dont_write_bytecode:
        yield
        return
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        patch.setenv("PYTHONPYCACHEPREFIX", str(shared / "compiled"))
        yield


@pytest.fixture(scope="session", autouse=True)
def certificates_read_once() -> Iterator[None]:
    """Let the clients of tests share what they trust: reading it takes longer than most tests ask of a gateway."""
    read = httpx.create_ssl_context

    @cache
    def trusted(_file: str | None, _folder: str | None) -> ssl.SSLContext:
        return read()

    def context(verify: ssl.SSLContext | bool = True, **others: Any) -> ssl.SSLContext:
        if verify is not True or others.get("cert"):
            return read(verify=verify, **others)
        return trusted(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("httpx._transports.default.create_ssl_context", context)
        yield


@pytest.fixture(scope="session", autouse=True)
def schema_copied() -> Iterator[None]:
    """Let embedded gateways of this process begin with a migrated file: migrations take most of the time of a start."""

    def create(path: Path) -> None:
        is_new = not path.exists()
        create_private(path)
        if is_new and path.name != TEMPLATE:
            path.write_bytes(sqlite_template())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("toolgate_service.db.sqlite.create_private", create)
        yield
