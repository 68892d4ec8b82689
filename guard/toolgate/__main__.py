"""Run the command line with ``python -m toolgate``."""

import runpy

if __name__ == "__main__":
    # Run by name instead of imported: the SDK must not depend on the command line.
    runpy.run_module("toolgate_cli", run_name="__main__")
