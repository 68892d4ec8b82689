"""What is made of uv.lock: the pinned requirements of the image, and the bill of materials of what it runs.

``python service/deploy/export.py requirements`` writes both files beside this one; ``… sbom FILE`` the bill.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

#: the extras that the image brings: all that a gateway may be told to use
EXTRAS = ("postgres", "redis", "billing", "metrics", "traces")

_RUNTIME = ("--no-dev", *(word for extra in EXTRAS for word in ("--extra", extra)))
_FILES = {
    "requirements.txt": ("What the image runs", _RUNTIME),
    "requirements-build.txt": ("What builds the wheel", ("--only-group", "build")),
}


def requirements() -> dict[str, str]:
    """Return the text of each requirements file: versions and SHA-256 sums, as the lock has them."""
    return {
        name: f"# {title}, from uv.lock: make lock writes it, and pip takes nothing else.\n{_exported('requirements.txt', ('--no-emit-project', *chosen))}"
        for name, (title, chosen) in _FILES.items()
    }


def bill_of_materials() -> dict[str, Any]:
    """Return the CycloneDX document of what the image runs: the same bytes for the same lock.

    Its time is ``SOURCE_DATE_EPOCH``, if that is set; its serial number follows from what it lists.
    """
    bill: dict[str, Any] = json.loads(_exported("cyclonedx1.5", _RUNTIME))
    bill["metadata"]["component"]["type"] = "application"
    for one in bill["dependencies"]:
        # Some extras of the package include another extra of it, so the package is listed as its own dependency. This
        # entry is removed.
        one["dependsOn"] = [ref for ref in one.get("dependsOn", []) if ref != one["ref"]]
    del bill["metadata"]["timestamp"], bill["serialNumber"]
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if epoch:
        bill["metadata"]["timestamp"] = datetime.fromtimestamp(int(epoch), UTC).isoformat()
    digest = sha256(json.dumps(bill, sort_keys=True).encode()).hexdigest()
    return {**bill, "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, digest)}"}


def _exported(form: str, chosen: Sequence[str]) -> str:
    command = [sys.executable, "-m", "uv", "export", "--quiet", "--frozen", "--format", form]
    command += ["--no-header", "--no-annotate", *chosen]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout  # noqa: S603  # our own words


def main(arguments: Sequence[str]) -> None:
    """Write what was asked for."""
    match list(arguments):
        case ["requirements"]:
            for name, text in requirements().items():
                (HERE / name).write_text(text)
        case ["sbom", path]:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(json.dumps(bill_of_materials(), indent=2) + "\n")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
