"""The names of what approval tests are handed."""

from collections.abc import Callable
from typing import Any, TypeAlias

import httpx

#: asks for `db.drop` with a context and further fields, and returns the result
Ask: TypeAlias = Callable[..., dict[str, Any]]
#: decides an approval: id, "approve" or "deny", the body's fields
Decide: TypeAlias = Callable[..., httpx.Response]
#: tells an approval's status
State: TypeAlias = Callable[[str], str]
