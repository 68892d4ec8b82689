"""The canonical form of a context, to which approvals are bound (decisions §4).

RFC 8785 with one change: a number is written by its exact decimal value, so that ``1``, ``1.0`` and ``1e0`` are the
same and ``9007199254740993`` differs from ``9007199254740992``. No Unicode normalisation. Absent, null and ``{}`` are
equal.
"""

import hashlib
from collections.abc import Mapping

from toolgate_service import exact_json


def canonical(context: Mapping[str, object] | None) -> str:
    """Return the canonical text of a context; ``{}`` for none."""
    return exact_json.dumps(dict(context), sort_keys=True) if context else "{}"


def digest(canonical_text: str) -> str:
    """Return the SHA-256 of a canonical text in hexadecimal."""
    return hashlib.sha256(canonical_text.encode()).hexdigest()
