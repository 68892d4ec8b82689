"""Build the documentation site: `make docs`."""

import subprocess
import sys
from pathlib import Path

from support.readme import ROOT
from support.site.links import find_dead_links
from support.site.navigation import find_navigation_errors
from support.site.reference import write_pages

SITE = ROOT / "site"
# Zensical's offline plugin loads this script from the network; search would not work without one.
REMOTE_SHIM = "https://unpkg.com/iframe-worker/shim"
LOCAL_SHIM = "assets/iframe-worker.js"


def use_local_shim(page: Path) -> None:
    """Make a built page load the search worker's shim from the site."""
    text = page.read_text()
    up = "../" * (len(page.relative_to(SITE).parts) - 1)
    page.write_text(text.replace(REMOTE_SHIM, up + LOCAL_SHIM))


def build() -> int:
    """Write the generated pages, check navigation and links, build in strict mode; return the exit status."""
    write_pages()
    errors = find_navigation_errors() + find_dead_links()
    if errors:
        sys.stderr.write("\n".join([*errors, ""]))
        return 1
    zensical = Path(sys.executable).with_name("zensical")
    built = subprocess.run([zensical, "build", "--strict", "--clean"], cwd=ROOT, check=False)
    if built.returncode:
        return built.returncode
    for page in SITE.rglob("*.html"):
        use_local_shim(page)
    return 0


if __name__ == "__main__":
    sys.exit(build())
