"""Trusted definitions (pins) of a server's tools; a tool whose definition has changed must not be called."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from mcp_types import Tool
from pydantic import TypeAdapter, ValidationError

from toolgate import ConfigurationError
from toolgate._files import Hint, PrivateFileError, read_private, write_private

__all__ = ["MAPPING_KEY", "Pin", "Pins", "digest_of", "pins_of"]

#: member of a tool's input schema that contains the tool's AuthZEN mapping
MAPPING_KEY: Final = "x-authzen-mapping"

if sys.platform != "win32":
    import fcntl
# Fields of a tool's definition that are compared with the trusted definition: those that a model or a user reads, and
# the schemas of input and output.
_TOLD: Final = {"name", "title", "description", "input_schema", "output_schema", "annotations"}
# Maximum size of the pin file in bytes, which is enough for several thousand tools.
_LONGEST: Final = 4 * 1024 * 1024
_HINT: Final = Hint(
    "inspect the server's tools before you trust the server again",
    "remove the file, and inspect the server's tools",
)


@dataclass(frozen=True, slots=True)
class Pin:
    """The trusted definition of one tool, and the current one.

    Attributes:
        trusted: Digest of the trusted definition.
        seen: Digest of the definition that the server listed last.
        was: The trusted definition, as JSON.
        now: The definition that the server listed last, as JSON; None if it is equal to the trusted one.
    """

    trusted: str
    seen: str
    was: str
    now: str | None = None

    @property
    def changed(self) -> bool:
        """True if the definition has changed since it was trusted."""
        return self.trusted != self.seen

    @property
    def tool(self) -> Tool:
        """The tool with its trusted definition."""
        return Tool.model_validate_json(self.was)

    def with_current(self, told: str) -> Pin:
        """Return a copy of the pin with the JSON text `told` as the current definition."""
        digest = _digest(told)
        return Pin(self.trusted, digest, self.was, None if digest == self.trusted else told)

    def with_current_trusted(self) -> Pin:
        """Return a copy of the pin in which the current definition has become the trusted one."""
        return Pin(self.seen, self.seen, self.was if self.now is None else self.now)


def digest_of(tool: Tool) -> str:
    """Return the digest of a tool's definition: name, title, description, schemas and annotations."""
    return _digest(_told(tool))


def pins_of(server: str, *, reviews_mappings: bool = False) -> Pins:
    """Return the `Pins` object for a server, whose file is in the user's state folder.

    Args:
        server: Configured name of the server.
        reviews_mappings: As for `Pins`.
    """
    from platformdirs import user_state_path

    # The file is named by a hash, because a server name may contain characters that are invalid in file names.
    file = hashlib.sha256(server.encode("utf-8", "surrogatepass")).hexdigest()
    return Pins(
        user_state_path("toolgate", appauthor=False) / "mcp" / f"{file}.json",
        server,
        reviews_mappings=reviews_mappings,
    )


class Pins:
    """Trusted definitions of one server's tools, in a file that only its owner can read.

    A tool's definition is trusted when the server first lists the tool. A pin is never deleted: if a tool disappears
    and comes back, it is compared with the definition that was trusted before.

    Args:
        path: Path of the file that stores the pins.
        server: Configured name of the server.
        reviews_mappings: True to trust an AuthZEN mapping of a tool that a known server adds only after the operator
            has trusted it. By its mapping, the tool could otherwise use the permissions of the server's other tools.
    """

    def __init__(self, path: Path, server: str, *, reviews_mappings: bool = False) -> None:
        self._path = path
        self._server = server
        self.reviews_mappings = reviews_mappings

    def see(self, tools: Iterable[Tool]) -> Mapping[str, Pin]:
        """Store the definitions that the server lists now, and return them with the trusted definitions for comparison.

        Args:
            tools: All tools that the server lists.

        Returns:
            The pins of the listed tools, by tool name.

        Raises:
            ConfigurationError: The pin file cannot be read or written, or two tools have the same name. In both cases,
                no tool of the server may run.
        """
        told: dict[str, str] = {}
        plain: dict[str, str] = {}
        for tool in tools:
            if tool.name in told:
                raise ConfigurationError(f"the server {self._server!r} lists two tools called {tool.name!r}")
            told[tool.name] = _told(tool)
            if self.reviews_mappings and MAPPING_KEY in tool.input_schema:
                plain[tool.name] = _told(_without_mapping(tool))
        before = self.read()
        if not _differs(before, seen := _seen(before, told, plain)):
            return seen
        with self._alone():
            before = self.read()
            if _differs(before, seen := _seen(before, told, plain)):
                self._write({**before, **seen})
        return seen

    def trust(
        self, names: Collection[str] | None = None, *, shown: Mapping[str, Pin] | None = None
    ) -> list[str]:
        """Make the current definitions of tools the trusted ones.

        Args:
            names: Names of the tools; None for every tool whose definition has changed.
            shown: The pins that the operator reviewed; None to skip the comparison with them.

        Returns:
            The sorted names of the tools whose definition had changed.

        Raises:
            ConfigurationError: The server never listed one of the tools, a definition changed after the review, or the
                pin file cannot be read or written. No definition is then changed to trusted.
        """
        if not self.read():
            self._known(names or (), {})
            return []
        with self._alone():
            before = self.read()
            self._known(names or (), before)
            chosen = before if names is None else names
            changed = sorted(name for name, pin in before.items() if name in chosen and pin.changed)
            if shown is not None:
                self._unchanged({name: before[name] for name in changed}, shown)
            if changed:
                self._write({**before, **{name: before[name].with_current_trusted() for name in changed}})
        return changed

    def read(self) -> dict[str, Pin]:
        """Return the pins of all tools that the server ever listed, by tool name.

        Raises:
            ConfigurationError: The pin file cannot be read.
        """
        try:
            content = read_private(self._path, max_bytes=_LONGEST, hint=_HINT)
        except PrivateFileError as error:
            raise ConfigurationError(f"{self._unknown}: {error}") from error
        if content is None:
            return {}
        try:
            return _PINS.validate_json(content, strict=True)["tools"]
        except (ValidationError, KeyError) as error:
            raise ConfigurationError(
                f"{self._unknown}: {str(self._path)!r} contains no valid descriptions; remove the file to trust "
                "the server again"
            ) from error

    def _known(self, names: Collection[str], pins: Mapping[str, Pin]) -> None:
        for name in names:
            if name not in pins:
                raise ConfigurationError(f"the server {self._server!r} never listed a tool called {name!r}")

    def _unchanged(self, pins: Mapping[str, Pin], shown: Mapping[str, Pin]) -> None:
        for name, pin in pins.items():
            if name not in shown or shown[name].seen != pin.seen:
                raise ConfigurationError(
                    f"the tool {name!r} of the server {self._server!r} changed again in the meantime; run "
                    "the command again"
                )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock the pin file's folder inside the `with` block, so that two proxies do not overwrite each other's pins.

        On Windows, the folder is not locked.
        """
        if sys.platform == "win32":
            yield
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = os.open(self._path.parent, os.O_RDONLY)
        except OSError as error:
            raise ConfigurationError(
                f"the descriptions of the tools of {self._server!r} cannot be stored: {error}"
            ) from error
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    @property
    def _unknown(self) -> str:
        return f"the stored descriptions of the tools of {self._server!r} cannot be read"

    def _write(self, pins: Mapping[str, Pin]) -> None:
        told = {"tools": {name: asdict(pin) for name, pin in sorted(pins.items())}}
        content = json.dumps(told, indent=1).encode()
        if len(content) > _LONGEST:
            raise ConfigurationError(f"the server {self._server!r} lists more tools than can be stored")
        try:
            write_private(self._path, content, hint=_HINT)
        except PrivateFileError as error:
            raise ConfigurationError(
                f"the descriptions of the tools of {self._server!r} cannot be stored: {error}"
            ) from error


def _told(tool: Tool) -> str:
    told = tool.model_dump(mode="json", by_alias=True, exclude_none=True, include=_TOLD)
    return json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _digest(told: str) -> str:
    return "sha256:" + hashlib.sha256(told.encode()).hexdigest()


def _without_mapping(tool: Tool) -> Tool:
    schema = {name: value for name, value in tool.input_schema.items() if name != MAPPING_KEY}
    return tool.model_copy(update={"input_schema": schema})


def _seen(before: Mapping[str, Pin], told: Mapping[str, str], plain: Mapping[str, str]) -> dict[str, Pin]:
    """Return the pins of the listed tools.

    Args:
        before: The stored pins.
        told: The definitions that the server lists, as JSON.
        plain: Definitions without the mapping, of tools that have one. If the server is already known, a new tool is
            pinned with this definition, so that the mapping counts as a change.
    """
    seen = {}
    for name, text in told.items():
        if name in before:
            seen[name] = before[name].with_current(text)
        else:
            trusted = plain.get(name, text) if before else text
            seen[name] = Pin(_digest(trusted), _digest(trusted), trusted).with_current(text)
    return seen


def _differs(before: Mapping[str, Pin], seen: Mapping[str, Pin]) -> bool:
    return any(before.get(name) != pin for name, pin in seen.items())


_PINS: Final = TypeAdapter(dict[str, dict[str, Pin]])
