"""Whether what is imported as Toolgate is this distribution, and nobody else's."""

from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution, packages_distributions
from importlib.util import find_spec
from pathlib import Path

from toolgate_cli.doctor.findings import Finding

NAMES = ("toolgate", "toolgate_service", "toolgate_integrations")
_COMMAND = "toolgate_cli:main"


def check_installation() -> Iterator[Finding]:
    """Yield whoever else owns our import names, or that nobody does."""
    wrong = [*_others(), *_not_ours()]
    yield from wrong
    if not wrong:
        yield Finding("installation", "ok", f"{', '.join(NAMES)} are this distribution's alone")


def _others() -> Iterator[Finding]:
    owners = packages_distributions()
    for name in NAMES:
        for other in sorted({owner for owner in owners.get(name, ()) if owner.lower() != "toolgate"}):
            says = f"the distribution {other!r} owns the import name {name!r} as well: which is imported is chance"
            yield Finding(
                "installation", "wrong", says, f"pip uninstall {other}, then install toolgate again"
            )


def _not_ours() -> Iterator[Finding]:
    try:
        ours = distribution("toolgate")
    except PackageNotFoundError:
        yield Finding(
            "installation", "wrong", "no distribution 'toolgate' is installed", "pip install 'toolgate[cli]'"
        )
        return
    commands = [entry.value for entry in ours.entry_points if entry.group == "console_scripts"]
    if _COMMAND not in commands:
        says = "the distribution that is called 'toolgate' is another project's"
        yield Finding("installation", "wrong", says, "pip uninstall toolgate, then install this one")
        return
    for name in NAMES:
        expected, found = _installed(ours, name), _imported(name)
        if expected is not None and found != expected:
            says = f"{name!r} is imported from {str(found)!r} and not from {str(expected)!r}"
            yield Finding(
                "installation", "wrong", says, "rename or remove what stands in its way on sys.path"
            )


def _installed(ours: Distribution, name: str) -> Path | None:
    # An editable installation lists no files of its packages.
    listed = [file for file in ours.files or () if str(file) == f"{name}/__init__.py"]
    return Path(str(ours.locate_file(listed[0]))).resolve() if listed else None


def _imported(name: str) -> Path | None:
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).resolve() if spec is not None and spec.origin else None
