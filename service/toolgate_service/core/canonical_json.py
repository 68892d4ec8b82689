"""Canonical JSON of the arguments that an approval covers.

The format is RFC 8785 with one change: numbers keep their exact decimal value. ``1``, ``1.0`` and ``1e0`` have the same
canonical text; ``9007199254740993`` and ``9007199254740992`` have different ones. Unicode is not normalized. A missing
context, null and ``{}`` have the same canonical text.
"""

import hashlib
from collections.abc import Mapping

from toolgate_service.core import strict_json


def canonical(context: Mapping[str, object] | None) -> str:
    """Return the canonical JSON of a context, or ``{}`` for None."""
    return strict_json.dumps(dict(context), sort_keys=True) if context else "{}"


def digest(canonical_text: str) -> str:
    """Return the SHA-256 hash of a canonical JSON text as hexadecimal digits."""
    return hashlib.sha256(canonical_text.encode()).hexdigest()
