"""Cost of `from toolgate import guarded` and one decoration, compared with `import wrapt`: interleaved runs, medians.

Twice: inside the interpreter, between its first line and its last, and the whole process from its start to its end. It
is processor time, since a busy machine lets both wait as it likes.
"""

import os
import statistics
import sys

ROUNDS = 30
WRAPT = "import wrapt"
TOOLGATE = "from toolgate import guarded\n@guarded('a.b')\ndef tool(n: int) -> int: return n"


def _measured(code: str) -> tuple[float, float]:
    """Seconds inside the interpreter, and of the whole process."""
    timed = f"import os, time\nbegan = time.process_time()\n{code}\nos.write({{}}, b'%f' % (time.process_time() - began))"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOOLGATE_")}
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    child = os.posix_spawn(sys.executable, [sys.executable, "-c", timed.format(writing)], environment)
    os.close(writing)
    _, status, usage = os.wait4(child, 0)
    assert status == 0
    with os.fdopen(reading) as told:
        return float(told.read()), usage.ru_utime + usage.ru_stime


def test_import() -> None:
    """Print milliseconds and how many times `import wrapt` they are."""
    for code in (WRAPT, TOOLGATE):
        _measured(code)
    wrapt, toolgate = [], []
    for _ in range(ROUNDS):
        wrapt.append(_measured(WRAPT))
        toolgate.append(_measured(TOOLGATE))
    for at, name in enumerate(("inside the interpreter", "the whole process")):
        base, ours = (statistics.median(each[at] for each in found) for found in (wrapt, toolgate))
        print(
            f"\n{name:24} wrapt {base * 1e3:6.1f} ms, toolgate {ours * 1e3:6.1f} ms: {ours / base:.2f} x",
            end="",
        )
    print()
