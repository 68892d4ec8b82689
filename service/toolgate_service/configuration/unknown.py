"""Variables that look like settings and are none: a setting that is misspelt is one that does not act."""

import re
from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches

from toolgate_service.configuration.findings import Finding
from toolgate_service.configuration.listing import PREFIX, variable_of
from toolgate_service.settings import Settings

#: how alike a name must be to be taken for a slip
ALIKE = 0.8
#: what Kubernetes tells every container of a service named "toolgate"
_OF_KUBERNETES = re.compile(r"TOOLGATE_(SERVICE_(HOST|PORT)(_.+)?|PORT(_\d+_(TCP|UDP)(_.+)?)?)")


def unknown(environment: Iterable[str], files: Iterable[str], others: Collection[str]) -> Iterator[Finding]:
    """Tell of every such variable, and of every such file of `TOOLGATE_SECRETS_DIR`.

    Args:
        environment: the names of all variables, in whatever case.
        files: those of the folder's files, which are settings in upper case alone.
        others: what the SDK and the command line read.
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
    # Without the prefix, which would make any two of them alike.
    bare = {one.removeprefix(PREFIX): one for one in known}
    near = get_close_matches(spelt.removeprefix(PREFIX), bare, n=1, cutoff=ALIKE)
    if near:
        yield Finding("variables", "wrong", f"{shown} is no setting", f"did you mean {bare[near[0]]!r}?")
    else:
        yield Finding("variables", "warning", f"{shown} is no setting, and does nothing")
