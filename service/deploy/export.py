"""Export of `uv.lock`: the pinned requirements of the gateway image, and its software bill of materials.

``python service/deploy/export.py requirements`` writes the two requirements files next to this script. ``python
service/deploy/export.py sbom FILE`` writes the bill of materials to a file.
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

#: optional dependencies that the image includes, so that all features of the gateway can be enabled
EXTRAS = ("postgres", "redis", "billing", "metrics", "traces")

_RUNTIME = ("--no-dev", *(word for extra in EXTRAS for word in ("--extra", extra)))
_FILES = {
    "requirements.txt": ("Packages of the gateway image", _RUNTIME),
    "requirements-build.txt": ("Packages that build the wheel", ("--only-group", "build")),
}


def requirements() -> dict[str, str]:
    """Return the content of each requirements file: pinned versions with the SHA-256 sums from the lock file."""
    return {
        name: f"# {title}, pinned by hash. Generated from uv.lock by `make lock`.\n{_exported('requirements.txt', ('--no-emit-project', *chosen))}"
        for name, (title, chosen) in _FILES.items()
    }


def bill_of_materials() -> dict[str, Any]:
    """Return a CycloneDX document that lists the packages in the image. The same lock file results in the same bytes.

    The document's timestamp is ``SOURCE_DATE_EPOCH``, if this variable is set. The serial number is derived from the
    content.
    """
    bill: dict[str, Any] = json.loads(_exported("cyclonedx1.5", _RUNTIME))
    bill["metadata"]["component"]["type"] = "application"
    for one in bill["dependencies"]:
        # Remove the dependency of the package on itself, which is listed because some of its extras include another
        # extra.
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
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout  # noqa: S603  # the command consists of constants


def main(arguments: Sequence[str]) -> None:
    """Run the command in the arguments: `requirements`, or `sbom` with the path of a file."""
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
