"""Folders of installed distributions that were never installed: what `importlib.metadata` reads, and nothing else."""

from pathlib import Path


def requires(folder: Path, name: str, *requirements: str) -> None:
    """Let a distribution in such a folder require others."""
    (metadata,) = folder.glob(f"{name}-*.dist-info/METADATA")
    metadata.write_text(metadata.read_text() + "".join(f"Requires-Dist: {each}\n" for each in requirements))


def site(folder: Path, **versions: str | None) -> Path:
    """A folder of distributions by name, underscores for dashes, and version; None is one whose metadata is lost."""
    for name, version in versions.items():
        made = folder / f"{name}-{version or 'lost'}.dist-info"
        made.mkdir(parents=True)
        if version is not None:
            own = name.replace("_", "-")
            (made / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {own}\nVersion: {version}\n")
    return folder
