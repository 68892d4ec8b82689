"""The gateway's Dockerfile, read as a builder reads it: its stages, and what each is told."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from support.readme import ROOT

DOCKERFILE = ROOT / "service" / "deploy" / "Dockerfile"


@dataclass
class Stage:
    """One stage: its name, the instructions in their order."""

    name: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def all(cls, path: Path = DOCKERFILE) -> list[Self]:
        """Read the file; what stands before the first FROM is no stage."""
        lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
        stages: list[Self] = []
        for line in re.sub(r"\s*\\\n\s*", " ", "\n".join(lines)).splitlines():
            word, _, rest = line.partition(" ")
            if word == "FROM":
                stages.append(cls(rest.partition(" AS ")[2]))
            elif stages:
                stages[-1].instructions.append((word, rest))
        return stages

    def told(self, word: str) -> str:
        """Return what the only instruction of this kind says."""
        (rest,) = [rest for name, rest in self.instructions if name == word]
        return rest

    def command(self, word: str) -> list[str]:
        """Return the words of an instruction in exec form; a shell's form is none."""
        words: list[str] = json.loads(self.told(word))
        return words
