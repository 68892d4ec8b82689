"""What was found: one line that says what is, and one that says what to do."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Literal, TypeAlias

State: TypeAlias = Literal["ok", "warning", "wrong", "unknown"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        check: what was looked at.
        state: whether it is as it must be.
        says: what was found.
        cure: what to do, where something is to be done.
    """

    check: str
    state: State
    says: str
    cure: str | None = None

    def as_dict(self) -> dict[str, str | None]:
        """Return what a script reads."""
        return asdict(self)


def from_error(check: str, error: Exception) -> Finding:
    """Return what a configuration's error says: what is wrong stands before its first semicolon, behind it the cure."""
    says, _, cure = str(error).partition("; ")
    return Finding(check, "wrong", says, cure or None)


def without_secrets(finding: Finding, secrets: Iterable[str]) -> Finding:
    """Return a finding in which no secret stands, whoever quoted it."""
    says, cure = finding.says, finding.cure
    for secret in filter(None, secrets):
        says = says.replace(secret, "…")
        cure = cure and cure.replace(secret, "…")
    return replace(finding, says=says, cure=cure)
