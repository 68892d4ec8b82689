"""The command line by the words with which the user can start it again."""

import os
import shlex
import shutil
import sys
import sysconfig
from functools import cache
from pathlib import Path


@cache
def program() -> str:
    """Return how to start this installation's command in the present folder, quoted for a shell.

    `toolgate` where that is this installation's; otherwise the path of its command, as short as it can be.
    """
    scripts = sysconfig.get_path("scripts")
    own = shutil.which("toolgate", path=scripts)
    if own is None:
        return shlex.join([sys.executable, "-m", "toolgate"])
    found = shutil.which("toolgate")
    if found is not None and Path(found).resolve() == Path(own).resolve():
        return "toolgate"
    below = os.path.relpath(own)
    return shlex.quote(own if below.startswith(os.pardir) else below)
