"""Size of the code: files, lines, and what one allowed call of a guarded function executes.

    python benchmarks/size.py [--calls]

Lines are lines of code, without comments, docstrings and blank lines. Calls are function calls of the package `toolgate`
on the calling thread, without libraries; the first call, which imports modules, is not counted.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import httpx

import toolgate
from toolgate import Guard

ROOT = Path(__file__).parents[1]
PACKAGE = str(Path(toolgate.__file__).parent)
_BLANK = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def lines_of_code(path: Path) -> int:
    """Return the number of lines with code."""
    source = path.read_text()
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if ast.get_docstring(node, clean=False) is not None and first is not None:
                docstrings.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _BLANK:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - docstrings)


def calls_of_one_guarded_call() -> Counter[CodeType]:
    """Return the functions of the SDK that one allowed synchronous call executes, with their number of calls."""
    allowed = {"allowed": True, "requires_approval": False, "reason": None, "approval_id": None}

    def respond(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/sdk/check":
            return httpx.Response(200, json=allowed)
        return httpx.Response(200, json={"results": [{"status": 200}]})

    found: Counter[CodeType] = Counter()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            found[frame.f_code] += 1

    transport = httpx.MockTransport(respond)
    with Guard(
        "http://127.0.0.1:9", "ak_" + "k" * 37, "agent", transport=transport, outbox="memory"
    ) as guard:

        @guard.guarded("math.add")
        def add(a: int, b: int) -> int:
            return a + b

        add(1, 2)
        sys.setprofile(profile)
        try:
            add(1, 2)
        finally:
            sys.setprofile(None)
    return found


def main() -> None:
    """Print the figures."""
    for folder in ("guard", "integrations", "service"):
        counts = sorted(lines_of_code(path) for path in (ROOT / folder).rglob("*.py"))
        print(
            f"{folder:<13} {len(counts):>4} files {sum(counts):>7,} lines of code   "
            f"median {counts[len(counts) // 2]}, largest {counts[-1]}"
        )
    found = calls_of_one_guarded_call()
    files = Counter[str]()
    for code, number in found.items():
        files[Path(code.co_filename).relative_to(PACKAGE).as_posix()] += number
    print(
        f"one allowed call: {len(files)} files, {len(found)} functions, {sum(found.values())} function calls"
    )
    if "--calls" in sys.argv:
        for name, number in files.most_common():
            print(f"  {number:>4} {name}")
            for code, times in sorted(found.items(), key=lambda item: item[0].co_firstlineno):
                if code.co_filename.endswith(f"/toolgate/{name}"):
                    print(f"         {times:>3} {code.co_qualname}")


if __name__ == "__main__":
    main()
