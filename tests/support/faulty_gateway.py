"""The command `toolgate` with a fault: one changed line of the gateway, which an import hook replaces.

python faulty_gateway.py FILE LINE REPLACEMENT serve --port 0
"""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any


def patched(source: str, line: str, replacement: str) -> str:
    """Return a source with the line replaced; the line must occur exactly once.

    Raises:
        ValueError: the line occurs never or several times.
    """
    found = source.count(line)
    if found != 1:
        raise ValueError(f"the line {line!r} occurs {found} times")
    return source.replace(line, replacement)


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, line: str, replacement: str) -> None:
        super().__init__(name, path)
        self._line, self._replacement = line, replacement

    def get_code(self, fullname: str) -> CodeType:
        # Compile without the cache of bytecode, which belongs to the original file.
        source = Path(self.path).read_text(encoding="utf-8")
        code: CodeType = compile(patched(source, self._line, self._replacement), self.path, "exec")
        return code


class _Finder(MetaPathFinder):
    def __init__(self, file: str, line: str, replacement: str) -> None:
        self._suffix = f"/toolgate_service/{file}"
        self._line, self._replacement = line, replacement
        self.has_replaced = False

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not name.startswith("toolgate_service"):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None and spec.origin.endswith(self._suffix):
            spec.loader = _Loader(name, spec.origin, self._line, self._replacement)
            self.has_replaced = True
        return spec


def main() -> None:
    """Install the fault, and run the command."""
    file, line, replacement = sys.argv[1:4]
    sys.argv[1:4] = []
    sys.meta_path.insert(0, _Finder(file, line, replacement))
    from toolgate_cli import main as toolgate

    toolgate()


if __name__ == "__main__":
    main()
