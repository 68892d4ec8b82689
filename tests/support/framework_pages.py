"""The pages of docs/frameworks: their shape, their examples, and the environments that they name.

`python -m support.framework_pages PAGE…` (with `PYTHONPATH=tests`) runs the examples of pages in this environment and writes the
output into the pages. `make test-pages` compares the output in new environments, `make test-full` too.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from support.readme import ROOT

__all__ = ["FOLDER", "HEADINGS", "Page", "normalize", "pages", "run_here", "run_isolated"]

FOLDER = ROOT / "docs" / "frameworks"
#: second-level headings of every page, in order
HEADINGS = ["Approvals", "Options", "Outcomes", "What it cannot do"]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
_EXTRAS = re.compile(r"'\./toolgate\[([a-z0-9,-]+)\]'")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
#: variables that must not reach an example: it runs without settings and without API keys
_SECRET = re.compile(r"TOOLGATE_|.*API_KEY|.*_TOKEN|OPENAI_|ANTHROPIC_|CLAUDE")


@dataclass(frozen=True, slots=True)
class Page:
    """A page of docs/frameworks.

    Attributes:
        name: File name without the suffix.
        text: Content.
    """

    name: str
    text: str

    def blocks(self, *languages: str) -> list[str]:
        """Return the code blocks in these languages, in order."""
        return [code for language, code in _BLOCK.findall(self.text) if language in languages]

    @property
    def script(self) -> str:
        """All Python blocks as one file: each block continues the one before."""
        return "\n\n".join(self.blocks("python"))

    @property
    def output(self) -> list[str]:
        """The output that the page shows, without empty lines."""
        return [line for block in self.blocks("text") for line in block.splitlines() if line.strip()]

    @property
    def install(self) -> str:
        """The install line."""
        return self.blocks("sh")[0].splitlines()[0]

    @property
    def extras(self) -> list[str]:
        """Extras of Toolgate on the install line."""
        found = _EXTRAS.search(self.install)
        return found.group(1).split(",") if found else []

    @property
    def packages(self) -> list[str]:
        """Further packages on the install line."""
        return [
            each.strip("'")
            for each in self.install.split()[2:]
            if not each.strip("'").startswith("./toolgate")
        ]

    @property
    def prose(self) -> str:
        """The text without code blocks, code spans and targets of links."""
        text = re.sub(r"`[^`]*`", "", _BLOCK.sub("", self.text))
        return re.sub(r"\]\([^)]*\)", "]", text)


def pages() -> list[Page]:
    """Return all pages, sorted by name."""
    return [Page(each.stem, each.read_text()) for each in sorted(FOLDER.glob("*.md"))]


def normalize(lines: Sequence[str]) -> list[str]:
    """Replace ids, which differ in each run."""
    return [_UUID.sub("<id>", line.rstrip()) for line in lines if line.strip()]


def run_here(page: Page, folder: Path) -> list[str]:
    """Run the examples of a page in this environment, and return the lines that they print."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return _run(page, folder, [sys.executable], {"PATH": path})


def run_isolated(page: Page, folder: Path) -> list[str]:
    """Run the examples of a page in a new environment with only what its install line names, at locked versions."""
    uv = str(Path(sys.executable).with_name("uv"))
    cache = subprocess.run([uv, "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip()
    command = [
        uv, "run", "--quiet", "--isolated", "--locked", "--no-default-groups", "--project", str(ROOT),
        "--python", sys.executable,
        *(word for each in page.extras for word in ("--extra", each)),
        *(word for each in page.packages for word in ("--with", each)),
        "python",
    ]  # fmt: skip
    return _run(page, folder, command, {"UV_CACHE_DIR": cache, "UV_SYSTEM_CERTS": "1"})


def _run(page: Page, folder: Path, command: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    script = folder / "example.py"
    script.write_text(page.script)
    (folder / "home").mkdir()
    environment = {
        name: value
        for name, value in os.environ.items()
        if not _SECRET.match(name) and not name.startswith(("PYTEST_", "COV_", "VIRTUAL_ENV", "UV_PROJECT"))
    }
    with (folder / "output.txt").open("w+") as output, (folder / "errors.txt").open("w+") as errors:
        # In a group of its own, which is ended as a whole: an example that fails leaves its gateway behind.
        process = subprocess.Popen(
            [*command, str(script)],
            env={**environment, "HOME": str(folder / "home"), **variables},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        try:
            status = process.wait(timeout=240)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    printed = (folder / "output.txt").read_text()
    assert status == 0, f"{page.name}: {printed}\n{(folder / 'errors.txt').read_text()}"
    return printed.splitlines()


def _write(name: str) -> None:
    """Write the output of each block into the page, in place of the text block that follows it."""
    path = FOLDER / f"{name}.md"
    page = Page(name, path.read_text())
    marker = "--- end of block ---"
    parts = [f"{block}\nprint({marker!r}, flush=True)\n" for block in page.blocks("python")]
    marked = "".join(f"```python\n{part}```\n" for part in parts)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        printed = "\n".join(run_here(Page(name, marked), Path(folder))).split(marker)
    outputs = iter(["\n".join(line for line in each.splitlines() if line.strip()) for each in printed])
    current = ""

    def replaced(match: re.Match[str]) -> str:
        nonlocal current
        if match[1] == "python":
            current = next(outputs)
        if match[1] == "text":
            return f"```text\n{current}\n```"
        return match[0]

    path.write_text(_BLOCK.sub(replaced, page.text))


if __name__ == "__main__":
    for one in sys.argv[1:]:
        _write(Path(one).stem)
