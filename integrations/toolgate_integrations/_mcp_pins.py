"""What a server's tools said of themselves when they were trusted: one that says something else now is blocked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from mcp_types import Tool
from pydantic import TypeAdapter, ValidationError

from toolgate import ConfigurationError
from toolgate.cli.private_file import Cure, PrivateFileError, read_private, write_private

__all__ = ["Pin", "Pins", "digest_of", "pins_of"]

# What a model or a person goes by when they choose a tool, and what it takes and gives.
_TOLD: Final = {"name", "title", "description", "input_schema", "output_schema", "annotations"}
# Some ten thousand tools.
_LONGEST: Final = 4 * 1024 * 1024
_CURE: Final = Cure(
    "look at the server's tools before you trust it anew", "remove it, and look at the server's tools"
)


@dataclass(frozen=True, slots=True)
class Pin:
    """One tool.

    Attributes:
        trusted: The digest of what it said when it was trusted.
        seen: The digest of what it said last.
    """

    trusted: str
    seen: str

    @property
    def changed(self) -> bool:
        """Whether it says something else than was trusted."""
        return self.trusted != self.seen


def digest_of(tool: Tool) -> str:
    """The digest of what a tool says of itself: name, title, description, schemas and annotations.

    Args:
        tool: As its server lists it.
    """
    told = tool.model_dump(mode="json", by_alias=True, exclude_none=True, include=_TOLD)
    text = json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def pins_of(server: str) -> Pins:
    """The pins of a server, in the user's own state folder.

    Args:
        server: The name under which it is configured here.
    """
    from platformdirs import user_state_path

    # Names are what their owner likes; files are not.
    file = hashlib.sha256(server.encode("utf-8", "surrogatepass")).hexdigest()
    return Pins(user_state_path("toolgate", appauthor=False) / "mcp" / f"{file}.json", server)


class Pins:
    """What one server's tools said when they were trusted, in a file that is its owner's alone.

    A tool is trusted when it is first seen, and never forgotten: one that goes away and comes back is held to what it
    said before.

    Args:
        path: The file.
        server: The name under which the server is configured here.
    """

    def __init__(self, path: Path, server: str) -> None:
        self._path = path
        self._server = server

    def see(self, tools: Iterable[Tool]) -> Mapping[str, Pin]:
        """Compare what a server lists with what was trusted, and remember what it lists.

        Args:
            tools: Everything it lists.

        Returns:
            The pins of the tools listed.

        Raises:
            ConfigurationError: The file cannot be used, or two tools have one name; no tool may run.
        """
        before, seen = self.read(), {}
        for tool in tools:
            if tool.name in seen:
                raise ConfigurationError(f"the server {self._server!r} lists two tools called {tool.name!r}")
            digest = digest_of(tool)
            known = before.get(tool.name)
            seen[tool.name] = Pin(digest if known is None else known.trusted, digest)
        after = {**before, **seen}
        if after != before:
            self._write(after)
        return seen

    def trust(self, names: Collection[str] | None = None) -> list[str]:
        """Take what tools said last for what they are to say.

        Args:
            names: The tools; None is every one that changed.

        Returns:
            The tools that had changed, sorted.

        Raises:
            ConfigurationError: One was never seen, or the file cannot be used; nothing is trusted.
        """
        before = self.read()
        for name in names or ():
            if name not in before:
                raise ConfigurationError(f"the server {self._server!r} never listed a tool called {name!r}")
        chosen = before if names is None else names
        changed = sorted(name for name, pin in before.items() if name in chosen and pin.changed)
        if changed:
            self._write({**before, **{name: Pin(before[name].seen, before[name].seen) for name in changed}})
        return changed

    def read(self) -> dict[str, Pin]:
        """Every tool that was ever seen, by name.

        Raises:
            ConfigurationError: The file cannot be used.
        """
        try:
            content = read_private(self._path, longest=_LONGEST, cure=_CURE)
        except PrivateFileError as error:
            raise ConfigurationError(f"{self._unknown}: {error}") from error
        if content is None:
            return {}
        try:
            return _PINS.validate_json(content, strict=True)["tools"]
        except (ValidationError, KeyError) as error:
            raise ConfigurationError(
                f"{self._unknown}: {str(self._path)!r} holds none; remove it to trust the server anew"
            ) from error

    @property
    def _unknown(self) -> str:
        return f"what the tools of {self._server!r} said before cannot be told"

    def _write(self, pins: Mapping[str, Pin]) -> None:
        told = {"tools": {name: asdict(pin) for name, pin in sorted(pins.items())}}
        content = json.dumps(told, indent=1).encode()
        if len(content) > _LONGEST:
            raise ConfigurationError(f"the server {self._server!r} lists more tools than can be kept")
        try:
            write_private(self._path, content, cure=_CURE)
        except PrivateFileError as error:
            raise ConfigurationError(
                f"what the tools of {self._server!r} say cannot be kept: {error}"
            ) from error


_PINS: Final = TypeAdapter(dict[str, dict[str, Pin]])
