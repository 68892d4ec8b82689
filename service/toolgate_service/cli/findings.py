"""Findings of `toolgate config check`, and detection of `TOOLGATE_*` variables that are not settings."""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Literal, TypeAlias

from toolgate_service.cli.settings_list import PREFIX, variable_of
from toolgate_service.core.settings import Settings

State: TypeAlias = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check.

    Attributes:
        check: Name of the checked item, for instance `"database"`.
        state: Result; a gateway cannot start or work if it is `"wrong"`.
        says: Description of the result.
        cure: Instruction to fix the problem; None if there is nothing to do.
    """

    check: str
    state: State
    says: str
    cure: str | None = None


def wrong(check: str, error: object) -> Finding:
    """Convert an error to a finding. The text before the first semicolon is the problem, the rest is the fix."""
    says, _, cure = str(error).partition("; ")
    return Finding(check, "wrong", says, cure or None)


def without(finding: Finding, secrets: Iterable[str]) -> Finding:
    """Return a copy of a finding in which each of `secrets` is replaced with an ellipsis."""
    says, cure = finding.says, finding.cure
    for secret in secrets:
        says = says.replace(secret, "…")
        cure = cure and cure.replace(secret, "…")
    return replace(finding, says=says, cure=cure)


#: minimum similarity (0 to 1) between an unknown name and a setting's name to treat the unknown name as a typing error
ALIKE = 0.8
#: names of variables that Kubernetes sets in every container if a service is named "toolgate"
_OF_KUBERNETES = re.compile(r"TOOLGATE_(SERVICE_(HOST|PORT)(_.+)?|PORT(_\d+_(TCP|UDP)(_.+)?)?)")


def unknown(environment: Iterable[str], files: Iterable[str], others: Collection[str]) -> Iterator[Finding]:
    """Yield a finding for each ``TOOLGATE_*`` variable and each file in ``TOOLGATE_SECRETS_DIR`` that is not a setting.

    Args:
        environment: Names of all environment variables. They are compared case-insensitively.
        files: Names of all files in the folder. Only upper-case names are settings.
        others: Names of the variables that the SDK and the command line read.
    """
    known = {variable_of(name) for name in Settings.model_fields}
    for name in sorted(environment):
        spelt = name.upper()
        if spelt not in known | set(others) and not _OF_KUBERNETES.fullmatch(spelt):
            yield from _told(name, repr(name), known)
    for name in sorted(set(files) - known):
        yield from _told(name, f"the file {name!r}", known)


def _told(name: str, shown: str, known: Collection[str]) -> Iterator[Finding]:
    spelt = name.upper()
    if not spelt.startswith(PREFIX):
        return
    # Compare the names without the common prefix, which would make all names similar.
    bare = {one.removeprefix(PREFIX): one for one in known}
    near = get_close_matches(spelt.removeprefix(PREFIX), bare, n=1, cutoff=ALIKE)
    if near:
        yield Finding("variables", "wrong", f"{shown} is no setting", f"did you mean {bare[near[0]]!r}?")
    else:
        yield Finding("variables", "warning", f"{shown} is no setting, and does nothing")
