"""The setting that says where the figures are served."""

import re
from importlib import import_module
from typing import NamedTuple

_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<host>[A-Za-z0-9._-]+)):(?P<port>[0-9]{1,5})")
#: the last there is
MAX_PORT = 65_535


class Address(NamedTuple):
    """A host and a port to listen on."""

    host: str
    port: int


def read_address(text: str) -> Address:
    """Read ``HOST:PORT``, an IPv6 address in brackets.

    Raises:
        ValueError: it is none, or what the figures need is not installed.
    """
    found = _ADDRESS.fullmatch(text.strip())
    if found is None or int(found["port"]) > MAX_PORT:
        raise ValueError(f"{text!r} is no address to listen on; write HOST:PORT, for instance 127.0.0.1:9090")
    try:
        import_module("prometheus_client")
    except ModuleNotFoundError:
        raise ValueError(
            "needs the extra 'metrics'; install it with: pip install 'toolgate[metrics]'"
        ) from None
    return Address(found["v6"] or found["host"], int(found["port"]))
