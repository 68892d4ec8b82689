"""What else a machine did while something was measured."""

import subprocess
import sys
from pathlib import Path

from load import machine

BUSY = "import time\nwhile time.process_time() < 0.3: pass"


def test_what_was_started_and_waited_for_is_nobody_else() -> None:
    """A child's work is not told as that of others, but as it would be if it were not waited for."""
    with machine.Others() as others:
        used = machine._own_seconds()
        subprocess.run([sys.executable, "-c", BUSY], check=True)
        assert machine._own_seconds() - used >= 0.3
    assert (others.share is None) is (not Path("/proc/stat").exists())
    assert 0 <= (others.share or 0) <= 1
    assert 0 <= (others.stolen or 0) <= 1
